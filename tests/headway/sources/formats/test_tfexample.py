"""Classic Examples of other writers: any layout that protobuf allows, every checksum, absent and empty apart."""

import gzip

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import DataError
from headway.records import wire
from headway.records.tfrecord import frame
from headway.sources.formats.tfexample import ExampleBatch

LIST = pa.list_(pa.int64())


def feature(kind, values, packed=True):
    if kind is None:
        return b""
    if kind == "bytes":
        return wire.field(b"".join(wire.field(v) for v in values), wire.BYTES)
    if kind == "float":
        each = [np.float32(v).tobytes() for v in values]
        body = wire.field(b"".join(each)) if packed else b"".join(b"\x0d" + e for e in each)
        return wire.field(body if values else b"", wire.FLOATS)
    each = [wire.varints(np.array([v], np.int64)) for v in values]
    body = wire.field(b"".join(each)) if packed else b"".join(b"\x08" + e for e in each)
    return wire.field(body if values else b"", wire.INTS)


def example(packed=True, **features):
    return wire.example(
        wire.entry(wire.field(name.encode()), feature(kind, values, packed))
        for name, (kind, values) in features.items()
    )


VALUE = st.one_of(
    st.tuples(st.just("int"), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4)),
    st.tuples(st.just("int"), st.lists(st.integers(0, 300), max_size=40)),
)
ROW = st.fixed_dictionaries(
    {},
    optional={
        "i": VALUE,
        "f": st.tuples(st.just("float"), st.lists(st.floats(width=32), max_size=4)),
        "b": st.tuples(st.just("bytes"), st.lists(st.binary(max_size=300), max_size=4)),
        "none": st.just((None, [])),
        "é": st.tuples(st.just("int"), st.just([1])),
    },
)


@given(st.lists(st.tuples(st.booleans(), ROW, st.booleans()), max_size=8))
def test_what_was_written_is_read(rows):
    records = []
    for packed, row, reverse in rows:
        record = example(packed, **(dict(reversed(row.items())) if reverse else row))
        records.append(record)
    batch = ExampleBatch.of(records)
    assert not batch.broken and set(batch.names()) == {name for _, row, _ in rows for name in row}
    for name in ("i", "f", "b", "none", "é", "never"):
        array, misfits = batch.column(name, several=True)
        wanted = [row[name][1] if name in row and row[name][0] else None for _, row, _ in rows]
        assert not misfits and repr(array.to_pylist()) == repr(wanted)


@given(
    st.binary(max_size=60)
    | st.builds(
        lambda r, at, b: (d := example(**r))[: at % (len(d) + 1)] + b, ROW, st.integers(0, 99), st.binary(max_size=3)
    )
)
def test_junk_is_broken_or_read_and_never_a_crash(junk):
    good = example(i=("int", [7]), b=("bytes", [b"x"]))
    batch = ExampleBatch.of([good, junk, good])
    for name in batch.names():
        array, _ = batch.column(name, several=True)
        array.validate(full=True)
        assert len(array) == 3
    assert batch.column("i", several=True)[0].to_pylist()[::2] in ([[7], [7]], [[b"7"], [b"7"]])


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("small", [1, 100, None])
def test_ranges_together_are_the_file(opened, read_all, zipped, small):
    data = b"".join(frame(example(id=("int", [i]), l=("int", list(range(i % 3))))) for i in range(50))
    found = opened("examples", gzip.compress(data) if zipped else data, small=small)
    rows, malformed = read_all(found, {"id": pa.int64(), "l": LIST})
    assert rows == [(i, i, list(range(i % 3))) for i in range(50)] and not malformed
    assert (len(found[0].ranges(found[1])) > 1) == (small is not None and not zipped)


def test_one_value_is_wanted_and_rows_with_more_go(opened, read_all):
    rows = [
        {"x": ("float", [1.5])},
        {"x": ("float", [])},
        {},
        {"x": ("float", [1, 2])},
        {"x": ("int", [3])},
        {"x": (None, [])},
    ]
    found = opened("examples", b"".join(frame(example(**row)) for row in rows) + frame(b"\x0a\x05junk"))
    good, malformed = read_all(found, {"x": pa.float64(), "never": pa.float64()})
    assert good == [(0, b"1.5", None), (1, None, None), (2, None, None), (4, b"3", None), (5, None, None)]
    assert [(row, column) for row, column, _ in malformed] == [(3, "x"), (6, None)]


def test_a_prefix_marks_lists(opened):
    one = frame(example(x=("float", [1]), l=("int", [1]), s=("bytes", [b"a"])))
    two = frame(example(l=("int", [])))
    source, files = opened("examples", one, one + two)
    prefix = source.sample(files, 100)
    assert {name: str(prefix.table.schema.field(name).type) for name in prefix.table.column_names} == {
        "l": "list<item: int64>", "s": "binary", "x": "float",
    }  # fmt: skip


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("damage", ["length", "data", "cut", "cut in a length"])
def test_damage_names_the_file_and_the_byte(opened, read_all, zipped, damage):
    one = frame(example(id=("int", [1])))
    data = bytearray(one * 10)
    at = len(one) * 7
    if damage.startswith("cut"):
        data = data[: at + (15 if damage == "cut" else 5)]
    else:
        data[at + (3 if damage == "length" else 14)] ^= 1
    raw = gzip.compress(bytes(data)) if zipped else bytes(data)
    with pytest.raises(DataError, match=rf"record at byte {at}\)") as error:
        read_all(opened("examples", raw, small=50), {"id": pa.int64()})
    assert error.value.where.endswith("0.tfrecord")


def test_a_gzip_file_that_is_cut_off_is_named(opened, read_all):
    rng = np.random.default_rng(0)
    data = b"".join(frame(example(b=("bytes", [rng.bytes(99)]))) for _ in range(2000))
    with pytest.raises(DataError, match="not a whole gzip file"):
        read_all(opened("examples", gzip.compress(data)[:-9]), {"b": pa.binary()})
