"""The input pipeline on shards as ingest writes them: every row once an epoch, resumable at any step, damage named."""

import json

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from headway.errors import ConfigError, DataError
from headway.records.tfrecord import Shard
from headway.schema.columns import Column
from headway.statistics.split_statistics import SplitStatistics
from tests.example_shards import dataset_of
from tfcore.data.dataset import evaluation_dataset, training_rows
from tfcore.data.reader import Holdout, Labeler, Shards, with_data_errors
from tfcore.heads.label_parameters import LabelParameters
from tfcore.transform.config import ColumnTransform
from tfcore.transform.fit import fit_parameters
from tfcore.transform.layer import Transform
from tfcore.transform.preprocess import derive
from tfcore.transform.raw_column import PackedColumns, RawColumn

COLUMNS = (
    Column(name="x", type="float32", nullable=True),
    Column(name="s", type="bytes", nullable=True, encoding="dictionary"),
    Column(name="w", type="float32", nullable=False, role="weight"),
    Column(name="label", type="int64", nullable=False, role="label"),
)
GOLDEN_ORDER = [[20, 29, 25, 65, 62, 60], [36, 37, 34, 63, 5, 50]]
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


def _write(folder, shard_rows, per_record, *, texts=False):
    """Shards with the given rows each, and parameters of a model that takes x, or the texts too: looking words up is most
    of the graph."""
    shards, first = [], 0
    statistics = SplitStatistics.create(COLUMNS)
    for number, rows in enumerate(shard_rows):
        name = f"train-{number:05d}-of-{len(shard_rows):05d}.tfrecord"
        batch = _rows(first, rows)
        statistics.update(batch)
        shard = Shard(folder / name, COLUMNS, per_record)
        shard.add(batch)
        shards.append({"file": name, "rows": shard.finish()})
        first += rows
    result = {
        "span": "all",
        "columns": [column.model_dump(mode="json") for column in COLUMNS],
        "unit": False,
        "splits": {"train": {"rows": first, "shards": shards}},
    }
    taken = [column for column in COLUMNS if texts or column.name != "s"]
    parameters, _ = fit_parameters(taken, {c.name: IDENTITY[c.name] for c in taken if c.name in IDENTITY}, statistics)
    return Shards.of([(folder, json.loads(json.dumps(result)), "train")]), parameters


def _training(shards, parameters, **options):
    return dataset_of(shards, Transform(parameters), Labeler(parameters.label), **options)


def _take(dataset, shards, stacks):
    found = []
    for stack in with_data_errors(dataset, shards):
        found.append(stack["numeric"].numpy()[:, :, 0].astype(int))
        if len(found) == stacks:
            break
    return np.concatenate(found)


@pytest.mark.parametrize("per_record", [16, 1])
@pytest.mark.parametrize(("batch", "stack"), [(10, 3), (300, 2)])
def test_every_row_comes_once_an_epoch_and_batches_carry_over(tmp_path, per_record, batch, stack):
    shards, parameters = _write(tmp_path, [50, 33, 64, 7, 90], per_record)
    dataset = _training(shards, parameters, seed=1, batch=batch, stack=stack, window=40, cycle=3)
    batches = _take(dataset, shards, -(-3 * 244 // (batch * stack)) + 1).reshape(-1)
    for epoch in range(2):
        assert sorted(batches[epoch * 244 : (epoch + 1) * 244].tolist()) == list(range(244))
    assert (batches[:244] != batches[244:488]).any()
    assert batches[:244].tolist() != sorted(batches[:244].tolist())


HELD_OUT = 0.2


@pytest.mark.long
@pytest.mark.parametrize(
    ("per_record", "holdout", "starts"),
    [
        # about the end of the first window and in another; about where the epoch ends; in the third
        pytest.param(16, None, (5, 6, 23, 34, 35, 70), id="16-all"),
        pytest.param(1, None, (6, 35), id="1-all"),
        pytest.param(16, HELD_OUT, (28, 70), id="16-held_out"),
        pytest.param(1, HELD_OUT, (36,), id="1-held_out"),
    ],
)
def test_a_resumed_dataset_goes_on_with_the_same_batches(tmp_path, per_record, holdout, starts):
    shards, parameters = _write(tmp_path, [50, 33, 64, 7, 90], per_record)
    rows = None if holdout is None else Holdout.by_place(shards, holdout)

    def batches(start, stacks, seed=4, stack=2):
        options = {"seed": seed, "batch": 7, "stack": stack, "holdout": rows, "window": 40, "cycle": 3}
        return _take(_training(shards, parameters, start_step=start, **options), shards, stacks)

    whole = batches(0, 60)
    for start in starts:
        np.testing.assert_array_equal(batches(start, 4), whole[start : start + 8])
    if (per_record, holdout) == (16, None):  # how stacks are cut, and the seed, come after the reading
        np.testing.assert_array_equal(batches(9, 3, stack=5), whole[9 : 9 + 15])
        assert (batches(0, 4, seed=5) != whole[:8]).any()


def test_a_split_smaller_than_a_batch_goes_round_and_resumes(tmp_path):
    shards, parameters = _write(tmp_path, [9, 4], 4)

    def batches(start, stacks):
        dataset = _training(shards, parameters, seed=2, batch=50, stack=2, start_step=start, window=5)
        return _take(dataset, shards, stacks)

    whole = batches(0, 6)
    for start in (1, 7):
        np.testing.assert_array_equal(batches(start, 2), whole[start : start + 4])
    rows = whole.reshape(-1)
    assert all(sorted(rows[at : at + 13].tolist()) == list(range(13)) for at in range(0, 13 * 40, 13))


def test_the_order_of_rows_is_what_it_was(tmp_path):
    """Golden: a run that is resumed with a newer Headway goes on in the order that it began with."""
    shards, parameters = _write(tmp_path, [30, 20, 25], 8)
    dataset = _training(shards, parameters, seed=3, batch=6, stack=1, window=32, start_step=12)
    assert _take(dataset, shards, 2).tolist() == GOLDEN_ORDER


@pytest.mark.parametrize("per_record", [16, 1])
def test_a_holdout_and_the_rest_are_apart_and_together_everything(tmp_path, per_record):
    shards, parameters = _write(tmp_path, [200, 333], per_record)
    labeler, found = Labeler(parameters.label), {}
    for inside in (True, False):
        holdout = Holdout.by_place(shards, 0.25, inside=inside)
        dataset = evaluation_dataset(shards, Transform(parameters), labeler, batch=64, holdout=holdout)
        rows = [b["numeric"].numpy()[b["valid"].numpy(), 0] for b in with_data_errors(dataset, shards)]
        found[inside] = np.concatenate(rows).astype(int).tolist()
        assert training_rows(shards, holdout) == len(found[inside])
    assert sorted(found[True] + found[False]) == list(range(533))
    assert 0.15 < len(found[True]) / 533 < 0.35


@pytest.mark.parametrize("per_record", [16, 1])
def test_evaluation_keeps_the_order_and_fills_up_with_weight_zero(tmp_path, per_record):
    shards, parameters = _write(tmp_path, [50, 33], per_record)
    raw = PackedColumns(COLUMNS, ["s"])
    dataset = evaluation_dataset(
        shards, Transform(parameters), Labeler(parameters.label, weight=COLUMNS[2]), batch=32, raw=raw
    )
    batches = [raw.unpack(packed) for packed in with_data_errors(dataset, shards)]
    assert [b["numeric"].shape[0] for b in batches] == [32, 32, 32]
    valid = np.concatenate([b["valid"].numpy() for b in batches])
    numbers = np.concatenate([b["numeric"].numpy()[:, 0] for b in batches])
    assert valid.sum() == 83 and numbers[valid].tolist() == list(range(83))
    assert np.concatenate([b["weight"].numpy() for b in batches])[~valid].sum() == 0
    texts = np.concatenate([b["raw/s"].numpy() for b in batches])[valid]
    present = np.concatenate([b["raw/s/present"].numpy() for b in batches])[valid]
    wanted = [None if i % 11 == 0 else f"w{i % 7}" for i in range(83)]
    assert [t.decode() if p else None for t, p in zip(texts, present, strict=True)] == wanted


def _table(rows=70):
    """Nulls, NaN and empties in every kind of column, stored both ways."""
    r = np.random.default_rng(1)
    words = [None, b"", b"a", b"b", b"NaN", "é".encode()]
    picked = [words[i] for i in r.integers(0, len(words), rows)]
    x = r.normal(0, 10, rows).astype(np.float32)
    x[::9] = np.nan
    x[4] = np.inf
    return pa.RecordBatch.from_arrays(
        [
            pa.array(x, mask=r.random(rows) < 0.2),
            pa.array(r.integers(-5, 5, rows) * 10**15, mask=r.random(rows) < 0.2),
            pa.array(r.integers(0, 9, rows)),
            pa.array(picked, pa.binary()).dictionary_encode(),
            pa.array(picked[::-1], pa.binary()),
            pa.array([0, 1] * (rows // 2)),
        ],
        names=["x", "big", "n", "dictionary", "plain", "label"],
    )


KINDS = (
    Column(name="x", type="float32", nullable=True),
    Column(name="big", type="int64", nullable=True),
    Column(name="n", type="int64", nullable=False),
    Column(name="dictionary", type="bytes", nullable=True, encoding="dictionary"),
    Column(name="plain", type="bytes", nullable=True),
    COLUMNS[-1],
)
TRANSFORMS = {
    "x": ["log", "standardize"],
    "big": {"bucketize": {"buckets": 4}},
    "n": {"vocabulary": {"oov_buckets": 2, "top_k": 5}},
    "dictionary": {"vocabulary": {"oov_buckets": 3, "top_k": 2}},
    "plain": {"hash": {"buckets": 6}},
}


def test_row_groups_of_any_size_give_the_same_inputs(tmp_path):
    batch = _table()
    statistics = SplitStatistics.create(KINDS)
    statistics.update(batch)
    chosen = {name: ColumnTransform(transform=value) for name, value in TRANSFORMS.items()}
    parameters, _ = fit_parameters(KINDS, chosen, statistics)
    transform, labeler = Transform(parameters), Labeler(parameters.label)
    found = {}
    for per_record in (1, 16, 4096):
        path = tmp_path / f"{per_record}.tfrecord"
        shard = Shard(path, KINDS, per_record)
        shard.add(batch)
        shard.finish()
        shards = Shards((str(path),), (tuple(shard.rows),), KINDS)
        (found[per_record],) = with_data_errors(evaluation_dataset(shards, transform, labeler, batch=70), shards)
    names = ("numeric", "categorical", "label", "weight")
    for name in names:
        # the last bit of a logarithm depends on where in a vector the number stands
        least = 1e-6 if name == "numeric" else 0
        np.testing.assert_allclose(found[1][name], found[16][name], rtol=least, err_msg=name)
        np.testing.assert_allclose(found[1][name], found[4096][name], rtol=least, err_msg=name)


def _raw(values, dtype, present=None):
    return RawColumn(tf.constant(values, dtype), None if present is None else tf.constant(present))


def test_text_classes_become_indices_and_an_unknown_one_weighs_nothing():
    label = LabelParameters(task="multiclass", type="bytes", classes=("no", "perhaps", "yes"))
    index, weight = Labeler(label, class_weights=[1, 2, 4])({"label": _raw([b"yes", b"no", b"never"], tf.string)})
    assert index.dtype == tf.int32 and index.numpy().tolist()[:2] == [2, 0]
    assert weight.numpy().tolist() == [4, 1, 0]


def test_rows_without_a_usable_label_or_weight_weigh_nothing():
    label = LabelParameters(task="regression", type="float32", mean=0.0, std=1.0)
    columns = {
        "label": _raw([1.5, np.nan, 2.0, 3.0, 4.0], tf.float32),
        "w": _raw([2.0, 1.0, np.nan, 7.0, 0.5], tf.float32, [True, True, True, False, True]),
    }
    value, weight = Labeler(label, weight=Column(name="w", type="float32", nullable=True, role="weight"))(columns)
    assert value.numpy().tolist() == [1.5, 0, 2, 3, 4]
    assert weight.numpy().tolist() == [2, 0, 0, 0, 0.5]


def test_whole_shards_of_other_columns_are_not_called_damaged(tmp_path):
    shards, parameters = _write(tmp_path, [40], 16)
    weight = COLUMNS[2].model_copy(update={"type": "int64"})
    shards = Shards(shards.paths, shards.rows, (*COLUMNS[:2], weight, *COLUMNS[3:]))
    labeler = Labeler(parameters.label, weight=weight)
    with pytest.raises(DataError, match="are whole, but"):
        list(with_data_errors(evaluation_dataset(shards, Transform(parameters), labeler, batch=40), shards))


def test_class_weights_multiply_the_weight_column(tmp_path):
    shards, parameters = _write(tmp_path, [40], 16)
    labeler = Labeler(parameters.label, weight=COLUMNS[2], class_weights=[1.0, 3.0])
    (batch,) = evaluation_dataset(shards, Transform(parameters), labeler, batch=40)
    np.testing.assert_array_equal(batch["weight"].numpy(), np.where(np.arange(40) % 2 == 1, 3.0, 1.0))


@pytest.mark.parametrize("damage", ["flip", "cut", "longer", "gone"])
def test_a_damaged_shard_is_named(tmp_path, damage):
    shards, parameters = _write(tmp_path, [64, 64, 64], 16)
    path = tmp_path / "train-00001-of-00003.tfrecord"
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 0x10
        path.write_bytes(data)
    elif damage == "cut":
        path.write_bytes(data[:-20])
    elif damage == "longer":
        path.write_bytes(data * 2)
    else:
        path.unlink()
    dataset = _training(shards, parameters, seed=0, batch=16, stack=2)
    with pytest.raises(DataError, match="train-00001-of-00003"):
        _take(dataset, shards, 50)


def test_a_preprocess_that_fails_on_the_data_is_not_called_a_damaged_shard(tmp_path):
    shards, _ = _write(tmp_path, [5, 5], 16)

    def picky(columns):
        with tf.control_dependencies(
            [tf.debugging.Assert(tf.reduce_all(columns["x"] < 2), ["too much:", columns["x"]])]
        ):
            return {"y": tf.identity(columns["x"])}

    def derived(number):
        columns = {"x": RawColumn(tf.cast(number, tf.float32)[None], None)}
        return derive(picky, columns, [Column(name="x", type="float32", nullable=False)])[0]["y"].values

    said = r"^preprocess: the function failed on the data: assertion failed: \[too much:\]"
    with pytest.raises(ConfigError, match=said):
        list(with_data_errors(tf.data.Dataset.range(5).map(derived, num_parallel_calls=2), shards))
