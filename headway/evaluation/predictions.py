"""Reads predictions from the files that evaluation wrote, checks them, and measures them by every metric of a task.

    table = read_predictions(path)
    measured(metrics_of("binary"), rows_of(table, "binary"))        # {"loss": 0.42, "auc": 0.71, "accuracy": 0.8, ...}

Shapes: labels and weights are [rows]. Predictions are [rows] (the probability of class 1, or a number) or [rows, width] (the
probabilities of the classes, whose indices are the labels; or quantiles). All arithmetic is float64. A metric is None where
it has no value, such as an AUC of one class, or any metric of rows without weight or of predictions that are not all finite.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from headway.errors import DataError
from headway.messages import agree, counted
from headway.metrics.base import Metric, Rows
from headway.metrics.ranking import NO_GROUP, RANKED, GroupMetric, ItemCoverage, codes_of
from headway.metrics.retrieval import retrieval_metrics
from headway.metrics.user_metric import MetricSpec
from headway.schema.columns import UNIT
from headway.tabular.hashing import U64, hash_texts, mix64
from headway.tabular.list_arrays import combine_chunks, factorize, is_text
from headway.tasks.base import Task
from headway.tasks.table import task_of

ROW_LOSS = "row_loss"
"""The column with each row's loss. Only tasks of the user's own have it: their loss does not follow from the prediction."""
OWN = ("row", "label", "prediction", "weight", ROW_LOSS, UNIT)
"""The columns of a predictions table that do not come from the data."""
OF_ROWS = ("row", "label", "weight")
"""The columns that identify the rows of a predictions table."""
MOST_ROWS = 1 << 22
"""If there are more rows, a random sample of about this size is judged, which bounds memory and time."""
_GROUP_SHARE = 64
"""A group of more than MOST_ROWS / this rows is sampled row by row: else a few groups would decide the sample's size."""
_HASH_BITS = 20
"""The number of bits of a group's hash by which the rows of groups are counted."""
_ALL_ROWS, _NOT_FINITE = b"rows", b"not finite"
BATCH = 1 << 17
_SALT = 0x6A75646765  # "judge"


def measured(metrics: Sequence[Metric], rows: Rows) -> dict[str, float | None]:
    """Returns the value of each metric on these rows, by name; None where it is undefined."""
    return {metric.name: metric.cached_value(rows) for metric in metrics}


def metrics_of(
    task: Task | str,
    ndcg_at: int | None = None,
    own: Sequence[MetricSpec] = (),
    item: str | None = None,
    retrieval: bool = False,
) -> tuple[Metric, ...]:
    """Returns the task's metrics, then the ranking metrics if `ndcg_at` is given, then the user's own. Ranking
    metrics judge the first `ndcg_at` rows of each group. With them, `item` names the column for the coverage of
    items, and `retrieval` adds the metrics over all items of the index.

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
    """Returns a predictions table as `Rows`, with the units that the split kept together. In a table without weights
    each row's weight is 1.

    Args:
        group: the column whose equal values make a group.
        columns: further columns, read as text for the metrics that use them; True: all further columns.

    Raises:
        DataError: the columns do not agree or break the task's rules, or there is no such group column.
    """
    prediction = combine_chunks(table.column("prediction"))
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
        raise DataError(f"the predictions have no column {group!r} to draw by")
    groups = None if group is None else codes_of(table.column(group))
    names = [name for name in table.column_names if name not in OWN] if columns is True else columns or ()
    others = {name: table.column(name).cast(pa.string()).to_numpy() for name in names} if columns else None
    units = _units(table, groups)
    label = table.column("label").to_numpy()
    return task_of(task).rows(label, values, weight, groups=groups, columns=others, units=units)


def _units(table: pa.Table, groups: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
    """Returns the number of each row's unit, which the split kept together, [rows]. None where each row is a unit by
    itself, or where units divide groups."""
    if UNIT not in table.column_names:
        return None
    column = table.column(UNIT)
    units = (column.fill_null(NO_GROUP) if column.null_count else column).to_numpy()
    shared = units != NO_GROUP
    codes, count = factorize(units[shared])
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


# --- read, and checked


def read_predictions(
    path: Path, columns: Collection[str] | None = None, *, group: str | None = None, unit: bool = True
) -> pa.Table:
    """Returns the predictions in a file that evaluation wrote. If the file has more than `MOST_ROWS` rows, the result
    is a random sample, the same rows for every model. `unusable_text` still counts the bad predictions of all rows.

    Args:
        columns: further columns to read, where the file has them; None: all.
        group: the column whose equal values make a group; a sample takes groups as a whole, except large ones.
        unit: whether to read the column with the split's units.

    Raises:
        DataError: the file cannot be read, or has no rows.
    """
    try:
        texts = [field.name for field in pq.read_schema(path) if is_text(field.type)]
        with pq.ParquetFile(path, read_dictionary=texts) as file:
            wanted = None if columns is None else {*OWN, *columns}
            names = [name for name in file.schema_arrow.names if wanted is None or name in wanted]
            names = [name for name in names if unit or name != UNIT]
            rows = file.metadata.num_rows
            table = file.read(names) if rows <= MOST_ROWS else _sample(file, names, group, MOST_ROWS / rows)
            table = table.combine_chunks()  # once, where every look at a column would
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise DataError(f"predictions cannot be read: {error}", where=str(path)) from None
    if not len(table):
        raise DataError("there are no evaluation rows to judge by", where=str(path), fix="give eval more rows or spans")
    return table.replace_schema_metadata({_ALL_ROWS: str(rows)} | (table.schema.metadata or {}))


def population_size(table: pa.Table) -> int | None:
    """Returns the number of rows in the file, if the table is only a sample of the rows; else None."""
    rows = int((table.schema.metadata or {}).get(_ALL_ROWS, 0))
    return rows if rows > len(table) else None


def _sample(file: pq.ParquetFile, names: list[str], group: str | None, share: float) -> pa.Table:
    parts: list[pa.RecordBatch] = []
    begin, bad, first, limit = 0, 0, 0, U64(share * 2.0**64)
    large = None if group not in names else _large(file, group)
    for batch in file.iter_batches(BATCH, columns=names):
        keys = np.arange(begin, begin + len(batch), dtype=U64)
        if large is not None:
            hashes = _hashes(batch.column(group))
            together = batch.column(group).is_valid().to_numpy(zero_copy_only=False) & ~large[_cell(hashes)]
            keys = np.where(together, hashes, keys)
        parts.append(batch.filter(pa.array(mix64(keys, _SALT) < limit)))
        places = np.flatnonzero(~_finite(batch.column("prediction")))
        first = begin + int(places[0]) if len(places) and not bad else first
        begin, bad = begin + len(batch), bad + len(places)
    return pa.Table.from_batches(parts).replace_schema_metadata({_NOT_FINITE: f"{bad} {first}"})


def _large(file: pq.ParquetFile, group: str | None) -> NDArray[np.bool_]:
    """Returns for each value of a group's short hash whether the groups with it have too many rows to be sampled whole."""
    rows = np.zeros(1 << _HASH_BITS, np.int64)
    for batch in file.iter_batches(BATCH, columns=[group]):
        rows += np.bincount(_cell(_hashes(batch.column(0).drop_null())), minlength=len(rows))
    return rows > MOST_ROWS // _GROUP_SHARE


def _hashes(groups: pa.Array) -> NDArray[U64]:
    return hash_texts(groups.cast(pa.string()))


def _cell(hashes: NDArray[U64]) -> NDArray[np.int64]:
    return (hashes >> U64(64 - _HASH_BITS)).astype(np.int64)


def _finite(predictions: pa.Array) -> NDArray[np.bool_]:
    """Returns whether all numbers of a row are finite, [rows]."""
    if not pa.types.is_nested(predictions.type):
        return np.isfinite(predictions.to_numpy(zero_copy_only=False))
    found = np.ones(len(predictions), np.bool_)
    bad = ~np.isfinite(predictions.flatten().to_numpy(zero_copy_only=False))
    found[pc.list_parent_indices(predictions).to_numpy()[bad]] = False
    return found


def unusable_text(rows: pa.Table) -> str | None:
    """Returns a text that says how many predictions in the whole file are not finite numbers; None: all are finite."""
    facts = rows.schema.metadata or {}
    if _NOT_FINITE in facts:
        bad, first = map(int, facts[_NOT_FINITE].split())
    else:
        finite = _finite(combine_chunks(rows.column("prediction")))
        bad, first = len(rows) - int(finite.sum()), int(finite.argmin())
    if not bad:
        return None
    which = agree(bad, "that is not a finite number", "that are not finite numbers")
    every = population_size(rows) or len(rows)
    return f"{bad:,} of {every:,} predictions {which}, the first in row {first:,}"


def metrics_without_value(
    compared: Collection[str], metrics: Mapping[str, float | None], *, first: bool
) -> list[tuple[str, ...]]:
    """Returns lists of metrics without a value, each list a reason to refuse the candidate. Every metric by which
    candidates are compared must have a value. For a first model (`first`), one metric with a value is enough."""
    missing = tuple(name for name in compared if metrics[name] is None)
    if len(missing) == len(compared):
        return [missing]
    return [] if first else [(name,) for name in missing]


def check_same_rows(candidate: pa.Table, other: pa.Table, whose: str, where: str) -> None:
    """Raise DataError unless both tables are about the same rows in the same order."""
    if len(candidate) != len(other):
        raise DataError(
            f"the candidate has {counted(len(candidate), 'prediction')}, and {whose} are {len(other):,}", where=where
        )
    for name in OF_ROWS:
        if name in candidate.column_names and name in other.column_names:
            left, right = candidate.column(name), other.column(name)
            if not left.equals(right.cast(left.type)):
                raise DataError(f"{whose} predictions are of other rows: column {name!r} differs", where=where)
