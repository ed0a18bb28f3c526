"""A word for a missing value is one in its column, on every road: files, schema file, coercion."""

import pyarrow as pa
import pytest

from headway.schema.columns import Column, ColumnConfig, Schema
from headway.schema.pbtxt import from_text, to_text
from headway.schema_inference.column_types import infer
from headway.sources.config import SourceConfig
from headway.sources.spans import ONE_SPAN, files, open_source
from headway.tabular.coerce import coerce, raw_types

STATES = ["DE", "FR", "IT", "US", "GB", "NA"]


def _rows(*cells):
    return b"c,n\n" + b"".join(f"{cell},{i if i % 3 else 'NA'}\n".encode() for i, cell in enumerate(cells))


@pytest.mark.parametrize(
    ("cells", "null", "value", "said"),
    [
        (STATES * 50, ("",), b"NA", "'NA', in 50 of 300 sampled values, is a text like the others"),
        (["Berlin", "Rome", "Bern", "NA"] * 50, ("", "NA"), None, "means that the value is missing"),
        (["Berlin", "Rome", "Bern"] * 100 + ["NA"], ("", "NA"), None, ""),
        (["Ex", "Gd", "Fa", "NA"] * 50, ("", "NA"), None, "means that the value is missing"),
        (["x", '"NA"', "NA"] * 50, ("",), b"NA", "is a text like the others"),
        (["x", '""', "NA"] * 50, ("NA",), None, "means that the value is missing"),
    ],
)
def test_the_words_of_a_csv_column_stand_in_the_schema_and_are_read_there(opened, tmp_path, cells, null, value, said):
    source, found = opened("csv", _rows(*cells))
    schema, notes = infer(source.sample(found, 1000), {}, only=False, needed=frozenset(), where="w", typed=False)
    assert schema.column("c").null == null and schema.column("n").null == ("", "NA")
    assert said in " ".join(map(str, notes)) and bool(said) == bool(notes)
    columns = from_text(to_text(Schema(columns=schema.columns)), where="schema.pbtxt").columns
    assert [column.null for column in columns] == [null, ("", "NA")]
    config = SourceConfig(format="csv", path=found[0].path)
    reader = open_source(config, columns=columns)
    (piece,) = reader.ranges(files(config, ONE_SPAN))
    (chunk,) = reader.read(piece, ["c", "n"], raw_types(columns))
    stored = coerce(chunk.batch, columns)
    assert not stored.rejected.num_rows
    place = next(i for i, cell in enumerate(cells) if cell == "NA")
    assert stored.batch.column("c")[place].as_py() == value
    assert stored.batch.column("n").to_pylist()[:4] == [None, 1, 2, None]
    # and where the files tell text from null
    other = pa.record_batch({"c": ["NA", "DE"], "n": ["NA", "3"]})
    assert coerce(other, columns).batch.column("c").to_pylist() == [value, b"DE"]
    assert coerce(other, columns).batch.column("n").to_pylist() == [None, 3]


def test_other_formats_have_none_and_the_pipeline_may_say_which(opened):
    source, found = opened("jsonl", b'{"c": "NA"}\n{"c": "DE"}\n' * 20)
    sample = source.sample(found, 1000)
    for config, null, value in (
        ({}, None, b"NA"),
        ({"c": ColumnConfig(parse={"as": "text", "null": ["NA"]})}, ("NA",), None),
    ):
        schema, _ = infer(sample, config, only=False, needed=frozenset(), where="w")
        column = schema.column("c")
        assert (column.type, column.parse, column.null) == ("bytes", None, null)
        assert coerce(pa.record_batch({"c": ["NA"]}), [column]).batch.column("c").to_pylist() == [value]
    with pytest.raises(ValueError, match="keeps the text as it is"):
        ColumnConfig(type="int", parse={"as": "text"})


def test_lists_and_numbers_of_text_know_the_words():
    columns = (
        Column(name="l", type="bytes", nullable=True, shape=(None,), separator="|", null=("NA",)),
        Column(name="x", type="float32", nullable=True, null=("NA",)),
    )
    batch = pa.record_batch({"l": ["a|b", "NA"], "x": pa.array(["1.5", "NA"]).dictionary_encode()})
    stored = coerce(batch, columns)
    assert not stored.rejected.num_rows
    assert stored.batch.to_pylist() == [{"l": [b"a", b"b"], "x": 1.5}, {"l": None, "x": None}]
