"""The names and types of a record's features."""

from __future__ import annotations

from headway.records.encode import classic_spec, feature_spec
from headway.schema.columns import Column

COLUMNS = [
    Column(name="n", type="int64", nullable=False),
    Column(name="x", type="float32", nullable=True),
    Column(name="s", type="bytes", nullable=False),
    Column(name="d", type="bytes", nullable=True, encoding="dictionary"),
]


def test_row_groups_spell_out_presence_and_dictionaries():
    spec = feature_spec(COLUMNS)
    assert {name: entry["dtype"] for name, entry in spec.items()} == {
        "n": "int64",
        "x": "float32",
        "x/present": "int64",
        "s": "string",
        "d/dict": "string",
        "d/codes": "int64",
        "d/present": "int64",
    }
    assert {entry["kind"] for entry in spec.values()} == {"sequence"}


def test_classic_records_have_plain_names():
    assert classic_spec(COLUMNS) == {
        "n": {"kind": "scalar", "dtype": "int64"},
        "x": {"kind": "optional", "dtype": "float32"},
        "s": {"kind": "scalar", "dtype": "string"},
        "d": {"kind": "optional", "dtype": "string"},
    }
