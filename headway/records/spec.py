"""The names and types that a record's features have: enough for stock tf.io to parse any shard.

    feature_spec([Column(name="age", type="float32", nullable=True)], rows_per_record=4096)
    # {"age": {"kind": "sequence", "dtype": "float32"}, "age/present": {"kind": "sequence", "dtype": "int64"}}

A record of R > 1 rows holds each column as one list: `c` the values, `c/present` 0 or 1 for nullable columns, and for
dictionary columns `c/dict` the distinct values and `c/codes` each row's place among them. With R = 1 a record is a
classic Example: plain names, one value each, nothing at all for null.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from headway.config import Frozen
from headway.schema import Column

Spec = dict[str, dict[str, str]]


class RecordsConfig(Frozen):
    """How rows become records."""

    rows: int = Field(default=4096, ge=1, le=1 << 20, description="rows a record; 1 writes classic tf.train.Examples")


def feature_spec(columns: Sequence[Column], rows_per_record: int) -> Spec:
    """For each feature name its kind and dtype ("int64", "float32", "string").

    kind "sequence" is a FixedLenSequenceFeature (allow_missing=True), "scalar" a FixedLenFeature of shape [] without a
    default, "optional" a scalar that null rows leave out.
    """
    spec: Spec = {}
    for column in columns:
        dtype = "string" if column.type == "bytes" else column.type
        if rows_per_record == 1:
            spec[column.name] = {"kind": "optional" if column.nullable else "scalar", "dtype": dtype}
            continue
        if column.encoding == "dictionary":
            spec[f"{column.name}/dict"] = {"kind": "sequence", "dtype": "string"}
            spec[f"{column.name}/codes"] = {"kind": "sequence", "dtype": "int64"}
        else:
            spec[column.name] = {"kind": "sequence", "dtype": dtype}
        if column.nullable:
            spec[f"{column.name}/present"] = {"kind": "sequence", "dtype": "int64"}
    return spec
