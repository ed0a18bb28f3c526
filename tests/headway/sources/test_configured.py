"""What the pipeline says of names and encodings, and files that hold something else than they seem to."""

import pyarrow as pa
import pytest

from headway.errors import ConfigError, DataError
from headway.records.tfrecord import frame
from headway.records.wire import INTS, field
from headway.sources.config import CsvConfig, SourceConfig
from headway.sources.text_files import SAMPLE_BYTES


def _read(source, found, columns, types=None):
    return [
        chunk.batch.to_pydict() for piece in source.ranges(found) for chunk in source.read(piece, columns, types or {})
    ]


def test_columns_have_the_names_that_the_pipeline_gives_them(opened):
    source, found = opened("csv", b"a/b,c\n1,2\nx,3\n", rename={"a/b": "a_b"})
    assert source.names(found[0]) == ["a_b", "c"] and source.sample(found, 9).table.column_names == ["a_b", "c"]
    assert _read(source, found, ["a_b"]) == [{"a_b": [b"1", b"x"]}]
    big, found = opened("csv", b"a/b,c\n%s,2\n" % (b"x" * 99), rename={"a/b": "a_b"}, max_cell_bytes=9)
    (piece,) = big.ranges(found)
    assert [bad.column for chunk in big.read(piece, ["a_b"], {}) for bad in chunk.malformed] == ["a_b"]
    for rename, told in [({"z": "y"}, "there is no column 'z'"), ({"a/b": "c"}, "'a/b' is renamed to 'c'")]:
        source, found = opened("csv", b"a/b,c\n1,2\n", rename=rename)
        with pytest.raises(ConfigError, match=told):
            source.sample(found, 9)
    for rename in ({"a": "x/y"}, {"a": "x", "b": "x"}):
        with pytest.raises(ValueError, match="name"):
            SourceConfig(format="csv", path="x", rename=rename)


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_file_that_has_the_new_name_already_is_read_beside_one_that_is_renamed(opened, form):
    old, new = (b"city\n1\n", b"town\n2\n") if form == "csv" else (b'{"city": "1"}\n', b'{"town": "2"}\n')
    for text, value in [(old, b"1"), (new, b"2")]:
        source, found = opened(form, text, rename={"town": "city"})
        assert source.names(found[0]) == source.sample(found, 9).table.column_names == ["city"]
        assert _read(source, found, ["city"], {"city": pa.binary()}) == [{"city": [value]}]


def test_of_names_that_are_both_old_and_new_no_column_is_taken_for_another(opened):
    chain = {"a": "b", "b": "c"}
    source, found = opened("csv", b"a,b\n1,2\n", rename=chain)
    assert _read(source, found, ["b", "c"]) == [{"b": [b"1"], "c": [b"2"]}]
    source, found = opened("csv", b"b,c\n1,2\n", rename=chain)
    with pytest.raises(ConfigError, match="there is no column 'a'"):
        source.sample(found, 9)
    with pytest.raises(DataError, match="there is no column 'a'"):
        _read(source, found, ["b", "c"])


def test_a_column_that_json_lines_have_only_late_is_renamed(opened):
    filler = b'{"c": "%s"}\n' % (b"x" * 1000) * (SAMPLE_BYTES // 1000)
    source, found = opened("jsonl", filler + b'{"c": "y", "town": "2"}\n', rename={"town": "city"})
    cities = [value for part in _read(source, found, ["city"], {"city": pa.binary()}) for value in part["city"]]
    assert cities[-1] == b"2" and {*cities[:-1]} == {None}


def test_a_rename_is_part_of_what_ingest_depends_on_and_none_changes_nothing():
    assert "rename" not in SourceConfig(format="csv", path="x").at_ingest()
    assert SourceConfig(format="csv", path="x", rename={"a": "b"}).at_ingest()["rename"] == {"a": "b"}


@pytest.mark.parametrize(("encoding", "text"), [("latin-1", "café"), ("cp1251", "чай"), ("shift_jis", "価格")])
def test_text_is_stored_as_utf8_whatever_the_files_are_written_in(opened, encoding, text):
    data = f"{text},b\n{text},1\n".encode(encoding)
    source, found = opened("csv", data, csv={"encoding": encoding})
    assert _read(source, found, [text]) == [{text: [text.encode()]}]
    assert source.sample(found, 9).table.column_names == [text, "b"]


def test_text_that_is_not_utf8_is_read_as_cp1252_value_by_value_and_reported(opened):
    source, found = opened("csv", b"a,b\ncaf\xe9,1\n\xc3\xa9,2\ncaf\xc3\xa9,3\n\x80,4\n")
    words = ["café", "é", "café", "€"]
    assert _read(source, found, ["a"]) == [{"a": [word.encode() for word in words]}]
    kind = pa.dictionary(pa.int32(), pa.binary())
    (piece,) = source.ranges(found)
    (chunk,) = source.read(piece, ["a"], {"a": kind})
    assert chunk.batch["a"].dictionary.to_pylist() == [word.encode() for word in ("café", "é", "€")]
    assert "not UTF-8" in source.sample(found, 9).notes[0]


def test_names_with_a_header_and_unknown_encodings_are_refused():
    with pytest.raises(ValueError, match="say header: false"):
        CsvConfig(names=("a", "b"))
    with pytest.raises(ValueError, match="iconv -f cp500"):
        CsvConfig(encoding="cp500")
    with pytest.raises(ValueError, match="not an encoding"):
        CsvConfig(encoding="klingon")


def test_sequence_examples_are_refused_rather_than_read_in_part(opened):
    feature = field(field(b"x") + field(field(field(b"\x01"), INTS), b"\x12"))
    lists = field(field(field(b"steps") + field(b"", b"\x12")), b"\x12")
    source, found = opened("examples", b"".join(frame(field(feature) + lists) for _ in range(3)))
    with pytest.raises(DataError, match="SequenceExamples, whose feature_lists cannot be read"):
        source.sample(found, 9)
    (piece,) = source.ranges(found)
    assert all("SequenceExample" in bad.reason for chunk in source.read(piece, ["x"], {}) for bad in chunk.malformed)


def test_digits_that_begin_with_zero_stay_text_in_csv_and_json(opened):
    rows = [b"02139", b"10001", b"94110"] * 10
    for source, found in (
        opened("csv", b"zip,n\n" + b"".join(row + b",5\n" for row in rows)),
        opened("jsonl", b"".join(b'{"zip": "%s", "n": 5}\n' % row for row in rows)),
    ):
        types = source.sample(found, 99).table.schema
        assert types.field("zip").type in (pa.string(), pa.binary()) and types.field("n").type == pa.int64()
