"""The input pipeline on shards as ingest writes them: every row once an epoch, resumable at any step, damage named."""

import json

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from headway.errors import DataError
from headway.records.encode import encode, encode_classic
from headway.records.tfrecord import ShardWriter
from headway.schema import Column
from headway.statistics.split import SplitStatistics
from tfcore.dataset import Carve, Labeler, Shards, evaluation_dataset, safe, training_dataset, training_rows
from tfcore.transform.config import ColumnTransform
from tfcore.transform.graph import Transform
from tfcore.transform.parameters import fit_parameters

COLUMNS = (
    Column(name="x", type="float32", nullable=True),
    Column(name="s", type="bytes", nullable=True, encoding="dictionary"),
    Column(name="w", type="float32", nullable=False, role="weight"),
    Column(name="label", type="int64", nullable=False, role="label"),
)
IDENTITY = {"x": ColumnTransform(transform="identity"), "s": ColumnTransform(transform="vocabulary")}


def _rows(first, count):
    """Row i holds x = i, so that a batch says which rows it is made of."""
    numbers = np.arange(first, first + count)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(numbers.astype(np.float32)),
            pa.array([None if i % 11 == 0 else f"w{i % 7}".encode() for i in numbers], pa.binary()).dictionary_encode(),
            pa.array(np.ones(count, np.float32)),
            pa.array(numbers % 2),
        ],
        names=["x", "s", "w", "label"],
    )


def _write(folder, shard_rows, per_record):
    """Shards with the given rows each, and the ingest result that describes them."""
    shards, first = [], 0
    statistics = SplitStatistics.create(COLUMNS)
    for number, rows in enumerate(shard_rows):
        name = f"train-{number:05d}-of-{len(shard_rows):05d}.tfrecord"
        batch = _rows(first, rows)
        statistics.update(batch)
        with ShardWriter(folder / name) as shard:
            if per_record == 1:
                shard.write_many(encode_classic(batch, COLUMNS))
            else:
                for at in range(0, rows, per_record):
                    part = batch.slice(at, per_record)
                    shard.write(encode(part, COLUMNS), part.num_rows)
        shards.append({"file": name, "rows": shard.rows})
        first += rows
    result = {
        "span": "all",
        "columns": [column.model_dump(mode="json") for column in COLUMNS],
        "rows_per_record": per_record,
        "splits": {"train": {"rows": first, "shards": shards}},
    }
    parameters, _ = fit_parameters(COLUMNS, IDENTITY, statistics)
    return Shards.of([(folder, json.loads(json.dumps(result)), "train")]), parameters


def _take(dataset, shards, stacks):
    found = []
    for stack in safe(dataset, shards):
        found.append(stack["numeric"].numpy()[:, :, 0].astype(int))
        if len(found) == stacks:
            break
    return np.concatenate(found)


@pytest.mark.parametrize("per_record", [16, 1])
@pytest.mark.parametrize(("batch", "stack"), [(10, 3), (300, 2)])
def test_every_row_comes_once_an_epoch_and_batches_carry_over(tmp_path, per_record, batch, stack):
    shards, parameters = _write(tmp_path, [50, 33, 64, 7, 90], per_record)
    dataset = training_dataset(
        shards,
        Transform(parameters),
        Labeler(parameters.label),
        seed=1,
        batch=batch,
        stack=stack,
        window_rows=40,
        cycle=3,
    )
    batches = _take(dataset, shards, -(-3 * 244 // (batch * stack)) + 1).reshape(-1)
    for epoch in range(2):
        assert sorted(batches[epoch * 244 : (epoch + 1) * 244].tolist()) == list(range(244))
    assert (batches[:244] != batches[244:488]).any()
    assert batches[:244].tolist() != sorted(batches[:244].tolist())


@pytest.mark.parametrize("carve", [None, Carve(0.2, inside=False)], ids=["all", "carved"])
@pytest.mark.parametrize("per_record", [16, 1])
def test_a_resumed_dataset_goes_on_with_the_same_batches(tmp_path, per_record, carve):
    shards, parameters = _write(tmp_path, [50, 33, 64, 7, 90], per_record)
    transform, labeler = Transform(parameters), Labeler(parameters.label)

    def batches(start, stacks, seed=4):
        dataset = training_dataset(
            shards,
            transform,
            labeler,
            seed=seed,
            batch=7,
            stack=2,
            start_step=start,
            carve=carve,
            window_rows=40,
            cycle=3,
        )
        return _take(dataset, shards, stacks)

    whole = batches(0, 60)
    for start in (1, 5, 6, 23, 34, 35, 36, 70):
        np.testing.assert_array_equal(batches(start, 4), whole[start : start + 8])
    assert (batches(0, 4, seed=5) != whole[:8]).any()


@pytest.mark.parametrize("per_record", [16, 1])
def test_a_carve_and_the_rest_are_apart_and_together_everything(tmp_path, per_record):
    shards, parameters = _write(tmp_path, [200, 333], per_record)
    labeler, found = Labeler(parameters.label), {}
    for inside in (True, False):
        carve = Carve(0.25, inside=inside)
        dataset = evaluation_dataset(shards, Transform(parameters), labeler, batch=64, carve=carve)
        rows = [b["numeric"].numpy()[b["valid"].numpy(), 0] for b in safe(dataset, shards)]
        found[inside] = np.concatenate(rows).astype(int).tolist()
        assert training_rows(shards, carve) == len(found[inside])
    assert sorted(found[True] + found[False]) == list(range(533))
    assert 0.15 < len(found[True]) / 533 < 0.35


@pytest.mark.parametrize("per_record", [16, 1])
def test_evaluation_keeps_the_order_and_fills_up_with_weight_zero(tmp_path, per_record):
    shards, parameters = _write(tmp_path, [50, 33], per_record)
    dataset = evaluation_dataset(
        shards, Transform(parameters), Labeler(parameters.label, weight=COLUMNS[2]), batch=32, raw=["s"]
    )
    batches = list(safe(dataset, shards))
    assert [b["numeric"].shape[0] for b in batches] == [32, 32, 32]
    valid = np.concatenate([b["valid"].numpy() for b in batches])
    numbers = np.concatenate([b["numeric"].numpy()[:, 0] for b in batches])
    assert valid.sum() == 83 and numbers[valid].tolist() == list(range(83))
    assert np.concatenate([b["weight"].numpy() for b in batches])[~valid].sum() == 0
    texts = np.concatenate([b["raw/s"].numpy() for b in batches])[valid]
    present = np.concatenate([b["raw/s/present"].numpy() for b in batches])[valid]
    assert [t.decode() if p else None for t, p in zip(texts, present, strict=True)] == [
        None if i % 11 == 0 else f"w{i % 7}" for i in range(83)
    ]


def test_class_weights_multiply_the_weight_column(tmp_path):
    shards, parameters = _write(tmp_path, [40], 16)
    labeler = Labeler(parameters.label, weight=COLUMNS[2], class_weights=[1.0, 3.0])
    (batch,) = evaluation_dataset(shards, Transform(parameters), labeler, batch=40)
    np.testing.assert_array_equal(batch["weight"].numpy(), np.where(np.arange(40) % 2 == 1, 3.0, 1.0))


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_a_damaged_shard_is_named(tmp_path, damage):
    shards, parameters = _write(tmp_path, [64, 64, 64], 16)
    path = tmp_path / "train-00001-of-00003.tfrecord"
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 0x10
        path.write_bytes(data)
    elif damage == "cut":
        path.write_bytes(data[:-20])
    else:
        path.unlink()
    dataset = training_dataset(shards, Transform(parameters), Labeler(parameters.label), seed=0, batch=16, stack=2)
    with pytest.raises(DataError, match="train-00001-of-00003"):
        _take(dataset, shards, 50)


def test_stock_tensorflow_parses_a_shard_by_the_feature_spec(tmp_path):
    from headway.records.spec import feature_spec

    shards, _ = _write(tmp_path, [40], 16)
    kinds = {"int64": tf.int64, "float32": tf.float32, "string": tf.string}
    spec = {
        name: tf.io.FixedLenSequenceFeature([], kinds[entry["dtype"]], allow_missing=True)
        for name, entry in feature_spec(COLUMNS, 16).items()
    }
    parsed = [tf.io.parse_single_example(record, spec) for record in tf.data.TFRecordDataset(list(shards.paths))]
    assert np.concatenate([p["x"] for p in parsed]).tolist() == list(range(40))
