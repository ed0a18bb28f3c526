"""A schema from a sample: what cannot be stored is left out and said, and what would lose digits is text."""

import pyarrow as pa
import pytest

from headway.errors import ConfigError
from headway.schema.columns import ColumnConfig
from headway.schema_inference.column_types import infer
from headway.sources.sample import Sample
from headway.tabular.coerce import coerce


def _infer(table, configs=None, needed=()):
    schema, notes = infer(Sample(table), configs or {}, only=False, needed=frozenset(needed), where="pipeline.yaml")
    return schema, [str(note) for note in notes]


def test_a_file_of_another_delimiter_gets_an_error_that_names_it():
    for separator, said in ((";", '";"'), ("\t", '"\\t"')):
        table = pa.table({separator.join("aby"): ["1"]})
        with pytest.raises(ConfigError) as error:
            _infer(table, needed=["y"])
        assert f"say source.csv.delimiter: {said}" in error.value.fix


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.list_(pa.int64())), pa.list_(pa.struct([("a", pa.int64())])), pa.map_(pa.string(), pa.int64())]
)
def test_values_that_no_column_type_holds_are_left_out_and_reported(kind):
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


def test_lists_of_one_length_become_vectors_with_a_note():
    table = pa.table({"pixels": [[1, 2, 3]] * 12, "tags": [["a", "b"]] * 12, "odd": [[1.5]] * 11 + [[1.0, 2.0]]})
    schema, notes = _infer(table)
    assert [column.shape for column in schema.columns] == [(3,), (None,), (None,)]
    (note,) = notes
    assert note.startswith("column 'pixels': a vector: each sampled list has 3 values") and "shape: list" in note
    assert _infer(table, {"pixels": ColumnConfig(shape="list")})[0].column("pixels").shape == (None,)
    assert _infer(table.slice(0, 5))[0].column("pixels").shape == (None,)
    rejected = coerce(pa.record_batch({"pixels": [[1, 2]], "tags": [["a"]], "odd": [[1.0]]}), schema.columns).rejected
    assert rejected["reason"].to_pylist() == ["does not have 3 values (shape: list takes any number)"]


def test_a_column_of_nulls_alone_is_left_out_in_any_format_unless_its_type_is_set():
    for kind in (pa.null(), pa.float64(), pa.string()):
        table = pa.table({"x": [1, 2], "nothing": pa.nulls(2, kind)})
        schema, notes = _infer(table)
        assert schema.names() == ["x"] and "'nothing' is left out: only nulls" in notes[0]
    assert "nothing" in _infer(table, {"nothing": ColumnConfig(type="float")})[0]


def test_a_name_with_a_slash_is_refused_with_the_fix():
    _, notes = _infer(pa.table({"x": [1], "a/b": [1]}))
    assert notes == ["""column 'a/b' is left out: its name holds '/'; give it another: source.rename: {"a/b": "a_b"}"""]


def test_parsed_text_is_reported_and_the_pipeline_s_own_type_wins():
    table = pa.table({"price": ["$1,234", "$5"], "day": ["2013-01-31", "2013-02-01"], "n": ["1", "2"]})
    schema, notes = _infer(table)
    assert [(c.type, c.temporal) for c in schema.columns] == [("float32", None), ("int64", "date"), ("bytes", None)]
    assert [note.split(":")[0] for note in notes] == ["column 'price'", "column 'day'"]
    assert schema.column("price").parse.as_ == "number"
    assert _infer(table, needed=["day"])[0].column("day").type == "bytes"  # an expression compares it with text
    said = {
        "price": ColumnConfig(type="string"),
        "day": ColumnConfig(parse="timestamp"),
        "n": ColumnConfig(parse="number"),
    }
    schema, notes = _infer(table, said)
    wanted = [("bytes", None), ("int64", "timestamp"), ("float32", None)]
    assert [(c.type, c.temporal) for c in schema.columns] == wanted
    assert not notes


def test_identifiers_are_marked_in_the_schema():
    table = pa.table({"id": range(100), "user_id": [i % 9 for i in range(100)], "x": [i * i % 97 for i in range(100)]})
    schema, _ = _infer(table)
    assert [column.meaning for column in schema.columns] == ["identifier", "category", None]


def test_numbers_of_a_text_format_that_are_all_days_are_dates():
    days = [20_130_000 + 100 * month + day for month in (1, 12) for day in range(1, 29)]
    table = pa.table({"d": days, "n": range(20_130_101, 20_130_157)})

    def kept(typed=False, needed=frozenset(), **configs):
        schema, notes = infer(Sample(table), configs, only=False, needed=needed, where="w", typed=typed)
        return [column.temporal for column in schema.columns], notes

    found, notes = kept()
    assert found == ["date", None] and len(notes) == 1 and notes[0].column == "d"
    assert "read as dates of the form %Y%m%d" in notes[0].text
    for others in (kept(typed=True), kept(needed=frozenset({"d"})), kept(d=ColumnConfig(type="int"))):
        assert others == ([None, None], [])
