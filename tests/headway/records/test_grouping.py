"""Where records end: at so many rows or bytes, whatever batches the rows came in."""

from itertools import accumulate

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.records.grouping import RowGrouper


def pieces(batch, cuts, rows, size):
    grouper, groups, at = RowGrouper(rows, size), [], 0
    for cut in sorted({min(c, batch.num_rows) for c in cuts} | {batch.num_rows}):
        groups += grouper.add(batch.slice(at, cut - at))
        at = cut
    found = []
    for whole, sizes in [*groups, *grouper.rest()]:
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
    found = pieces(batch, cuts, rows, size)
    assert [p.num_rows for p in found] == [p.num_rows for p in pieces(batch, [], rows, size)]
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
    assert [p.num_rows for p in pieces(narrow, [5000], 4096, 1 << 20)] == [4096, 4096, 808]
    wide = pa.RecordBatch.from_pydict({"v": pa.array([[1.0] * 1024] * 700, pa.list_(pa.float32(), 1024))})
    assert [p.num_rows for p in pieces(wide, [1, 300], 4096, 1 << 20)] == [256, 256, 188]
    lists = pa.RecordBatch.from_pydict({"v": pa.array([[b"x" * 1000] * 100, [], None] * 15, pa.list_(pa.binary()))})
    assert len(pieces(lists, [], 4096, 1 << 20)) == 2
