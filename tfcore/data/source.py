"""Makes shards in memory from a table, arrays, or a user's Dataset: with the records that shards in files would have.

    shards = rows_in_memory(table, columns)           # an Arrow table, a dict of NumPy arrays, or a tf.data.Dataset
    train(request, out, monitor, shards=shards)       # and evaluate.predict(..., shards=shards)
    element_spec(columns)                             # of raw rows: {"delay": TensorSpec([None], float32), ...}

The chain of `tfcore.data.dataset` reads these shards like shards in files: the same rows, cut into the same records, come in the
same order and end in the same bits. A column that may be null has a companion column `<name>__present`, as in an exported
signature. A list column is ragged. Rows that do not fit raise a DataError that names the column, what is expected and what was
given.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf

from headway.errors import DataError
from headway.records.encode import ROWS_PER_RECORD, encode_records
from headway.records.tfrecord import cut_between_groups, grouper
from headway.schema.columns import UNIT, Column, suggest
from headway.schema.tensor_name import PRESENT
from headway.tabular.list_arrays import is_text, value_type
from tfcore.data.reader import InMemoryShards
from tfcore.transform.raw_column import DTYPES


def rows_in_memory(
    rows: Any, columns: Sequence[Column], *, rows_per_record: int = ROWS_PER_RECORD, shards: int = 1
) -> InMemoryShards:
    """Returns the shards of a table, of arrays by column, or of a Dataset with elements of `element_spec`, which is read once.

    The rows, with `UNIT_COLUMN` or without it, are cut into up to `shards` shards of about equal length, and these into records
    of `rows_per_record` rows, as ingest cuts them: fewer if rows are large, more for a larger group. No cut divides a group.

    Raises:
        DataError: a column is missing, is not known, or has another type or shape; or a group is too large for a record.
    """
    if isinstance(rows, tf.data.Dataset):
        arrays = ({n: v.to_list() if isinstance(v, tf.RaggedTensor) else v.numpy() for n, v in e.items()} for e in rows)
        table = pa.concat_tables([_table(each, columns) for each in arrays])
    else:
        table = _table(rows, columns)
    records, counts = [], []
    for piece in cut_between_groups(table, columns, shards):
        cut = grouper(rows_per_record, columns)
        groups = [*(group for batch in piece.to_batches() for group in cut.add(batch)), *cut.finish()]
        records.append(tuple(b"".join(r) for part, sizes in groups for r in encode_records(part, sizes, columns)))
        counts.append(tuple(size for _, sizes in groups for size in sizes))
    names = tuple(f"memory, part {number}" for number in range(len(records)))
    stored = tuple(column for column in columns if column.name != UNIT)
    unit = len(stored) < len(columns)
    return InMemoryShards(names, tuple(counts), stored, unit=unit, records=tuple(records))


def element_spec(columns: Sequence[Column]) -> dict[str, tf.TypeSpec]:
    """Returns the spec of a Dataset element with raw rows, by column: tensors with any number of rows."""
    spec: dict[str, tf.TypeSpec] = {}
    for column in columns:
        spec[column.name] = tf.TensorSpec([None, *column.shape], DTYPES[column.type])
        if column.is_list:
            spec[column.name] = tf.RaggedTensorSpec([None, None], DTYPES[column.type], 1, tf.int64)
        if column.nullable:
            spec[column.name + PRESENT] = tf.TensorSpec([None], tf.bool)
    return spec


def _table(rows: Any, columns: Sequence[Column]) -> pa.Table:
    """Returns `rows` as an Arrow table of `columns`, in their order; DataError where they do not fit."""
    if isinstance(rows, pa.Table | pa.RecordBatch):
        rows = dict(zip(rows.schema.names, rows.columns, strict=True))
    if not isinstance(rows, Mapping):
        raise _problem(f"expected a dict of arrays, an Arrow table or a Dataset, given {type(rows).__name__}")
    known = {column.name for column in columns} | {column.name + PRESENT for column in columns if column.nullable}
    if unknown := [name for name in rows if name not in known]:
        raise _problem(f"column {unknown[0]!r} is not expected", suggest(str(unknown[0]), sorted(known)))
    arrays = [_array(rows.get(column.name), rows.get(column.name + PRESENT), column) for column in columns]
    for column, array in zip(columns, arrays, strict=True):
        if len(array) != len(arrays[0]):
            rows_of = f"{len(arrays[0])} rows, as {columns[0].name!r} has"
            raise _problem(f"column {column.name!r}: expected {rows_of}, given {len(array)}")
    return pa.table(arrays, names=[column.name for column in columns])


def _array(values: Any, present: Any, column: Column) -> pa.Array:
    """Returns the values of a column as an Arrow array. `present`, bool [rows], is false for nulls; None: `values` has the nulls
    itself. Raises a DataError if a value does not fit the column, or an array has another type or shape."""
    expected = f"column {column.name!r}: expected {column.arrow} [rows, {', '.join(map(str, column.shape))}]"
    expected = expected.replace(", ]", "]").replace("[rows, None]", "[rows]")
    if values is None:
        raise _problem(f"{expected}, given nothing")
    given = f"{getattr(values, 'dtype', type(values).__name__)} {list(np.shape(values)) if hasattr(values, 'dtype') else ''}"
    if present is not None and getattr(present, "dtype", None) != np.bool_:
        raise _problem(f"column {column.name + PRESENT!r}: expected bool [{len(values)}]")
    absent = None if present is None else ~present
    try:
        if isinstance(values, pa.ChunkedArray | pa.Array):
            array, given = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values, str(values.type)
        elif not isinstance(values, np.ndarray):
            array = pa.array(values, column.arrow)
            if absent is not None:
                array = pa.compute.if_else(pa.array(absent), None, array)
        elif values.shape[1:] != column.shape:
            raise _problem(f"{expected}, given {given}")
        elif column.shape:
            mask = None if absent is None else pa.array(absent)
            array = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), column.length, mask=mask)
        else:
            array = pa.array(values, mask=absent)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise _problem(f"{expected}, given {given} ({str(error).splitlines()[0]})") from None
    (nesting, kind), (wanted, leaf) = map(_nesting, (array.type, column.arrow))
    if nesting != wanted or not (is_text(kind) if column.type == "bytes" else kind == leaf):
        raise _problem(f"{expected}, given {given}")
    if array.null_count and not column.nullable:
        fix = "leave those rows out, or make the column nullable"
        raise _problem(f"{expected} without nulls, given {array.null_count} nulls", fix)
    return array if pa.types.is_dictionary(array.type) else array.cast(column.arrow)


def _nesting(kind: pa.DataType) -> tuple[int | None, pa.DataType]:
    """Returns the length of an Arrow type's lists (-1: any length; None: no lists) and the type of a single value."""
    if pa.types.is_fixed_size_list(kind):
        return kind.list_size, value_type(kind.value_type)
    return (-1, value_type(kind.value_type)) if pa.types.is_list(kind) else (None, value_type(kind))


def _problem(problem: str, fix: str | None = None) -> DataError:
    return DataError(problem, where="the rows", fix=fix)
