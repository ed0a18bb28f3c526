"""Decodes records to Arrow batches.

decode(record, columns)                   # the batch that was encoded
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.records.example import features
from headway.records.wire import TAGS
from headway.schema.columns import ARROW, Column, StoredType
from headway.tabular.list_arrays import join


def decode(record: bytes, columns: Sequence[Column]) -> pa.RecordBatch:
    """The rows of one record, strings as plain binary.

    Raises:
        ValueError: not a record of these columns.
    """
    try:
        entries = features(record)
        arrays = [_values_of(entries, column) for column in columns]
        return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])
    except KeyError as error:
        raise ValueError(f"the record has no feature {error}") from None
    except IndexError as error:  # a code beyond its dictionary
        raise ValueError(str(error)) from None


_Features = dict[str, tuple[bytes, Any]]


def _list(features: _Features, name: str, type: StoredType) -> Any:
    tag, values = features[name]
    if tag not in (TAGS[type], b""):
        raise ValueError(f"feature {name!r} is not a list of {type}")
    return values


def _values(features: _Features, name: str, column: Column) -> pa.Array:
    return pa.array(_list(features, name, column.type), ARROW[column.type])


def _stored_ints(features: _Features, name: str) -> NDArray[np.int64]:
    return np.asarray(_list(features, name, "int64"), np.int64)


def _values_of(features: _Features, column: Column) -> pa.Array:
    present = _stored_ints(features, f"{column.name}/present") != 0 if column.nullable else None
    lengths = _stored_ints(features, f"{column.name}/lengths") if column.is_list else None
    if column.encoding == "dictionary":
        codes = _stored_ints(features, f"{column.name}/codes")
        # code 0 stands for null as well, and must be good for something where the dictionary is empty
        words = pa.concat_arrays([_values(features, f"{column.name}/dict", column), pa.array([b""], pa.binary())])
        values = words.take(pa.array(codes))
    else:
        values = _values(features, column.name if lengths is None else f"{column.name}/values", column)
    if column.length is not None:
        lengths = np.full(len(values) // column.length, column.length)
    if lengths is None:
        return values if present is None else pc.if_else(pa.array(present), values, pa.scalar(None, values.type))
    if len(values) != lengths.sum():
        raise ValueError(f"column {column.name!r} has {len(values)} values and lengths that add up to {lengths.sum()}")
    if present is None:
        present = np.ones(len(lengths), np.bool_)
    elif column.length is not None:  # the slots of null rows
        values = values.filter(pa.array(np.repeat(present, column.length)))
    return join(values, np.where(present, lengths, 0), present, column)
