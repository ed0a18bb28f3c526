"""JSON in any layout is read as lines of one object each, wherever the blocks are cut."""

import gzip
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import DataError
from headway.sources.json_objects import ObjectLines, json_form
from tests.properties import examples

INT, TEXT = pa.int64(), pa.binary()
VALUES = st.recursive(
    st.none() | st.integers() | st.text('ab"\\{}[],:\n é', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('k"]\\', max_size=2), inner, max_size=3),
    max_leaves=6,
)
ROWS = st.lists(
    st.dictionaries(st.text('a"{', min_size=1, max_size=2), VALUES, min_size=1, max_size=3), min_size=1, max_size=4
)


def written(rows, layout):
    if layout == "array":
        return json.dumps(rows).encode()
    if layout == "pretty":
        return json.dumps(rows, indent=2).encode() + b"\n"
    if layout == "one per line":
        return b"[\r\n" + b",\r\n".join(json.dumps(row).encode() for row in rows) + b"\r\n]\r\n"
    return b"\n\n".join(json.dumps(row, indent=1).encode() for row in rows)


@examples(150)
@given(ROWS, st.sampled_from(["array", "pretty", "one per line", "objects"]), st.integers(1, 40))
def test_objects_become_lines_wherever_the_text_is_cut(rows, layout, size):
    data = written(rows, layout)
    lines = ObjectLines("objects" if layout == "objects" else "array", "a.json")
    made = b"".join(lines.feed(data[at : at + size]) for at in range(0, len(data), size))
    lines.finish()
    assert [json.loads(line) for line in made.split(b"\n") if line] == rows
    assert made.count(b"\n") in (len(rows), len(rows) - 1)  # an empty line would be read as a bad one


@pytest.mark.parametrize(
    ("head", "form"),
    [
        (b'[{"a": 1}]', "array"),
        (b'\xef\xbb\xbf \n[\n{"a": 1}]', "array"),
        (b'{\n "a": 1\n}', "objects"),
        (b'{ "a": [\n 1\n]}', "objects"),
        (b'{"a": 1}\n{"a": 2}', None),
        (b'{"a": \n{"a": 2}\n', None),  # a broken line among good ones
        (b'{"a": [[1], {"b": 2}]}', None),
        (b"a,b\n1,2\n", None),
    ],
)
def test_the_beginning_says_the_layout(head, form):
    assert json_form(head) == form


@pytest.mark.parametrize("zipped", [False, True])
def test_an_array_is_read_as_lines_are(opened, read_all, zipped):
    data = json.dumps([{"user": {"id": i}, "s": f"é,{i}"} for i in range(300)], indent=2).encode()
    found = opened("jsonl", gzip.compress(data) if zipped else data, names=("a.json.gz" if zipped else "a.json",))
    assert read_all(found, {"user.id": INT, "s": TEXT}) == ([(i, i, f"é,{i}".encode()) for i in range(300)], [])
    assert found[0].prefix(found[1], 1000).table.num_rows == 300


def test_an_element_that_is_no_object_costs_itself_alone(opened, read_all):
    rows, bad = read_all(opened("jsonl", b'[{"a": 1}, 7, {"a": 2}, [3], {"a": x}, {"a": 4}]'), {"a": INT})
    assert rows == [(0, 1), (2, 2), (5, 4)] and [row for row, *_ in bad] == [1, 3, 4]


@pytest.mark.parametrize("data", [b'[null, {"a": 1}, null, {"a": 2}]', b'null\n{"a": 1}\n null\n{"a": 2}\n'])
def test_null_is_no_row_wherever_it_stands(opened, read_all, data):
    found = opened("jsonl", data)  # Arrow crashes on it in the first line, and makes a row of nulls of it in others
    rows, bad = read_all(found, {"a": INT})
    assert rows == [(1, 1), (3, 2)] and [row for row, *_ in bad] == [0, 2]
    assert found[0].prefix(found[1], 10).table.column("a").to_pylist() == [1, 2]


@pytest.mark.parametrize("data", [b'[{"a": 1}, {"a": 2}', b'[{"a": 1}, {"a": "x', b'{\n"a": 1\n'])
def test_a_text_that_is_cut_off_is_an_error(opened, read_all, data):
    with pytest.raises(DataError, match="cut off: it ends after"):
        read_all(opened("jsonl", data), {"a": INT})
