"""The parameters of a label: its task, classes and scale, fitted on train statistics; TensorFlow-free.

label = fit_label(statistics.columns["label"], "auto")
label.task, label.classes, label.mean                # "multiclass", ("a", "b", "c"), None
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from headway.config import Frozen
from headway.errors import ConfigError, DataError
from headway.statistics.column_statistics import ColumnStatistics
from headway.tasks.builtin import Count, Quantiles
from headway.tasks.table import TaskName, task_of
from tfcore.heads.weighted_labels import WeightedLabel

AUTO_MOST_CLASSES = 100


class LabelParameters(Frozen):
    """The parameters of a label. `classes` are the label's values by class index. None: the label is predicted as it is
    stored, as a number or as 0 and 1."""

    task: TaskName
    type: Literal["int64", "float32", "bytes"]
    classes: tuple[str, ...] | tuple[int, ...] | None = None
    counts: tuple[int, ...] | None = None
    """The number of train rows of each class (binary: negative, positive). Where rows have weights: each class's sum of
    weights, scaled so that all add up to about the number of rows."""
    base_rate: float | None = None
    mean: float | None = None
    std: float | None = None
    quantiles: tuple[float, ...] = ()
    """The quantiles of the train labels at the levels of a task that predicts quantiles."""
    median: float | None = None
    """The weighted median of the train labels; None where rows have no weights, since the statistics then have it."""
    file: Path | None = None
    """The Python file of a user's task; each request sets it, and it is not stored."""


def fit_label(stats: ColumnStatistics, task: str, weighted: WeightedLabel | None = None) -> LabelParameters:
    """Returns a label's parameters, fitted on its train statistics. The task "auto" is inferred from the statistics.

    Args:
        weighted: the weighted statistics of the label; None if rows have no weights.
    """
    unweighted = stats
    if weighted is not None:
        if stats.present and not weighted.statistics.present:
            fix = "check the column of role weight"
            raise DataError("no train row with a label has a weight above 0", where="label", fix=fix)
        stats = weighted.statistics
    if not stats.present:
        raise DataError("no train row has a label", where="label")
    if stats.distinct < 2:
        value = stats.top(1)[0][0] if stats.complete else stats.minimum
        raise DataError(f"every train row has the label {value!r}: there is nothing to learn", where="label")
    if task == "auto":
        task = _infer_task(stats)
    kind = task_of(task)
    if not kind.has_classes:
        if stats.type == "bytes":
            problem = f"{kind.name} needs a number, and the label is text"
            raise ConfigError(problem, where="task", fix="task: multiclass")
        if isinstance(kind, Count) and stats.finite and float(stats.minimum or 0) < 0:
            raise ConfigError(
                f"a count is not negative, and the smallest train label is {stats.minimum:g}",
                where="task",
                fix="task: regression",
            )
        levels, known = kind.levels if isinstance(kind, Quantiles) else (), weighted or stats
        return LabelParameters(
            task=kind.name,
            type=stats.type,
            mean=known.mean,
            std=known.std or 1.0,
            quantiles=tuple(float(value) for value in known.quantile(levels)) if levels else (),
            median=next(iter(weighted.quantile([0.5])), None) if weighted else None,
        )
    if not stats.complete:
        raise ConfigError(
            f"the label has about {stats.distinct:,} values, too many for classes", where="task", fix="task: regression"
        )
    pairs = sorted(stats.top())
    values, counts = [value for value, _ in pairs], tuple(count for _, count in pairs)
    shares = np.divide(counts, sum(counts)).tolist()
    if weighted is not None:
        sums = weighted.sums(values)
        shares, counts = (sums / sums.sum()).tolist(), tuple(max(1, round(rows)) for rows in sums.tolist())
    if not kind.per_class:
        if len(values) != 2:
            raise ConfigError(
                f"{kind.name} needs two label values, and there are {len(values)}", where="task", fix="task: multiclass"
            )
        plain = values == [0, 1] and unweighted.distinct <= 2  # else rows of weight 0 have others, which are no class
        classes, base_rate = None if plain else _classes(stats, values), shares[1]
        return LabelParameters(task=task, type=stats.type, classes=classes, counts=counts, base_rate=base_rate)
    return LabelParameters(task=task, type=stats.type, classes=_classes(stats, values), counts=counts)


def _infer_task(stats: ColumnStatistics) -> str:
    if stats.complete and stats.distinct == 2:
        return "binary"
    if stats.type == "bytes" or (stats.type == "int64" and stats.complete and stats.distinct <= 20):
        if stats.distinct > AUTO_MOST_CLASSES:
            raise ConfigError(
                f"the label is text with {stats.distinct:,} values",
                where="label",
                fix="say task: multiclass if that is meant",
            )
        return "multiclass"
    return "regression"


def _classes(stats: ColumnStatistics, values: Sequence[Any]) -> tuple[str, ...] | tuple[int, ...]:
    if stats.type == "bytes":
        return tuple(value.decode("utf-8", "backslashreplace") for value in values)
    if stats.type == "float32" and any(value != int(value) for value in values):
        raise ConfigError("a label with fractions cannot be a class", where="label", fix="task: regression")
    return tuple(int(value) for value in values)
