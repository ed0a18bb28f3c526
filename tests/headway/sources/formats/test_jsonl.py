"""JSON lines: a bad line costs itself alone; what becomes of a value hangs on neither its neighbours nor the cuts."""

import gzip
import json

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from headway.errors import ConfigError, DataError
from headway.schema.columns import Column
from headway.schema_inference.column_types import infer
from headway.tabular.coerce import coerce
from tests.properties import examples

INT, REAL, TEXT, LIST = pa.int64(), pa.float64(), pa.binary(), pa.list_(pa.int64())


def lines(*values):
    return b"".join(v if isinstance(v, bytes) else json.dumps(v).encode() + b"\n" for v in values)


@pytest.mark.parametrize("small", [1, 40, None])
@pytest.mark.parametrize("zipped", [False, True])
def test_ranges_together_are_the_file(opened, read_all, small, zipped):
    data = lines(*({"id": i, "s": f"é{i}"} for i in range(200)))
    names = ("a.jsonl.gz",) if zipped else ("a.jsonl",)
    found = opened("jsonl", gzip.compress(data) if zipped else data, names=names, small=small)
    wanted = [(i, i, f"é{i}".encode()) for i in range(200)]
    assert read_all(found, {"id": INT, "s": TEXT}) == (wanted, [])
    expected = 1 if zipped or small is None else 200 if small == 1 else pytest.approx(70, abs=40)
    assert len(found[0].ranges(found[1])) == expected


def test_lists_of_lists_and_of_objects_are_left_out_with_a_note(opened):
    source, found = opened("jsonl", lines(*[{"ll": [[1]], "lo": [{"a": 1}]}] * 3), lines({"ll": [["x"]], "lo": []}))
    prefix = source.sample(found, 100)
    assert prefix.table.num_rows == 4
    schema, notes = infer(prefix, {}, only=False, needed=frozenset(), where="x")
    assert not schema.columns and [(note.column, note.left_out) for note in notes] == [("ll", True), ("lo", True)]
    with pytest.raises(ConfigError, match="'ll' cannot be used: its type"):
        infer(prefix, {}, only=False, needed=frozenset({"ll"}), where="x")


def test_nested_objects_are_columns_of_their_leaves(opened, read_all):
    found = opened("jsonl", lines({"a": {"b": 1, "c": {"d": "x"}}}, {"a": None}, {"a": {}}, {"z": True}))
    assert found[0].names(found[1][0]) == [*["a.b", "a.c.d", "a", "z"][:2], "z"]
    rows, _ = read_all(found, {"a.b": INT, "a.c.d": TEXT, "z": INT})
    assert rows == [(0, 1, b"x", None), (1, None, None, None), (2, None, None, None), (3, None, None, True)]


def test_bad_lines_and_cells_go_alone_and_say_where(opened, read_all):
    good = {"id": 1, "l": [1], "o": {"p": 1}}
    bad = [
        b"{broken\n",
        b"[1]\n",
        b'{"id":1}{"id":2}\n',
        b'{"id":1,"id":2}\n',
        {"id": [1]},
        {"l": 3},
        {"o": 5},
        b'{"id":1',
    ]
    data, offsets = b"", []
    for value in bad:
        data += lines(*[good] * 30)
        offsets.append(len(data))
        data += lines(value)
    rows, malformed = read_all(opened("jsonl", data), {"id": INT, "l": LIST, "o.p": INT})
    assert [row[0] for row in rows] == [i for i in range(31 * 8) if i % 31 != 30]
    assert [row for row in rows if row[1:] != (1, [1], 1)] == []
    wanted = [(31 * i + 30, column) for i, column in enumerate([None, None, None, None, "id", "l", "o.p", None])]
    assert [(at, column) for at, column, _ in malformed] == wanted
    for (_, column, reason), start in zip(malformed, offsets, strict=True):
        place = int(reason.rsplit(" ", 1)[1])
        assert place == start if column else start <= place <= start + 20, reason


VALUES = [
    "1", "2.0", "-0", "1e3", "1e400", "NaN", "true", "null", '"x"', '"7"', '""', "12345678901234567890", '"\\u00e9"', "[1]", "{}",
]  # fmt: skip


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(VALUES), min_size=1, max_size=12))
@pytest.mark.parametrize(("kind", "stored"), [(INT, "int64"), (REAL, "float32"), (TEXT, "bytes")])
def test_a_values_fate_does_not_hang_on_its_neighbours(opened, kind, stored, values):
    def fate(texts):
        source, found = opened("jsonl", "".join(f'{{"a":{text}}}\n' for text in texts).encode())
        ends = {}
        for chunk in source.read(source.ranges(found)[0], ["a"], {"a": kind}):
            done = coerce(chunk.batch, [Column(name="a", type=stored, nullable=True)])
            kept = range(chunk.batch.num_rows) if done.fitting_rows is None else done.fitting_rows.tolist()
            at = chunk.positions()
            ends |= {int(at[i]): repr(v) for i, v in zip(kept, done.batch.column(0).to_pylist(), strict=True)}
        return [ends.get(i, "rejected") for i in range(len(texts))]

    alone = {text: fate([text])[0] for text in set(values)}
    together = fate(values)
    if stored == "bytes":  # "-0" is the one number that a column of whole numbers writes in another way
        together = ["b'-0'" if v == "-0" else t for v, t in zip(values, together, strict=True)]
        alone["-0"] = "b'-0'"
    assert together == [alone[value] for value in values]


def test_a_prefix_finds_types_that_hold_for_the_sample(opened):
    data = lines(
        {"i": 1, "f": 1, "b": True, "s": "2013-01-01", "m": 1, "l": [1]}, {"f": 1.5, "m": "x", "l": [0.5], "e": None}
    )
    source, found = opened("jsonl", data)
    kinds = dict(
        zip(source.sample(found, 10).table.column_names, source.sample(found, 10).table.schema.types, strict=True)
    )
    assert {name: str(kind) for name, kind in kinds.items()} == {
        "i": "int64", "f": "double", "b": "bool", "s": "string", "m": "binary", "l": "list<item: double>", "e": "null",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"[[1, 2], [3, 4]]", "its rows are lists"),
        (b'[{"a": 1}, {"a":', "is one array of objects"),
        (b"PK\x03\x04....", "zip"),
        (b"PAR1....", "format: parquet"),
        (gzip.compress(lines(*({"a": i} for i in range(9999))), mtime=0)[:-20], "not a whole gzip file, after byte"),
    ],
)
def test_files_that_are_no_json_lines_say_what_to_do(opened, read_all, data, said):
    with pytest.raises(DataError, match=said) as error:
        read_all(opened("jsonl", data), {"a": INT})
    assert error.value.where.endswith("0.jsonl") and error.value.fix


def test_a_file_that_was_cut_meanwhile_says_where_it_ends(opened, tmp_path):
    source, found = opened("jsonl", lines(*({"a": i} for i in range(100))), small=100)
    pieces = source.ranges(found)
    (tmp_path / "raw/0.jsonl").write_bytes(b'{"a":1}\n')
    with pytest.raises(DataError, match=r"0\.jsonl: ends at byte"):
        list(source.read(pieces[-1], ["a"], {"a": INT}))


def test_digits_beyond_a_double_are_no_infinity(opened, read_all):
    lines = b'{"x": 1e400}\n{"x": 0.5}\n{"x": "inf"}\n'
    rows, malformed = read_all(opened("jsonl", lines), {"x": pa.float64()})
    assert (rows, malformed) == ([(0, b"1e400"), (1, b"0.5"), (2, b"inf")], [])
