"""A split's statistics: updated, merged, kept as a folder, summed up."""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headway.errors import DataError, StoreError
from headway.schema.columns import Column
from headway.statistics.split_statistics import COUNTS_NAME, JSON_NAME, SAMPLE_NAME, SplitStatistics, merge_all, summary
from tests.headway.statistics.made import statistics_of

GOLDEN = Path(__file__).parent / "golden" / "statistics.json"


def _digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def made():
    """(columns, batches) in stored types; of one column there are too many values to be counted."""
    random, rows = np.random.default_rng(0), 80_000
    arrays = {
        "month": random.integers(1, 13, rows),
        "row_id": np.arange(rows),
        "delay": np.round(random.normal(size=rows) * 30).astype(np.float32),
        "carrier": pa.array([b"AA", b"UA", None]).dictionary_encode().take(pa.array(random.integers(0, 3, rows))),
    }
    kinds = {"month": "int64", "row_id": "int64", "delay": "float32", "carrier": "bytes"}
    columns = [Column(name=name, type=kind, nullable=True) for name, kind in kinds.items()]
    return columns, pa.table(arrays).to_batches(max_chunksize=32_768)


@pytest.fixture(scope="module")
def whole(made):
    columns, batches = made
    statistics = statistics_of(columns, *batches)
    assert not statistics.columns["row_id"].complete
    return statistics


def test_a_folder_reads_back_as_it_was(whole, tmp_path):
    whole.save(tmp_path / "a")
    back = SplitStatistics.load(tmp_path / "a")
    back.save(tmp_path / "b")
    assert _digests(tmp_path / "a") == _digests(tmp_path / "b")
    assert summary(back) == summary(whole)
    assert list(_digests(tmp_path / "a")) == [COUNTS_NAME, SAMPLE_NAME, JSON_NAME]


def test_some_columns_are_read_as_all_are(whole, tmp_path):
    whole.save(tmp_path / "train")
    everything = SplitStatistics.load(tmp_path / "train")
    names = [*everything.columns][1::2]
    some = SplitStatistics.load(tmp_path / "train", only=names)
    assert [*some.columns] == names and some.rows == everything.rows
    for name in names:
        assert some.columns[name].to_json() == everything.columns[name].to_json()
        if some.columns[name].complete:
            assert some.columns[name].top(50) == everything.columns[name].top(50)


def test_the_same_pieces_in_the_same_order_give_the_same_bytes(made, tmp_path):
    columns, batches = made
    for i, batch in enumerate(batches):
        statistics_of(columns, batch).save(tmp_path / f"part{i}")
    parts = [tmp_path / f"part{i}" for i in range(len(batches))]
    merge_all(parts, columns).save(tmp_path / "once")
    in_memory = SplitStatistics.create(columns)
    for batch in batches:
        in_memory.merge(statistics_of(columns, batch))
    in_memory.save(tmp_path / "again")
    assert _digests(tmp_path / "once") == _digests(tmp_path / "again")


def test_no_rows_at_all(columns, tmp_path):
    empty = SplitStatistics.create(columns)
    empty.save(tmp_path / "empty")
    back = SplitStatistics.load(tmp_path / "empty")
    back.merge(empty)
    assert back.rows == 0 and summary(back) == summary(empty)
    assert merge_all([], columns).rows == 0


def test_golden_bytes(small, tmp_path):
    """Other bytes mean raising VERSION of ingest and of statistics, then `make golden`."""
    small.save(tmp_path)
    text = (tmp_path / JSON_NAME).read_text()
    if os.environ.get("HEADWAY_RENEW_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def test_a_summary_is_plain_json(small, whole):
    rows = summary(small)
    assert rows == json.loads(json.dumps(rows, allow_nan=False))
    number, text = rows[1], rows[2]
    assert (number["column"], number["rows"], number["missing"], number["missing_share"]) == ("x", 8, 1, 0.125)
    assert (number["nan"], number["infinite"], number["zeros"], number["median"]) == (1, 2, 2, 0.0)
    assert (text["distinct"], text["shortest"], text["longest"]) == (4, 0, 7)
    assert text["top"] == [["b", 3], ["a", 2], ["", 1], ["Zürich", 1]]
    assert "top" not in summary(whole)[1]  # too many row numbers to count
    nothing = summary(SplitStatistics.create([Column(name="x", type="float32", nullable=True)]))
    assert nothing[0]["mean"] is None and nothing[0]["median"] is None and nothing[0]["missing_share"] == 0.0


def test_other_columns_do_not_merge(small, columns):
    fewer = SplitStatistics.create(columns[:2])
    with pytest.raises(DataError, match="cannot be merged: s"):
        small.merge(fewer)
    retyped = SplitStatistics.create([Column(name="n", type="float32", nullable=True), *columns[1:]])
    with pytest.raises(DataError, match="cannot be merged: n"):
        small.merge(retyped)
    turned = SplitStatistics.create(columns[::-1])
    with pytest.raises(DataError, match="their order"):
        small.merge(turned)
    assert small.rows == 8


def _damage(name, change):
    def damage(folder):
        path = folder / name
        path.write_bytes(change(path.read_bytes()))

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / JSON_NAME).unlink(),
        lambda folder: (folder / COUNTS_NAME).unlink(),
        _damage(JSON_NAME, lambda data: data[:100]),
        _damage(JSON_NAME, lambda data: b"[]"),
        _damage(JSON_NAME, lambda data: b"{}"),
        _damage(COUNTS_NAME, lambda data: data[: len(data) // 2]),
        _damage(COUNTS_NAME, lambda data: b""),
    ],
)
def test_a_damaged_folder_is_named(small, tmp_path, damage):
    small.save(tmp_path)
    damage(tmp_path)
    with pytest.raises(DataError, match="cannot be read") as caught:
        SplitStatistics.load(tmp_path)
    assert caught.value.where == str(tmp_path)


def test_another_format_is_refused(small, tmp_path):
    small.save(tmp_path)
    value = json.loads((tmp_path / JSON_NAME).read_text()) | {"format": 99}
    (tmp_path / JSON_NAME).write_text(json.dumps(value))
    with pytest.raises(StoreError, match="in format 99"):
        SplitStatistics.load(tmp_path)


@pytest.mark.parametrize("columns", [(), ("numbers",), ("numbers", "lists", "words")])
def test_the_file_is_json_as_indented(columns, tmp_path):
    kinds = {"numbers": ("int64", ()), "lists": ("float32", (None,)), "words": ("bytes", ())}
    made = SplitStatistics.create([Column(name=n, type=kinds[n][0], shape=kinds[n][1], nullable=True) for n in columns])
    arrays = {
        "numbers": pa.array(np.arange(70_000) * 977),  # so many that sketches take their place
        "lists": pa.array([[0.5]] * 70_000, pa.list_(pa.float32())),
        "words": pa.array([b"\xc3\xbc"] * 70_000),
    }
    if columns:
        made.update(pa.record_batch([arrays[name] for name in columns], names=list(columns)))
    made.save(tmp_path)
    text = (tmp_path / "statistics.json").read_text()
    assert text == json.dumps(json.loads(text), indent=1) + "\n"
