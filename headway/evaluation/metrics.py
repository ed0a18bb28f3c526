"""Measures predictions: every metric of a task, overall and by slice, with a calibration table.

    measure("binary", label, prediction, weight)
    # {"loss": 0.42, "auc": 0.71, "accuracy": 0.8, "prediction_mean": 0.24, "label_mean": 0.23, ...}
    summary(table, "binary", slices=["carrier"])         # the same overall and by slice, with a calibration table

Shapes: labels and weights are [rows]; predictions are [rows] (probability of class 1, or the predicted number) or
[rows, width] (probabilities of the classes, labels being their indices; or quantiles). All arithmetic is float64. A metric
that has no value (AUC of one class, anything of zero weight, anything of a prediction that is not a finite number) is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from headway.errors import DataError
from headway.evaluation.slices import slice_rows
from headway.metrics.base import Metric, Rows
from headway.metrics.classification import calibration_bins
from headway.metrics.ranking import RANKED, GroupMetric, codes_of
from headway.metrics.user_metric import MetricSpec
from headway.tasks.base import Task
from headway.tasks.table import task_of

_OWN = ("row", "label", "prediction", "weight")
"""Columns of a predictions table that are not the data's."""


def measure(
    task: Task | str,
    label: ArrayLike,
    prediction: ArrayLike,
    weight: ArrayLike | None = None,
) -> dict[str, float | None]:
    """Every metric of `task`, weighted; None where one is undefined."""
    task = task_of(task)
    return measured(task.metrics, task.rows(label, prediction, weight))


def measured(metrics: Sequence[Metric], rows: Rows) -> dict[str, float | None]:
    """Each metric on these rows, by name."""
    return {metric.name: metric.on(rows) for metric in metrics}


def metrics_of(task: Task | str, ndcg_at: int | None = None, own: Sequence[MetricSpec] = ()) -> tuple[Metric, ...]:
    """The task's metrics, then the user's own; with `ndcg_at` also those of the order within groups, by their first so
    many ranks.

    Raises:
        ConfigError: a metric of the user's own cannot be loaded.
    """
    ranking = () if ndcg_at is None else tuple(GroupMetric(name, ndcg_at) for name in RANKED)
    return (*task_of(task).metrics, *ranking, *(spec.load() for spec in own))


def rows_of(table: pa.Table, task: Task | str, group: str | None = None, *, columns: bool = False) -> Rows:
    """The rows of a predictions table (a weight is one where there is no such column).

    Args:
        group: the column whose equal values are a group.
        columns: keep the other columns, for metrics of the user's own.

    Raises:
        DataError: the columns do not agree or break the task's rules, or there is no such group column.
    """
    prediction = table.column("prediction").combine_chunks()
    kind = prediction.type
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        flat = prediction.flatten().to_numpy(zero_copy_only=False)
        if len(table) and len(flat) % len(table):
            raise DataError("the predictions of some rows have more classes than those of others")
        values = flat.reshape(len(table), -1) if len(table) else np.zeros((0, 1))
    else:
        values = prediction.to_numpy(zero_copy_only=False)
    weight = table.column("weight").to_numpy() if "weight" in table.column_names else None
    if group is not None and group not in table.column_names:
        raise DataError(f"the predictions have no column {group!r} to resample by")
    groups = None if group is None else codes_of(table.column(group))
    others = (
        {name: table.column(name).to_numpy() for name in table.column_names if name not in _OWN} if columns else None
    )
    return task_of(task).rows(table.column("label").to_numpy(), values, weight, groups=groups, columns=others)


def summary(
    table: pa.Table,
    task: Task | str,
    *,
    slices: Sequence[str] = (),
    min_rows: int = 1,
    group: str | None = None,
    ndcg_at: int | None = None,
    own: Sequence[MetricSpec] = (),
) -> dict[str, Any]:
    """What a predictions table amounts to, as JSON: rows, weight, overall metrics, calibration bins, slices.

    Args:
        table: columns label, prediction, optionally weight, and those of `slices` and `group`.
        slices: as `headway.evaluation.slices` reads them.
        min_rows: slices with fewer rows are left out.
        ndcg_at: judge also the order within groups, its first so many ranks; see `headway.metrics.ranking`.
        own: metrics of the user's own.
    """
    task = task_of(task)
    metrics = metrics_of(task, ndcg_at, own)
    rows = rows_of(
        table, task, group if ndcg_at is not None else None, columns=any(metric.reads_columns for metric in metrics)
    )
    by = {"group": group, "ndcg_at": ndcg_at} if ndcg_at is not None else {}
    return {
        "task": task.name,
        "rows": len(rows),
        "weight": rows.total,
        **by,
        "overall": measured(metrics, rows),
        "calibration_bins": calibration_bins(rows) if task.name == "binary" else [],
        "slices": {
            column: {
                value: {"rows": len(at), **measured(metrics, rows.at(at))}
                for value, at in slice_rows(table, column, min_rows)
            }
            for column in slices
        },
    }
