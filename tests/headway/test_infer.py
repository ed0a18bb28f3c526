"""A schema from a sample: what cannot be stored is left out and said, and what would lose digits is text."""

import pyarrow as pa
import pytest

from headway.coerce import coerce
from headway.errors import ConfigError
from headway.infer import infer
from headway.schema import ColumnConfig


def _infer(table, configs=None, needed=()):
    return infer(table, configs or {}, only=False, needed=frozenset(needed), where="pipeline.yaml")


def test_a_file_of_another_delimiter_is_told_of_it():
    for separator, said in ((";", '";"'), ("\t", '"\\t"')):
        table = pa.table({separator.join("aby"): ["1"]})
        with pytest.raises(ConfigError) as error:
            _infer(table, needed=["y"])
        assert f"say source.csv.delimiter: {said}" in error.value.fix


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.list_(pa.int64())), pa.list_(pa.struct([("a", pa.int64())])), pa.map_(pa.string(), pa.int64())]
)
def test_what_no_column_can_hold_is_left_out_and_said(kind):
    table = pa.table({"x": [1, 2], "odd": pa.nulls(2, kind)})
    schema, notes = _infer(table)
    assert schema.names() == ["x"]
    assert len(notes) == 1 and "'odd' is left out" in notes[0] and "single values or lists" in notes[0]
    with pytest.raises(ConfigError, match="'odd' cannot be used"):
        _infer(table, needed=["odd"])


def test_unsigned_integers_beyond_int64_cost_a_row_or_make_a_column_of_text():
    few = pa.table({"u": pa.array([*range(199), 2**63], pa.uint64())})
    schema, notes = _infer(few)
    assert schema.column("u").type == "int64" and not notes
    rejected = coerce(few.to_batches()[0], schema.columns).rejected.to_pylist()
    assert [(row["row"], row["value"]) for row in rejected] == [(199, str(2**63))]
    many = pa.table({"u": pa.array([2**64 - 1, 2**63, 0, None], pa.uint64())})
    schema, notes = _infer(many)
    assert schema.column("u").type == "bytes" and "2 of 3 sampled values" in notes[0]
    stored = coerce(many.to_batches()[0], schema.columns).batch.column("u").to_pylist()
    assert stored == [b"18446744073709551615", b"9223372036854775808", b"0", None]
    schema, notes = _infer(many, {"u": ColumnConfig(type="int")})
    assert schema.column("u").type == "int64" and not notes
