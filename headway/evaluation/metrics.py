"""Measures predictions: every metric of a task.

    measure("binary", label, prediction, weight)
    # {"loss": 0.42, "auc": 0.71, "accuracy": 0.8, "prediction_mean": 0.24, "label_mean": 0.23, ...}
    measured(metrics_of("binary"), rows_of(table, "binary"))        # the same of a predictions table

Shapes: labels and weights are [rows]; predictions are [rows] (probability of class 1, or the predicted number) or
[rows, width] (probabilities of the classes, labels being their indices; or quantiles). All arithmetic is float64. A metric
that has no value (AUC of one class, anything of zero weight, anything of a prediction that is not a finite number) is None.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from headway.errors import DataError
from headway.metrics.base import Metric, Rows
from headway.metrics.ranking import NO_GROUP, RANKED, GroupMetric, ItemCoverage, codes_of
from headway.metrics.retrieval import retrieval_metrics
from headway.metrics.user_metric import MetricSpec
from headway.schema.columns import UNIT as UNIT
from headway.tabular.list_arrays import value_numbers, whole
from headway.tasks.base import Task
from headway.tasks.table import task_of

ROW_LOSS = "row_loss"
"""The loss of each row, where it does not follow from the prediction: of a task of the user's own."""
OWN = ("row", "label", "prediction", "weight", ROW_LOSS, UNIT)
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


def metrics_of(
    task: Task | str,
    ndcg_at: int | None = None,
    own: Sequence[MetricSpec] = (),
    item: str | None = None,
    retrieval: bool = False,
) -> tuple[Metric, ...]:
    """The task's metrics, then the user's own; with `ndcg_at` also those of the order within groups, by their first so
    many ranks, and where a column names the item, of the items shown; with `retrieval` those of the whole index.

    Raises:
        ConfigError: a metric of the user's own cannot be loaded.
    """
    ranking: tuple[Metric, ...] = ()
    if ndcg_at is not None:
        ranking = tuple(GroupMetric(name, ndcg_at) for name in RANKED)
        ranking += () if item is None else (ItemCoverage(item, ndcg_at),)
        ranking += retrieval_metrics(ndcg_at) if retrieval else ()
    return (*task_of(task).metrics, *ranking, *(spec.load() for spec in own))


def rows_of(
    table: pa.Table, task: Task | str, group: str | None = None, *, columns: bool | Sequence[str] = False
) -> Rows:
    """The rows of a predictions table (a weight is one where there is no such column), with the units that the split kept
    together.

    Args:
        group: the column whose equal values are a group.
        columns: the other columns that metrics of the user's own read, as text; True: all.

    Raises:
        DataError: the columns do not agree or break the task's rules, or there is no such group column.
    """
    prediction = whole(table.column("prediction"))
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
    names = [name for name in table.column_names if name not in OWN] if columns is True else columns or ()
    others = {name: table.column(name).cast(pa.string()).to_numpy() for name in names} if columns else None
    units = _units(table, groups)
    label = table.column("label").to_numpy()
    return task_of(task).rows(label, values, weight, groups=groups, columns=others, units=units)


def drawn_by(table: pa.Table, group: str | None = None) -> NDArray[np.int64] | None:
    """What rows are resampled by, [rows]: the units of a table, or its groups; None: they are drawn one by one."""
    groups = None if group is None else codes_of(table.column(group))
    units = _units(table, groups)
    return groups if units is None else units


def _units(table: pa.Table, groups: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
    """What the split kept together, [rows]; None where that is each row by itself, or where it cuts through groups."""
    if UNIT not in table.column_names:
        return None
    column = table.column(UNIT)
    units = (column.fill_null(NO_GROUP) if column.null_count else column).to_numpy()
    shared = units != NO_GROUP
    codes, count = value_numbers(units[shared])
    if count == len(codes):
        return None
    numbered = codes
    if len(codes) < len(units):
        numbered = count + np.arange(len(units))
        numbered[shared] = codes
    if groups is None:
        return numbered
    grouped = groups[shared] != NO_GROUP
    both = np.unique(groups[shared][grouped] * count + codes[grouped])  # each group in one unit
    nested = shared[groups != NO_GROUP].all() and len(both) == len(np.unique(groups[groups != NO_GROUP]))
    return numbered if nested else None
