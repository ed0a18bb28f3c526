"""Chooses the label: finds the column that is certainly, or likely, the label; and describes the label's values.

sole_label(["sepal_length", "class"])            # "class": nothing else has a name that labels have
label_of("arr delay", names)                     # LabelConfig(column="arr delay")
facts_of(seen.label, statistics, where="--label class")      # classes, task, what to write about it
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headway.errors import ConfigError, DataError
from headway.messages import counted, number, percent, short
from headway.schema.columns import suggest
from headway.schema_inference.identifiers import TIMES, named_as_identifier, words_of
from headway.statistics.column_statistics import ColumnStatistics
from headway.tabular.expressions import as_written, parse
from headway.tabular.label import LabelConfig
from headway.validation.label_checks import label_kind

_CERTAIN = frozenset(
    {"label", "target", "class", "outcome", "response", "y", "labels", "targets", "is_fraud", "survived"}
)
"""Names that nothing but a label has."""
MOST_CLASSES = 1000
"""The most values of a text label; one with more is a name."""
_LEAST_OF_A_CLASS = 5
"""Rows of a class below which it may miss the eval split, or train."""
_COUNTED, _FEW = 10, 100
"""Whole numbers from 0 up are counts if they have more values than the first, and a median below the second."""
_ROWS_PER_VALUE = 20


@dataclass(frozen=True)
class LabelFacts:
    kind: str
    """binary, multiclass or regression: what a run makes of the label, with `task` if that is set."""
    task: str | None
    """The `task:` to set in the pipeline where auto would be wrong: multiclass, regression or count; else None."""
    text: str
    """What the values are, in a few words."""
    rare: tuple[Any, ...] = ()
    """Classes with too few rows to be learned and judged, of a label that is one column."""


def sole_label(names: Sequence[str]) -> str | None:
    """Returns the only column with a name that only labels have, such as target; None if no column or several have one."""
    found = [name for name in names if name.strip().lower() in _CERTAIN]
    return found[0] if len(found) == 1 else None


def likely_label(names: Sequence[str]) -> str:
    """Returns a likely label, as an example: the last column that is no identifier and no time, else the last column."""
    others = [name for name in names if name and not named_as_identifier(name) and not {*words_of(name)} & TIMES]
    return [names[-1], *others][-1]


def label_of(text: str, names: Sequence[str]) -> LabelConfig:
    """Returns the label that the text means: a column, if it is a column's name, whatever signs are in it; else an expression.

    Raises:
        ConfigError: the text is neither a column nor an expression of columns.
    """
    if (name := next((name for name in (text, text.strip()) if name in names), None)) is not None:
        return LabelConfig(column=name)
    if text.isidentifier() or not text.strip():
        raise ConfigError(f"there is no column {text!r}", where="--label", fix=suggest(text, list(names)))
    expression = _quoted(text, names)
    parse(expression)  # its errors say what is wrong
    label = LabelConfig(expression=expression)
    for name in sorted(label.columns()):
        if name not in names:
            raise ConfigError(
                f"there is no column {name!r} (in {text!r})",
                where="--label",
                fix=suggest(name, list(names)),
            )
    return label


def _quoted(text: str, names: Sequence[str]) -> str:
    """Returns an expression in which each odd column name, such as one with blanks, is written as col("the name")."""
    odd = sorted((name for name in names if name and not name.isidentifier()), key=len, reverse=True)
    if "col(" in text or not odd:
        return text
    pattern = "|".join(rf"(?<![\w'\"]){re.escape(name)}(?![\w'\"])" for name in odd)
    return re.sub(pattern, lambda found: as_written(found[0]), text)


def facts_of(label: pa.Array, statistics: ColumnStatistics, *, where: str) -> LabelFacts:
    """Returns the kind of the label, the task to set in the pipeline, a text about its values, and its rare classes.

    Raises:
        DataError: a model cannot learn the label: it has one value only, or too many texts: over 1000, or over half the rows.
    """
    rows = len(label)
    if statistics.distinct < 2:
        raise DataError(
            f"the label has one value only, in {counted(rows, 'row')}",
            where=where,
            fix="name another column or expression",
        )
    kind = label_kind("auto", statistics)
    texts = statistics.type == "bytes"
    if texts and (not statistics.complete or statistics.distinct > min(MOST_CLASSES, rows / 2)):
        raise DataError(
            f"the label has {statistics.distinct:,} different texts in {counted(rows, 'row')}: a name, not a class",
            where=where,
            fix="name another column, or make classes of it by an expression, such as --label \"city == 'Oslo'\"",
        )
    task = None if texts else _other_task(label, statistics, kind)
    kind = {"count": "regression"}.get(task or kind, task or kind)
    if kind == "regression":
        values = label.to_numpy(zero_copy_only=False).astype(np.float64)
        values = values[np.isfinite(values)]
        low, middle, high = (number(float(value)) for value in np.quantile(values, [0, 0.5, 1]))
        return LabelFacts(
            kind, task, f"{'counts' if task == 'count' else 'numbers'} from {low} to {high}, median {middle}"
        )
    classes = sorted(statistics.top(), key=lambda pair: -pair[1])
    shares = ", ".join(f"{_shown(value)} {percent(count / rows)}" for value, count in classes[:4])
    more = f" and {len(classes) - 4:,} more" if len(classes) > 4 else ""
    rare = tuple(_plain(value) for value, count in classes if count < _LEAST_OF_A_CLASS) if kind == "multiclass" else ()
    return LabelFacts(kind, task, f"{counted(len(classes), 'class', 'classes')}: {shares}{more}", rare)


def _other_task(label: pa.Array, statistics: ColumnStatistics, kind: str) -> str | None:
    """Returns the task to set if `auto` would misread a label of numbers, such as counts as classes; None if `auto` is right."""
    values = label.to_numpy(zero_copy_only=False).astype(np.float64)
    values = values[np.isfinite(values)]
    distinct = statistics.distinct
    whole = bool((values == np.floor(values)).all())
    if kind == "binary" or not whole:
        return None
    middle = float(np.median(values))
    if distinct > _COUNTED and values.min() == 0 and values.max() > 2 * middle and middle < _FEW:
        return "count"
    single = np.sort(np.unique(values, return_counts=True)[1])[-2] < _LEAST_OF_A_CLASS
    if kind == "multiclass" and (single or (distinct > _COUNTED and len(values) < _ROWS_PER_VALUE * distinct)):
        return "regression"
    if kind == "regression" and statistics.type == "float32" and distinct <= _COUNTED and not single:
        return "multiclass"  # integers with nulls among them, as data frames write them
    return None


def _plain(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.7g}"  # the digits that float32 has
    return re.sub(r"\s+", " ", short(str(_plain(value)), 24)) or "''"
