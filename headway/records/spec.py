"""The metadata of records in a manifest: feature names and types for stock tf.io, and row counts.

    feature_spec([Column(name="age", type="float32", nullable=True)])
    # {"age": {"kind": "sequence", "dtype": "float32"}, "age/present": {"kind": "sequence", "dtype": "int64"}}

A record holds each column as one list: `c` the values, `c/present` 0 or 1 for nullable columns, and for dictionary columns
`c/dict` the distinct values and `c/codes` each row's place among them. A vector of n holds n values for each row under the same
names. A list holds `c/values` (or `c/dict` and `c/codes`) and `c/lengths`.

The rows of a shard's records stand in its manifest, equal ones in a row as one pair:

    packed([4096, 4096, 4096, 17])            # [[4096, 3], [17, 1]]
    unpacked([[4096, 3], [17, 1]])            # int64: 4096, 4096, 4096, 17
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.schema.columns import Column

Spec = dict[str, dict[str, Any]]


SPEC = "examples.json"
"""What stands beside shards that are no output of a run: their columns and feature spec."""
ROWS_PER_RECORD = 4096
"""Fewer where cells are large."""


def feature_spec(columns: Sequence[Column]) -> Spec:
    """The kind and dtype ("int64", "float32", "string") of each feature, and "shape": [n] for vectors.

    The kind is "sequence", a FixedLenSequenceFeature (allow_missing=True) of shape [] unless it says another.
    """
    spec: Spec = {}
    for column in columns:
        dtype = "string" if column.type == "bytes" else column.type
        shape = {"shape": [column.length]} if column.length is not None else {}
        if column.encoding == "dictionary":
            spec[f"{column.name}/dict"] = {"kind": "sequence", "dtype": "string"}
            spec[f"{column.name}/codes"] = {"kind": "sequence", "dtype": "int64", **shape}
        else:
            name = f"{column.name}/values" if column.is_list else column.name
            spec[name] = {"kind": "sequence", "dtype": dtype, **shape}
        if column.is_list:
            spec[f"{column.name}/lengths"] = {"kind": "sequence", "dtype": "int64"}
        if column.nullable:
            spec[f"{column.name}/present"] = {"kind": "sequence", "dtype": "int64"}
    return spec


Packed = Sequence[Sequence[int]]
"""Pairs of (rows, how many records in a row have them)."""


def packed(rows: Sequence[int]) -> list[list[int]]:
    """Pack the row counts of records by runs: a million records of one row take as little as one."""
    return [[size, sum(1 for _ in records)] for size, records in groupby(rows)]


def unpacked(value: Packed) -> NDArray[np.int64]:
    """The row count of each record, from what `packed` returned; records of one size take no memory. [records]"""
    runs = np.asarray(value, np.int64).reshape(-1, 2)
    return np.broadcast_to(runs[0, 0], runs[0, 1]) if len(runs) == 1 else np.repeat(runs[:, 0], runs[:, 1])


def total(value: Packed) -> int:
    """The number of all rows."""
    return sum(rows * records for rows, records in value)
