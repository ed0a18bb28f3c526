"""The sample by class: a rare class has as many rows as a common one, and how rows came changes nothing."""

import numpy as np
import pyarrow as pa
import pytest

from headway.schema.columns import LABEL, Column
from headway.statistics.row_sample import FILE_BY_LABEL, MOST_CLASSES, MOST_ROWS, LabelSample
from headway.statistics.split_statistics import SplitStatistics, merge_all

COLUMNS = (Column(name="i", type="int64", nullable=True), Column(name=LABEL, type="int64", nullable=False))


def saved(folder, label, size=7000, columns=COLUMNS):
    statistics = SplitStatistics.create(columns)
    for batch in pa.table({"i": np.arange(len(label)), LABEL: label}).to_batches(max_chunksize=size):
        statistics.update(batch)
    statistics.save(folder)
    return statistics


def counts(table):
    return {v["values"]: v["counts"] for v in table.column(LABEL).value_counts().to_pylist()}


def test_a_rare_class_is_kept_whole_and_a_common_one_in_part(tmp_path):
    label = (np.arange(100_000) % 400 == 7).astype(np.int64)
    statistics = saved(tmp_path / "a", label)
    table = statistics.by_label.table()
    assert counts(table) == {0: MOST_ROWS // 2, 1: 250}
    assert (table["i"].to_numpy() % 400 == 7).astype(int).tolist() == table[LABEL].to_pylist()
    common = table["i"].to_numpy()[table[LABEL].to_numpy() == 0]
    tenths = np.bincount(common // 10_000, minlength=10)
    assert tenths.min() > 150 and tenths.max() < 260  # from everywhere: 205 each but for chance
    saved(tmp_path / "b", label, 100_000)
    assert (tmp_path / "a" / FILE_BY_LABEL).read_bytes() == (tmp_path / "b" / FILE_BY_LABEL).read_bytes()
    assert SplitStatistics.load(tmp_path / "a").by_label.table().equals(table)


def test_pieces_are_merged_and_the_shares_of_classes_shrink_alike(tmp_path):
    label = np.random.default_rng(0).integers(0, 5, 30_000)
    label[:10_000] = label[:10_000] % 2
    folders = []
    for k in range(3):
        saved(tmp_path / str(k), label[k * 10_000 : (k + 1) * 10_000])
        folders.append(tmp_path / str(k))
    forth, back = (merge_all(order, COLUMNS).by_label.table() for order in (folders, folders[::-1]))
    assert counts(forth) == counts(back) == dict.fromkeys(range(5), MOST_ROWS // 5)
    twice = merge_all(folders[:1], COLUMNS)
    twice.merge(merge_all(folders[1:], COLUMNS))
    assert twice.by_label.table().equals(forth)


@pytest.mark.parametrize("where", ["first", "last", "one batch"])
def test_too_many_classes_are_none_for_good(tmp_path, where):
    many, few = np.arange(MOST_CLASSES + 1), np.arange(1000) % 2
    pieces = {"first": [many, few], "last": [few, many], "one batch": [np.concatenate([few, many])]}[where]
    folders = []
    for k, label in enumerate(pieces):
        saved(tmp_path / str(k), label)
        folders.append(tmp_path / str(k))
    merged = merge_all(folders, COLUMNS)
    assert merged.by_label.table() is None and merged.by_label.off
    merged.save(tmp_path / "out")
    assert not (tmp_path / "out" / FILE_BY_LABEL).exists() and SplitStatistics.load(tmp_path / "out").by_label.off
    assert saved(tmp_path / "x", np.concatenate(pieces), size=3).by_label.off


def test_nothing_is_nothing(tmp_path):
    statistics = saved(tmp_path / "a", np.zeros(0, np.int64))
    loaded = SplitStatistics.load(tmp_path / "a")
    assert statistics.by_label.table() is None and not loaded.by_label.off
    loaded.merge(saved(tmp_path / "b", np.arange(10) % 2))
    assert counts(loaded.by_label.table()) == {0: 5, 1: 5}
    assert LabelSample.create(3).table() is None
