"""The sample of whole rows: bounded, repeatable, uniform, and rows stay together."""

import numpy as np
import pyarrow as pa

from headway.statistics.row_sample import CELLS, LEAST_ROWS, MOST_ROWS, RowSample, hashed_texts, rows_for
from headway.tabular.splits import column_hash


def _batches(rows, size=10_000):
    table = pa.table(
        {
            "i": np.arange(rows),
            "double": (np.arange(rows) * 2).astype(np.float32),
            "s": pa.array([None if i % 3 == 0 else b"%d" % (i % 7) for i in range(rows)], pa.binary()),
        }
    )
    return table.to_batches(max_chunksize=size)


def _sample(batches, rows=500):
    sample = RowSample(rows)
    for batch in batches:
        priority, chosen = sample.choose(batch.num_rows)
        sample.add(priority[chosen], hashed_texts(batch, chosen))
    return sample


def test_rows_stay_together_and_are_drawn_from_everywhere():
    table = _sample(_batches(100_000)).table()
    i = table["i"].to_numpy()
    assert len(np.unique(i)) == len(table) == 500
    assert (table["double"].to_numpy() == i * 2).all()
    assert (table["s"].is_null().to_numpy() == (i % 3 == 0)).all()
    assert table["s"].type == pa.uint64()
    tenths = np.bincount(i // 10_000, minlength=10)
    assert tenths.min() > 25 and tenths.max() < 80  # 50 each but for chance


def test_each_text_and_list_is_kept_as_a_hash_in_its_own_column():
    batch = pa.record_batch(
        {
            "a": pa.array([b"%d" % (i % 5) for i in range(200)], pa.binary()),
            "list": pa.array([[i % 3, i % 4] for i in range(200)], pa.list_(pa.int64())),
            "i": np.arange(200),
            "b": pa.array([None if i % 9 == 0 else b"%d" % (i % 7) for i in range(200)], pa.binary()),
        }
    )
    table = _sample([batch]).table()
    for name in ("a", "list", "b"):
        kept = table[name].combine_chunks()
        hashed = column_hash(batch[name])[table["i"].to_numpy()]
        assert (kept.fill_null(0).to_numpy() == np.where(kept.is_null(), 0, hashed)).all(), name
        assert kept.null_count == batch[name].null_count


def test_how_rows_came_in_batches_changes_nothing():
    assert _sample(_batches(30_000, 1000)).table().equals(_sample(_batches(30_000, 30_000)).table())


def test_few_rows_are_all_kept_and_none_are_none():
    assert sorted(_sample(_batches(100)).table()["i"].to_pylist()) == list(range(100))
    assert RowSample(5).table() is None


def test_pieces_are_put_together_as_a_sample_of_the_whole(tmp_path):
    pieces = [_sample(_batches(20_000)[k : k + 1]) for k in range(2)]
    pieces[0].merge(pieces[1])
    i = pieces[0].table()["i"].to_numpy()
    assert len(i) == 500 and 200 < (i < 10_000).sum() < 300
    pieces[0].save(tmp_path / "sample.arrow")
    back = RowSample.load(tmp_path / "sample.arrow", 3)
    assert back.table().equals(pieces[0].table())
    back.merge(RowSample(500))
    assert back.table().equals(pieces[0].table())
    assert RowSample.load(tmp_path / "nothing", 3).table() is None


def test_a_wide_table_keeps_fewer_rows():
    assert rows_for(11) == MOST_ROWS and rows_for(1000) == CELLS // 1000 < MOST_ROWS and rows_for(10**6) == LEAST_ROWS
