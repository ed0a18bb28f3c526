"""Rows kept in memory: the same batches as rows that are read again each epoch, and none that Python makes."""

import numpy as np
import pytest
import tensorflow as tf

import tfcore.data.dataset
from tests.example_shards import dataset_of
from tests.tfcore.data.test_pipeline import _write
from tfcore.data.dataset import RowCache, gather
from tfcore.data.groups import gather_with_fillers
from tfcore.data.reader import Holdout, Labeler, with_data_errors
from tfcore.graph.python_op import numpy_op
from tfcore.train.augment import Augment
from tfcore.train.config import AugmentConfig
from tfcore.transform.layer import Transform


def _stacks(shards, parameters, keep, *, transform=None, count=40, **options):
    made = dataset_of(
        shards,
        transform or Transform(parameters),
        Labeler(parameters.label),
        seed=5,
        batch=7,
        stack=2,
        window=40,
        cycle=3,
        keep_bytes=keep,
        **options,
    )
    found = with_data_errors(made, shards)
    return made.element_spec, [{name: value.numpy() for name, value in next(found).items()} for _ in range(count)]


def _batches(stacks):
    """By name, the batches of stacks one behind the other."""
    return {name: np.concatenate([stack[name] for stack in stacks]) for name in stacks[0]}


@pytest.mark.parametrize(
    ("per_record", "holdout", "starts", "augmented"),
    [
        # at the beginning, in the first epoch, in a later one; a holdout moves where these are
        (16, None, (0, 36), False),
        (16, 0.2, (36,), False),
        (1, None, (36,), False),
        (1, 0.2, (5,), False),
        # what varies rows knows their places, however they were read
        pytest.param(16, None, (36,), True, marks=pytest.mark.long),
        pytest.param(1, 0.2, (5,), True, marks=pytest.mark.long),
    ],
)
def test_kept_rows_come_and_are_varied_as_read_ones_are(tmp_path, per_record, holdout, starts, augmented):
    """Whoever puts them together, from wherever they begin."""
    shards, parameters = _write(tmp_path, [50, 33, 64, 7, 90], per_record, texts=True)
    augment = Augment(AugmentConfig(mixup=0.4), parameters, seed=3) if augmented else None
    rows = None if holdout is None else Holdout.by_place(shards, holdout)
    options = {"holdout": rows, "augment": augment, "transform": Transform(parameters)}  # which is traced once
    spec, stacks = _stacks(shards, parameters, 0, start_step=starts[0], count=58, **options)
    read = _batches(stacks)
    for start in starts:
        # rows that are varied are not put together by XLA: once is enough to see that it changes nothing
        for jit in {False, start == (5 if augmented else 36)}:
            kept_spec, stacks = _stacks(shards, parameters, 1 << 20, start_step=start, jit=jit, **options)
            assert kept_spec == spec
            first = start - starts[0]
            for name, values in _batches(stacks).items():
                np.testing.assert_array_equal(values, read[name][first : first + 80])


def test_rows_that_take_more_are_read_each_time(tmp_path, monkeypatch):
    shards, parameters = _write(tmp_path, [50, 33], 16, texts=True)
    made, traced, transform = [], [], Transform(parameters)

    def counted(columns):
        traced.append(1)
        return transform(columns)

    monkeypatch.setattr(
        tfcore.data.dataset, "RowCache", type("Spy", (), {"of": lambda *a: made.append(RowCache.of(*a)) or made[-1]})
    )
    for most in (83 * 16 - 1, 83 * 16):  # x, s, label and weight: four bytes each
        _stacks(shards, parameters, most, transform=counted, count=2)
    assert made[0] is None
    assert made[1] is not None
    assert len(traced) == 2, "a transform is traced once, though what its rows take is looked at first"


def test_a_pipeline_that_calls_python_is_not_kept(tmp_path):
    shards, parameters = _write(tmp_path, [20], 4, texts=True)
    calls, transform = [], Transform(parameters)

    def drift(values):
        calls.append(len(values))
        return values + np.float32(100 * len(calls))

    counted = numpy_op(drift, tf.TensorSpec([None, None], tf.float32))

    def live(columns):
        rows = dict(transform(columns))
        return rows | {"numeric": counted(rows["numeric"])}

    _, stacks = _stacks(shards, parameters, 1 << 20, transform=live, count=20)
    assert len(calls) > 5
    assert len({float(stack["numeric"].max()) for stack in stacks}) > 5


def test_kept_rows_are_those_that_were_read(tmp_path):
    shards, parameters = _write(tmp_path, [50, 33], 16, texts=True)
    made = dataset_of(
        shards, Transform(parameters), Labeler(parameters.label), seed=1, batch=83, stack=1, keep_bytes=1 << 20
    )
    for path in shards.paths:
        tf.io.gfile.remove(path)
    epochs = [next(it)["numeric"].numpy()[0, :, 0] for it in [with_data_errors(made, shards)] for _ in range(3)]
    assert all(sorted(epoch.tolist()) == list(range(83)) for epoch in epochs)
    assert (epochs[0] != epochs[1]).any()


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("pick", [gather, gather_with_fillers])
def test_places_are_picked_by_xla_as_by_tensorflow(pick, jit):
    rows = {
        "group": tf.cast(tf.range(50), tf.int64) * (1 << 40),
        "weight": tf.random.uniform([50]),
        "numeric": tf.random.normal([50, 3]),
        "categorical": tf.random.uniform([50, 2], maxval=9, dtype=tf.int32),
        "valid": tf.range(50) % 3 == 0,
    }
    kept = RowCache(rows, order=None)
    picked = kept.row_picker(pick, 20, jit=jit)
    places = tf.random.shuffle(tf.range(50))[:20]
    if pick is gather_with_fillers:  # some that only fill up
        places = tf.where(tf.range(20) % 4 == 0, -1 - places, places)
    wanted = pick(rows, places)
    for name, value in picked(places).items():
        np.testing.assert_array_equal(value, wanted[name])
    assert isinstance(picked, tf.types.experimental.PolymorphicFunction) == jit


def test_text_is_picked_without_xla():
    kept = RowCache({"word": tf.constant([b"a", b"b", b"c"])}, order=None)
    pick = kept.row_picker(gather, 2, jit=True)
    assert pick(tf.constant([2, 0]))["word"].numpy().tolist() == [b"c", b"a"]
