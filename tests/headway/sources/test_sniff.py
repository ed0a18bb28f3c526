"""A file that was taken for another format is called by its name, and the fix is the format it has."""

import gzip

import pyarrow as pa
import pytest

from headway.errors import ConfigError, DataError
from tests.headway.sources.conftest import in_format

FORMATS = ["csv", "jsonl", "parquet", "arrow", "images", "examples"]
TABLE = pa.table({"a": [1, 2], "y": ["x", "z"]})
ENDINGS = {"images": "png", "examples": "tfrecord"}


@pytest.mark.parametrize("wanted", FORMATS)
@pytest.mark.parametrize("given", FORMATS)
def test_each_format_given_each_other_names_both_and_the_fix(opened, wanted, given):
    source, found = opened(wanted, in_format(given, TABLE), names=(f"a.{ENDINGS.get(wanted, wanted)}",))
    if wanted == given:
        source.sample(found, 10)
        return
    with pytest.raises(DataError) as error:
        source.sample(found, 10)
    assert error.value.where.rstrip(":1").endswith(f"a.{ENDINGS.get(wanted, wanted)}")
    assert f"format: {given}" in error.value.fix and "write the file again" not in error.value.fix


@pytest.mark.parametrize(
    ("data", "where", "said", "fix"),
    [
        (b"\n\na,b\n1,2\n", ":3", "no line is a JSON object, beginning with 'a,b'", "format: csv"),
        (b"[[1, 2]]", "0.jsonl", "its rows are lists", "@csv"),
        (b"[1, 2]", "0.jsonl", "its rows are lists", "@csv"),
        (b"[{}]", "0.jsonl", "is one array of objects", "jq -c '.[]'"),
        (b'{\n "a": 1\n}', "0.jsonl", "has objects over several lines", "jq -c '.'"),
        (b'{"ok": 1, "data": [{"a": 1}, {"a": 2}]}', "0.jsonl", "rows seem to be under 'data'", "jq -c '.\"data\"[]'"),
        (b'{"a": {"0": 1, "1": 2}, "b": {"0": 3, "1": 4}}', "0.jsonl", "a column per key", "orient='records'"),
        (b"\n\n", "0.jsonl", "empty lines", "bring"),
        (b"\n{}\n{}\n", "0.jsonl:2", "its objects hold no keys", "bring"),
        (b'{"a": 1, "a": 2}\n' * 3, "0.jsonl:1", "the key 'a' stands twice", "mend"),
        (b"% iris\n\n@RELATION iris\n@DATA\n1,2\n", "0.jsonl", "ARFF", "CSV"),
        (gzip.compress(b"a,b\n", mtime=0), ":1", "beginning with 'a,b'", "format: csv"),
        (b"<html><body>404</body></html>", ":1", "beginning with '<html>", "format: csv"),
    ],
)
def test_json_lines_without_any_say_which_line_it_is(opened, data, where, said, fix):
    names = ("0.jsonl.gz",) if data.startswith(b"\x1f") else ()
    source, found = opened("jsonl", data, names=names)
    with pytest.raises(DataError) as error:
        source.sample(found, 10)
    assert error.value.where.endswith(where) and said in error.value.problem and fix in error.value.fix


def test_a_line_of_a_table_may_begin_as_json_does(opened):
    source, found = opened("csv", b"{a},b\n1,2\n")
    assert source.names(found[0]) == ["{a}", "b"]


@pytest.mark.parametrize(
    ("format", "endings"), [("images", ".jpg, .jpeg, .png"), ("csv", ".csv; also .gz, .bz2, .zst, .zip")]
)
def test_a_folder_without_such_files_says_what_it_holds(opened, format, endings):
    with pytest.raises(ConfigError) as error:
        opened(format, b"x", b"y", names=("a.txt", "b.txt"))
    assert endings in error.value.problem and "it holds a.txt and 1 more" in error.value.problem


def test_broken_images_among_good_ones_stay_for_the_quarantine(opened):
    source, found = opened("images", b"text", in_format("images", TABLE), names=("a.png", "b.png"))
    assert source.sample(found, 10).table.num_rows == 2
