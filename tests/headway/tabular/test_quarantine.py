"""Rejected values as people read them: lists and objects as JSON, text as it is."""

import datetime
import decimal

import pyarrow as pa
import pytest

from headway.schema.columns import Column
from headway.sources.formats.jsonl import as_json, decode
from headway.tabular.coerce import coerce
from headway.tabular.quarantine import CUT, rejected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a 'b'", "a 'b'"),
        (b"\xffa", "\\xffa"),
        (1.5, "1.5"),
        ([1, None, 2.5], "[1, null, 2.5]"),
        ([b"a", "é"], '["a", "é"]'),
        ([datetime.date(2013, 1, 1), decimal.Decimal("1.10")], '["2013-01-01", "1.10"]'),
        ({"a": [True]}, '{"a": [true]}'),
        (None, None),
    ],
)
def test_a_value_is_shown_as_json_where_it_is_more_than_one(value, text):
    assert rejected([0], "c", [value], "why").column("value").to_pylist() == [text]


def test_a_long_one_is_cut():
    assert len(rejected([0], "c", [list(range(1000))], "why").column("value")[0].as_py()) == CUT


def test_the_list_of_a_rejected_row_is_json():
    batch = pa.record_batch({"l": [["1", "x"], ["2"]]})
    found = coerce(batch, [Column(name="l", type="int64", nullable=True, shape=(None,))]).rejected
    assert found.column("value").to_pylist() == ['["1", "x"]']


@pytest.mark.parametrize("line", ['{"a": [1, 2.50, true, null, "x"]}', '[1e3, {"é": {}}]', "[]"])
def test_json_lines_are_shown_with_numbers_as_they_were_written(line):
    assert as_json(decode(line.encode())) == line


def test_a_text_by_itself_is_shown_without_quotes():
    assert as_json(decode(b'"x"')) == "x" and as_json(decode(b"1.0")) == "1.0"
