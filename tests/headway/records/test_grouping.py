"""Where records end: at so many rows or bytes, whatever batches the rows came in, and never within a group."""

from itertools import accumulate, pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import DataError
from headway.records.tfrecord import RowGrouper
from tests.properties import examples


def pieces(made, batch, cuts):
    """The records that a grouper makes of a batch that comes in pieces."""
    found, at = [], 0
    stream = []
    for cut in sorted({min(c, batch.num_rows) for c in cuts} | {batch.num_rows}):
        stream += made.add(batch.slice(at, cut - at))
        at = cut
    for whole, sizes in [*stream, *made.finish()]:
        ends = list(accumulate(sizes, initial=0))
        assert ends[-1] == whole.num_rows
        found += [whole.slice(end, n) for end, n in zip(ends, sizes, strict=False)]
    return found


CELLS = st.one_of(st.none(), st.binary(max_size=40))


@settings(deadline=None)
@given(st.lists(CELLS, max_size=30), st.lists(st.integers(0, 30), max_size=5), st.integers(1, 9), st.integers(1, 120))
def test_cuts_do_not_depend_on_batches_and_fill_records_as_far_as_they_may(cells, cuts, rows, size):
    batch = pa.RecordBatch.from_pydict(
        {"c": pa.array(cells, pa.binary()), "n": pa.array(range(len(cells)), pa.int64())}
    )
    found = pieces(RowGrouper(rows, bytes=size), batch, cuts)
    assert [p.num_rows for p in found] == [p.num_rows for p in pieces(RowGrouper(rows, bytes=size), batch, [])]
    assert [v for p in found for v in p["n"].to_pylist()] == list(range(len(cells)))

    def bytes_of(piece):
        return sum(len(v or b"") + 10 for v in piece["c"].to_pylist())

    for this, after in zip(found, [*found[1:], None][: len(found)], strict=True):
        assert 1 <= this.num_rows <= rows
        assert bytes_of(this) <= size or this.num_rows == 1
        if after is not None and this.num_rows < rows:
            assert bytes_of(this) + bytes_of(after.slice(0, 1)) > size


def test_plain_numbers_fill_whole_records_and_wide_rows_do_not():
    narrow = pa.RecordBatch.from_pydict({f"c{i}": pa.array(range(9000), pa.int64()) for i in range(11)})
    assert [p.num_rows for p in pieces(RowGrouper(4096, bytes=1 << 20), narrow, [5000])] == [4096, 4096, 808]
    wide = pa.RecordBatch.from_pydict({"v": pa.array([[1.0] * 1024] * 700, pa.list_(pa.float32(), 1024))})
    assert [p.num_rows for p in pieces(RowGrouper(4096, bytes=1 << 20), wide, [1, 300])] == [256, 256, 188]
    lists = pa.RecordBatch.from_pydict({"v": pa.array([[b"x" * 1000] * 100, [], None] * 15, pa.list_(pa.binary()))})
    assert len(pieces(RowGrouper(4096, bytes=1 << 20), lists, [])) == 2


# --- groups

IDS = st.one_of(st.none(), st.integers(0, 3))


def table(ids, cells, kind):
    text = pa.array([None if i is None else f"q{i}" for i in ids], pa.string()).cast(pa.binary())
    group = {
        "int": pa.array(ids, pa.int64()),
        "float": pa.array(ids, pa.float32()),
        "bytes": text,
        "dictionary": text.dictionary_encode(),
    }[kind]
    columns = {"g": group, "c": pa.array(cells, pa.binary()), "n": pa.array(range(len(ids)), pa.int64())}
    return pa.RecordBatch.from_pydict(columns)


@examples(300)
@given(st.data(), st.sampled_from(["int", "float", "bytes", "dictionary"]))
def test_a_record_holds_as_many_whole_groups_as_it_may(data, kind):
    runs = data.draw(st.lists(st.tuples(IDS, st.integers(1, 7)), max_size=14))
    ids = [value for value, count in runs for _ in range(count)]
    cells = data.draw(st.lists(st.binary(max_size=30), min_size=len(ids), max_size=len(ids)))
    cuts = data.draw(st.lists(st.integers(0, 60), max_size=6))
    rows, size = data.draw(st.integers(1, 12)), data.draw(st.sampled_from([60, 200, 10_000]))
    batch = table(ids, cells, kind)
    found = pieces(RowGrouper(rows, "g", size), batch, cuts)
    assert [v for p in found for v in p["n"].to_pylist()] == list(range(len(ids)))
    assert [p.num_rows for p in found] == [p.num_rows for p in pieces(RowGrouper(rows, "g", size), batch, [])]
    # by the definition, group by group: runs of one id; a null is one by itself
    starts = [i for i in range(len(ids)) if not i or ids[i] is None or ids[i] != ids[i - 1]]
    whole = [b - a for a, b in pairwise([*starts, len(ids)])]
    begins = list(accumulate(whole, initial=0))
    cost = [len(cell) + 2 + 8 + {"int": 8, "float": 4, "bytes": 4, "dictionary": 2}[kind] for cell in cells]
    if kind == "bytes":
        cost = [c - (2 if i is None else 0) for c, i in zip(cost, ids, strict=True)]
    expected, held = [], 0
    for begin, count in zip(begins, whole, strict=False):
        taken = range(begin - held, begin + count)
        if held and (held + count > rows or sum(cost[i] for i in taken) > size):
            expected.append(held)
            held = 0
        held += count
    assert [p.num_rows for p in found] == expected + [held] * bool(held)


@pytest.mark.parametrize("cuts", [[], [1], [5000], [4095, 4096, 4097], list(range(0, 20_000, 77))])
def test_groups_of_one_row_are_cut_as_rows_are(cuts):
    ids = list(range(20_000))
    batch = table(ids, [b"x" * (i % 900) for i in ids], "int")
    ours, plain = (pieces(made, batch, cuts) for made in (RowGrouper(4096, "g"), RowGrouper(4096)))
    assert [p.num_rows for p in ours] == [p.num_rows for p in plain] and len(ours) > 5
    assert all(a.equals(b) for a, b in zip(ours, plain, strict=True))


def test_dictionaries_of_several_batches_are_one_again():
    batches = [table(ids, [b""] * len(ids), "dictionary") for ids in ([0, 0], [0, 1], [1, 2])]
    made, found = RowGrouper(3, "g"), []
    for batch in batches:
        found += made.add(batch)
    found += made.finish()
    wanted = [[b"q0", b"q0", b"q0"], [b"q1", b"q1", b"q2"]]
    assert [piece["g"].dictionary_decode().to_pylist() for piece, _ in found] == wanted


def test_a_group_beyond_all_bounds_is_named():
    made = RowGrouper(8, "g", bound=1 << 20)
    batch = table([1] * 3000, [b"x" * 200] * 3000, "int")
    assert list(made.add(batch)) == []
    with pytest.raises(DataError, match="the group 1 takes more than 1 MiB"):
        list(made.add(batch))
