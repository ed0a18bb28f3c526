"""The gate's checks of predictions before a comparison: readable, of the same rows, finite."""

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from headway.errors import DataError
from headway.evaluation.metrics import OWN, UNIT
from headway.evaluation.slices import parts_of, slice_columns, slice_rows
from headway.messages import agree, counted
from headway.tabular.hashing import U64, hash_texts, mix64
from headway.tabular.list_arrays import is_text, whole

OF_ROWS = ("row", "label", "weight")
"""Columns that say which rows predictions are of."""
MOST_ROWS = 1 << 22
"""More rows are judged by a random sample of about so many, so that memory and time are bounded."""
_GROUP_SHARE = 64
"""A group of more than this part of a sample is drawn row by row: else a few groups decide how large the sample is."""
_HASH_BITS = 20
"""Rows of groups are counted by so many bits of a hash."""
_ALL_ROWS, _NOT_FINITE = b"rows", b"not finite"
_BATCH = 1 << 17
_SALT = 0x6A75646765  # "judge"


def read_predictions(
    path: Path, columns: Collection[str] | None = None, *, group: str | None = None, unit: bool = True
) -> pa.Table:
    """The predictions of an evaluation; of more than `MOST_ROWS` rows a random sample, of the same rows for every model, whatever
    it predicts. `unusable` knows those of all rows.

    Args:
        columns: further columns to read, as far as the file has them; None: all.
        group: the column whose equal values are a group, which a sample has whole, if it is not a large part of it.
        unit: read what the split kept together, too.

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


def sample_of(table: pa.Table) -> int | None:
    """How many rows there are, where `read_predictions` read a sample of them."""
    rows = int((table.schema.metadata or {}).get(_ALL_ROWS, 0))
    return rows if rows > len(table) else None


def rows_by_value(path: Path, table: pa.Table, name: str) -> Counter[str]:
    """How many rows of all have each value of a slice, where the table is a sample of the file; else, and of quantile bins, which
    are those of the sample, nothing."""
    found: Counter[str] = Counter()
    if sample_of(table) is not None and not any(part.bins for part in parts_of(name)):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH, columns=slice_columns([name])):
                found.update({value: len(at) for value, at in slice_rows(pa.Table.from_batches([batch]), name)})
    return found


def _sample(file: pq.ParquetFile, names: list[str], group: str | None, share: float) -> pa.Table:
    parts: list[pa.RecordBatch] = []
    begin, bad, first, limit = 0, 0, 0, U64(share * 2.0**64)
    large = None if group not in names else _large(file, group)
    for batch in file.iter_batches(_BATCH, columns=names):
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
    """Whether the groups of each hash have too many rows to be drawn as a whole."""
    rows = np.zeros(1 << _HASH_BITS, np.int64)
    for batch in file.iter_batches(_BATCH, columns=[group]):
        rows += np.bincount(_cell(_hashes(batch.column(0).drop_null())), minlength=len(rows))
    return rows > MOST_ROWS // _GROUP_SHARE


def _hashes(groups: pa.Array) -> NDArray[U64]:
    return hash_texts(groups.cast(pa.string()))


def _cell(hashes: NDArray[U64]) -> NDArray[np.int64]:
    return (hashes >> U64(64 - _HASH_BITS)).astype(np.int64)


def _finite(predictions: pa.Array) -> NDArray[np.bool_]:
    """Whether all numbers of a row are finite, [rows]."""
    if not pa.types.is_nested(predictions.type):
        return np.isfinite(predictions.to_numpy(zero_copy_only=False))
    found = np.ones(len(predictions), np.bool_)
    bad = ~np.isfinite(predictions.flatten().to_numpy(zero_copy_only=False))
    found[pc.list_parent_indices(predictions).to_numpy()[bad]] = False
    return found


def unusable(rows: pa.Table) -> str | None:
    """How many predictions are not numbers, of all rows where the table is a sample; None: all are."""
    facts = rows.schema.metadata or {}
    if _NOT_FINITE in facts:
        bad, first = map(int, facts[_NOT_FINITE].split())
    else:
        finite = _finite(whole(rows.column("prediction")))
        bad, first = len(rows) - int(finite.sum()), int(finite.argmin())
    if not bad:
        return None
    which = agree(bad, "that is not a finite number", "that are not finite numbers")
    every = sample_of(rows) or len(rows)
    return f"{bad:,} of {every:,} predictions {which}, the first in row {first:,}"


def without_value(
    compared: Collection[str], metrics: Mapping[str, float | None], *, first: bool
) -> list[tuple[str, ...]]:
    """Metrics without a value, for which a candidate is refused: a metric that candidates are compared by has to have one; of a
    first model, at least one of them."""
    missing = tuple(name for name in compared if metrics[name] is None)
    if len(missing) == len(compared):
        return [missing]
    return [] if first else [(name,) for name in missing]


def check_same_rows(candidate: pa.Table, other: pa.Table, whose: str, where: str) -> None:
    """DataError unless both tables are about the same rows in the same order."""
    if len(candidate) != len(other):
        raise DataError(
            f"the candidate has {counted(len(candidate), 'prediction')}, and {whose} are {len(other):,}", where=where
        )
    for name in OF_ROWS:
        if name in candidate.column_names and name in other.column_names:
            left, right = candidate.column(name), other.column(name)
            if not left.equals(right.cast(left.type)):
                raise DataError(f"{whose} predictions are of other rows: column {name!r} differs", where=where)
