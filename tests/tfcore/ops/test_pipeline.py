"""Shards of classic Examples come to training and evaluation the same, whether the op reads them or TensorFlow does."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headway.errors import DataError
from headway.records.tfrecord import frame, read_records
from headway.schema.columns import Column
from tfcore.data import reader
from tfcore.data.decode import Labeler
from tfcore.data.pipeline import classes_of, evaluation_dataset, safe, training_dataset
from tfcore.data.reader import Reader
from tfcore.data.resample import Resample
from tfcore.data.shards import Holdout, Shards
from tfcore.testing import write_examples
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


@pytest.fixture
def both(op, monkeypatch):
    """Calls a function with the op and without it; both results."""
    # small, so that chunks and turns end everywhere
    monkeypatch.setattr(reader, "CLASSIC_ROWS", 37)
    monkeypatch.setattr(reader, "BLOCK", 16)

    def call(function):
        found = []
        for switch in ("on", "off"):
            monkeypatch.setenv("HEADWAY_OPS", switch)
            found.append(function())
        return found

    return call


def bits(batches):
    """Values to the last bit, with their names, types and shapes."""
    return [
        {name: (value.dtype, value.shape, value.tolist() if value.dtype == object else value.tobytes())
         for name, value in ((name, tensor.numpy()) for name, tensor in batch.items())}
        for batch in batches
    ]  # fmt: skip


HELD_OUT = 0.2


# in the first epoch, and over its end; a holdout moves where these are
@pytest.mark.parametrize(("holdout", "starts"), [(None, [0, 17, 61]), (HELD_OUT, [61])], ids=["all", "held_out"])
def test_training_sees_the_same_batches_from_any_step_on(both, written, holdout, starts):
    examples, shards = written
    parameters = examples.fit()
    rows = None if holdout is None else Holdout.by_place(shards, holdout)

    def stacks(start):
        dataset = training_dataset(
            shards,
            Transform(parameters),
            Labeler(parameters.label),
            seed=3,
            batch=20,
            stack=2,
            start_step=start,
            holdout=rows,
            window_rows=150,
            cycle=3,
        )
        return bits(stack for stack, _ in zip(safe(dataset, shards), range(30), strict=False))

    for start in starts:
        by_op, by_twin = both(lambda start=start: stacks(start))
        assert len(by_op) == 30 and by_op == by_twin


@pytest.mark.parametrize(("holdout", "starts"), [(None, [2, 18, 66]), (HELD_OUT, [66])], ids=["all", "held_out"])
def test_a_sample_has_the_same_rows_from_any_step_on(both, written, holdout, starts):
    examples, shards = written
    parameters = examples.fit()
    labeler = Labeler(parameters.label)

    by_op, by_twin = both(lambda: classes_of(shards, labeler))
    assert [len(rows) for rows in by_op] == [sum(rows) for rows in shards.rows]
    for one, other in zip(by_op, by_twin, strict=True):
        np.testing.assert_array_equal(one, other)
    resample = Resample([0.3, 1.4], by_op, seed=5)
    held_out = None if holdout is None else Holdout.by_place(shards, holdout)

    def stacks(start, count):
        options = {"seed": 3, "batch": 20, "stack": 2, "window_rows": 150, "cycle": 3, "holdout": held_out}
        dataset = training_dataset(
            shards, Transform(parameters), labeler, start_step=start, resample=resample, **options
        )
        rows = [stack for stack, _ in zip(safe(dataset, shards), range(count), strict=False)]
        positive = float(np.mean([stack["label"].numpy().mean() for stack in rows]))
        return bits(rows), positive

    (whole, positive), twin = both(lambda: stacks(0, 50))  # over two epochs
    assert (whole, positive) == twin and abs(positive - 1.4 / 1.7) < 0.02
    for start in starts:
        (found, _), (by_twin, _) = both(lambda start=start: stacks(start, 10))
        assert found == by_twin == whole[start // 2 : start // 2 + 10]


def test_evaluation_sees_the_same_rows(both, written):
    examples, shards = written
    parameters = examples.fit()

    def batches():
        raw = PackedColumns(shards.columns, ["x", "s", "v", "l"])
        dataset = evaluation_dataset(shards, Transform(parameters), Labeler(parameters.label), batch=64, raw=raw)
        return bits(map(raw.unpack, safe(dataset, shards)))

    by_op, by_twin = both(batches)
    assert len(by_op) == 16 and by_op == by_twin


def test_the_op_is_what_reads_where_it_is_built(both, written):
    _, shards = written
    assert both(lambda: Reader(shards, ["x"]).native) == [True, False]


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_a_damaged_shard_is_named(both, written, tmp_path, damage):
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

    def read():
        dataset = evaluation_dataset(shards, Transform(parameters), Labeler(parameters.label), batch=64)
        with pytest.raises(DataError, match=path.name):
            list(safe(dataset, shards))

    both(read)


def test_a_shard_that_lost_its_last_records_is_named(op, written):
    examples, shards = written
    parameters = examples.fit()
    path = Path(shards.paths[2])
    path.write_bytes(b"".join(map(frame, list(read_records(path))[:-2])))
    dataset = evaluation_dataset(shards, Transform(parameters), Labeler(parameters.label), batch=64)
    with pytest.raises(DataError, match=rf"{path.name}: the file ends 2 records early"):
        list(safe(dataset, shards))
