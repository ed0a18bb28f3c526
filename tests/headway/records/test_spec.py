"""The names and types of a record's features."""

from __future__ import annotations

import pytest

from headway.config import load
from headway.errors import ConfigError
from headway.records.spec import RecordsConfig, feature_spec
from headway.schema.columns import Column

COLUMNS = [
    Column(name="n", type="int64", nullable=False),
    Column(name="x", type="float32", nullable=True),
    Column(name="s", type="bytes", nullable=False),
    Column(name="d", type="bytes", nullable=True, encoding="dictionary"),
]


def test_row_groups_spell_out_presence_and_dictionaries():
    spec = feature_spec(COLUMNS, 4096)
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
    assert feature_spec(COLUMNS, 1) == {
        "n": {"kind": "scalar", "dtype": "int64"},
        "x": {"kind": "optional", "dtype": "float32"},
        "s": {"kind": "scalar", "dtype": "string"},
        "d": {"kind": "optional", "dtype": "string"},
    }


@pytest.mark.parametrize("rows", [0, -1, 2**21, "many"])
def test_rows_a_record_are_bounded(rows):
    with pytest.raises(ConfigError, match="rows"):
        load(RecordsConfig, {"rows": rows}, where="pipeline.yaml: records")
