"""Shards of classic Examples come to training and evaluation in one order, from any step on; damage is named."""

import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headway.errors import DataError
from headway.records.spec import packed
from headway.records.tfrecord import frame, read_records
from headway.schema.columns import Column
from tests.example_shards import write_examples
from tfcore.data import reader
from tfcore.data.decode import Labeler
from tfcore.data.pipeline import classes_of, evaluation_dataset, safe, training_dataset, training_plan
from tfcore.data.resample import Resample
from tfcore.data.shards import Holdout, HoldoutRows, Shards
from tfcore.transform.layer import Transform
from tfcore.transform.raw_column import PackedColumns

COLUMNS = (
    Column(name="x", type="float32", nullable=True),
    Column(name="s", type="bytes", nullable=True, encoding="dictionary"),
    Column(name="v", type="float32", nullable=True, shape=(3,)),
    Column(name="l", type="int64", nullable=True, shape=(None,)),
    Column(name="label", type="int64", nullable=False, role="label"),
)


def table(rows):
    """Row i holds x = i, with every kind of null."""
    numbers = np.arange(rows)
    return pa.table(
        {
            "x": pa.array(numbers.astype(np.float32), mask=numbers % 13 == 5),
            "s": pa.array([None if i % 11 == 0 else b"w%d" % (i % 7) for i in numbers], pa.binary()),
            "v": pa.array([None if i % 5 == 0 else [i, -0.0, np.nan] for i in numbers], pa.list_(pa.float32(), 3)),
            "l": pa.array([None if i % 4 == 0 else list(range(i % 4 - 1)) for i in numbers], pa.list_(pa.int64())),
            "label": pa.array(numbers % 2),
        }
    )


@pytest.fixture
def written(tmp_path):
    found = write_examples(tmp_path, {"train": table(1000)}, COLUMNS, rows_per_record=1, shards=7)
    return found, Shards.of([(tmp_path, found.result, "train")])


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Chunks and turns end everywhere."""
    monkeypatch.setattr(reader, "CLASSIC_ROWS", 37)
    monkeypatch.setattr(reader, "BLOCK", 16)


def bits(batches):
    """Values to the last bit, with their names, types and shapes."""
    return [
        {name: (value.dtype, value.shape, value.tolist() if value.dtype == object else value.tobytes())
         for name, value in ((name, tensor.numpy()) for name, tensor in batch.items())}
        for batch in batches
    ]  # fmt: skip


HELD_OUT = 0.2


# in the first epoch, and over its end; a holdout moves where these are
@pytest.mark.parametrize(("holdout", "starts"), [(None, [18, 62]), (HELD_OUT, [62])], ids=["all", "held_out"])
def test_training_sees_the_same_batches_from_any_step_on(written, holdout, starts):
    examples, shards = written
    parameters = examples.fit()
    transform = Transform(parameters)
    rows = None if holdout is None else Holdout.by_place(shards, holdout)

    def stacks(start, count):
        dataset = training_dataset(
            shards,
            transform,
            Labeler(parameters.label),
            seed=3,
            batch=20,
            stack=2,
            start_step=start,
            holdout=rows,
            window_rows=150,
            cycle=3,
        )
        return bits(stack for stack, _ in zip(safe(dataset, shards), range(count), strict=False))

    whole = stacks(0, 40)
    for start in starts:
        assert stacks(start, 9) == whole[start // 2 : start // 2 + 9]


@pytest.mark.parametrize(("holdout", "starts"), [(None, [18, 66]), (HELD_OUT, [66])], ids=["all", "held_out"])
def test_a_sample_has_the_same_rows_from_any_step_on(written, holdout, starts):
    examples, shards = written
    parameters = examples.fit()
    transform, labeler = Transform(parameters), Labeler(parameters.label)
    classes = classes_of(shards, labeler)
    assert [len(rows) for rows in classes] == [sum(rows) for rows in shards.rows]
    resample = Resample([0.3, 1.4], classes, seed=5)
    held_out = None if holdout is None else Holdout.by_place(shards, holdout)

    def stacks(start, count):
        options = {"seed": 3, "batch": 20, "stack": 2, "window_rows": 150, "cycle": 3, "holdout": held_out}
        dataset = training_dataset(shards, transform, labeler, start_step=start, resample=resample, **options)
        rows = [stack for stack, _ in zip(safe(dataset, shards), range(count), strict=False)]
        positive = float(np.mean([stack["label"].numpy().mean() for stack in rows]))
        return bits(rows), positive

    whole, positive = stacks(0, 50)  # over two epochs
    assert abs(positive - 1.4 / 1.7) < 0.02
    for start in starts:
        assert stacks(start, 10)[0] == whole[start // 2 : start // 2 + 10]


def test_evaluation_sees_every_row_in_its_order(written):
    examples, shards = written
    parameters = examples.fit()
    raw = PackedColumns(shards.columns, ["x", "s", "v", "l"])
    dataset = evaluation_dataset(shards, Transform(parameters), Labeler(parameters.label), batch=64, raw=raw)
    batches = list(safe(dataset, shards))
    assert len(batches) == 16
    labels = np.concatenate([batch["label"].numpy() for batch in batches])
    np.testing.assert_array_equal(labels[:1000], np.arange(1000) % 2)


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_a_damaged_shard_is_named(written, tmp_path, damage):
    examples, shards = written
    parameters = examples.fit()
    path = tmp_path / "train-00003-of-00007.tfrecord"
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 0x10
        path.write_bytes(data)
    elif damage == "cut":
        path.write_bytes(data[:-20])
    else:
        path.unlink()

    dataset = evaluation_dataset(shards, Transform(parameters), Labeler(parameters.label), batch=64)
    with pytest.raises(DataError, match=path.name):
        list(safe(dataset, shards))


def test_a_shard_that_lost_its_last_records_is_named(written):
    examples, shards = written
    parameters = examples.fit()
    path = Path(shards.paths[2])
    path.write_bytes(b"".join(map(frame, list(read_records(path))[:-2])))
    dataset = evaluation_dataset(shards, Transform(parameters), Labeler(parameters.label), batch=64)
    with pytest.raises(DataError, match=rf"{path.name}: the file ends 2 records early"):
        list(safe(dataset, shards))


@pytest.mark.parametrize("held", [False, True])
def test_millions_of_rows_take_a_few_bytes_each(held, monkeypatch, tmp_path):
    monkeypatch.setattr(reader, "BLOCK", 256)
    rows, shards = 500_000, 8
    result = {
        "columns": [column.model_dump() for column in COLUMNS],
        "rows_per_record": 1,
        "splits": {"train": {"shards": [{"file": str(n), "rows": packed([1] * rows)} for n in range(shards)]}},
    }
    tracemalloc.start()
    found = Shards.of([(tmp_path, result, "train")])
    holdout = Holdout.by_place(found, 0.1) if held else None
    HoldoutRows(holdout, found)
    plan = training_plan(found, 0, holdout, None, window=65_536, cycle=8)
    start = plan.start(plan.rows // 2)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert abs(plan.rows - (0.9 if held else 1) * shards * rows) < 0.002 * shards * rows
    assert int(plan.record_rows(0)[: start.skip_records].sum()) <= plan.rows // 2
    assert kept < 4 * shards * rows and peak < 32e6 + 4 * shards * rows
