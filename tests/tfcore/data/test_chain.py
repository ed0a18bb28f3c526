"""Each link of the input pipeline's chain by itself, from a dataset to a dataset; and one of a user's own between two."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from headway.errors import DataError
from headway.schema.columns import Column
from tfcore.data import dataset as chain
from tfcore.data.dataset import (
    ROW,
    EpochStart,
    Inputs,
    RowCache,
    RowPlan,
    cut_windows,
    decode,
    select,
    selection_of,
    shuffle,
    stack_rows,
    vary,
)
from tfcore.data.order import Start
from tfcore.data.reader import Holdout, Labeler, Resample, with_data_errors
from tfcore.data.source import rows_in_memory
from tfcore.heads.label_parameters import LabelParameters

COLUMNS = (
    Column(name="x", type="float32", nullable=False),
    Column(name="label", type="int64", nullable=False, role="label"),
)
ROWS = 50
EPOCH = np.int64(0)
BEGIN = EpochStart(*(np.int64(0) for _ in range(4)))


@pytest.fixture(scope="module")
def shards():
    """Row i holds x = i; records of 8 rows in two shards."""
    table = pa.table({"x": np.arange(ROWS, dtype=np.float32), "label": np.arange(ROWS) % 2})
    return rows_in_memory(table, COLUMNS, rows_per_record=8, shards=2)


@pytest.fixture(scope="module")
def inputs(shards):
    labeler = Labeler(LabelParameters(task="binary", type="int64", classes=(0, 1)))
    return Inputs(shards, lambda raw: {"numeric": raw["x"].plain()[:, None]}, labeler)


def numbers(dataset):
    return [rows["numeric"].numpy().reshape(-1).astype(int).tolist() for rows in dataset]


def joined(dataset):
    return [number for element in numbers(dataset) for number in element]


def cut(*sizes):
    """Datasets of rows 0, 1, 2, ... in elements of these sizes."""
    at = np.cumsum([0, *sizes])
    parts = [{"numeric": np.arange(a, b, dtype=np.float32)[:, None]} for a, b in itertools.pairwise(at)]
    spec = {"numeric": tf.TensorSpec([None, 1])}
    return tf.data.Dataset.from_generator(lambda: iter(parts), output_signature=spec)


def test_decode_gives_each_record_s_inputs_label_and_weight_and_its_place(inputs):
    found = list(decode(inputs.reader.in_order(), inputs))
    assert [(int(shard), int(number)) for _, shard, number in found] == [(s, n) for s in (0, 1) for n in range(4)]
    rows = [rows for rows, *_ in found]
    assert joined(rows) == list(range(ROWS))
    assert np.concatenate([r["label"] for r in rows]).tolist() == [i % 2 for i in range(ROWS)]
    assert np.concatenate([r["weight"] for r in rows]).tolist() == [1.0] * ROWS
    assert inputs.rows.experimental_get_tracing_count() == 1


def test_select_leaves_out_the_holdout_or_takes_the_epoch_s_sample(shards, inputs):
    out = np.arange(ROWS) % 5 == 0
    holdout = Holdout.of([out[:25], out[25:]])
    classes = [np.arange(25) % 2, np.arange(25, ROWS) % 2]
    resample = Resample([2.0, 0.5], classes, seed=1)
    pieces = decode(inputs.reader.in_order(), inputs)
    for plan, wanted in (
        (RowPlan.of(shards, seed=0), list(range(ROWS))),
        (RowPlan.of(shards, seed=0, holdout=holdout), np.flatnonzero(~out).tolist()),
    ):
        assert joined(select(pieces, selection_of(plan), EPOCH)) == wanted
    plan = RowPlan.of(shards, seed=0, holdout=holdout, resample=resample)
    for epoch in (0, 1):
        found = joined(select(pieces, selection_of(plan), tf.constant(epoch, tf.int64)))
        copies = np.concatenate([resample.copies(shard, epoch) for shard in (0, 1)]) * ~out
        assert found == np.repeat(np.arange(ROWS), copies).tolist()


def test_windows_are_cut_from_where_the_training_goes_on(shards):
    plan = RowPlan.of(shards, seed=0, window=10)
    assert list(map(len, numbers(cut_windows(cut(8, 8, 8, 1), plan, EPOCH, BEGIN, drops=False)))) == [10, 10, 5]
    at = EpochStart.of(Start(0, skip_records=1, drop_rows=2, window=1, drop_in_window=0), EPOCH)
    assert numbers(cut_windows(cut(8, 8, 8), plan, EPOCH, at, drops=True))[0] == list(range(2, 12))


def test_shuffle_is_a_function_of_seed_epoch_and_window(shards):
    def order(seed, epoch, window, seen=0):
        at = BEGIN._replace(window=tf.constant(window, tf.int64), seen=tf.constant(seen, tf.int64))
        return numbers(shuffle(cut(10, 10), RowPlan.of(shards, seed=seed), tf.constant(epoch, tf.int64), at))

    first = order(1, 0, 0)
    assert [sorted(window) for window in first] == [list(range(10)), list(range(10, 20))]
    assert order(1, 0, 0) == first and order(1, 0, 0, seen=3) == [first[0][3:], first[1]]
    places = np.array(first[1]) - 10
    assert order(1, 0, 1)[0] == places.tolist(), "window 1 is window 1 wherever the reading began"
    assert len({str(order(*key)) for key in ((1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 2))}) == 4


def test_vary_has_rows_varied_a_chunk_at_a_time():
    class Doubled:
        chunk = 4

        def __call__(self, rows):
            return {name: 2 * value for name, value in rows.items()}

    assert numbers(vary(cut(3, 6), Doubled())) == [[0, 2, 4, 6], [8, 10, 12, 14], [16]]


def test_stacks_are_batches_of_rows_in_their_order():
    rows = cut(8, 8, 8).rebatch(12, drop_remainder=True)
    found = [stack["numeric"].numpy() for stack in stack_rows(rows, [3, 4], rows.element_spec)]
    assert [stack.shape for stack in found] == [(3, 4, 1)] * 2
    assert np.concatenate(found).reshape(-1).tolist() == list(range(24))


def test_rows_in_memory_are_places_until_they_are_stacked(shards, inputs):
    plan = RowPlan.of(shards, seed=0, window=16, cycle=2)
    cache = RowCache.of(plan, inputs, 1 << 20)
    places = np.concatenate([window[ROW] for window in cache.windows(EPOCH, BEGIN.window)])
    pieces = decode(inputs.reader.in_epoch(plan.order, EPOCH, EPOCH), inputs)
    read = joined(select(pieces, selection_of(plan), EPOCH))
    assert places.tolist() == read != list(range(ROWS))


def test_a_transformation_of_one_s_own_goes_between_two(shards, inputs):
    def only_even(dataset):  # as many rows as before: the order is planned for all of them
        return dataset.map(lambda rows: rows | {"weight": tf.where(rows["label"] == 0, rows["weight"], 0.0)})

    plan = RowPlan.of(shards, seed=0)
    rows = select(decode(inputs.reader.in_order(), inputs), selection_of(plan), EPOCH)
    (window,) = shuffle(only_even(rows).rebatch(ROWS), plan, EPOCH, BEGIN)
    left = window["numeric"][window["weight"] > 0]
    assert sorted(left.numpy().reshape(-1).tolist()) == list(range(0, ROWS, 2)) and len(window["label"]) == ROWS


def without_a_row(record):
    return {name: value[1:] for name, value in record.items()}


@pytest.mark.parametrize("most", (0, 1 << 20), ids=["read anew", "kept"])
@pytest.mark.parametrize("change", [lambda rows: rows.skip(1), lambda rows: rows.map(without_a_row)])
def test_a_transformation_that_drops_rows_is_named_and_no_file_is_blamed(shards, inputs, monkeypatch, change, most):
    monkeypatch.setattr(chain, "select", lambda *args: change(select(*args)))
    plan = RowPlan.of(shards, seed=0)
    with pytest.raises(DataError, match=r"(?s)prepare: gives another number of rows.*weight to 0"):
        cache = RowCache.of(plan, inputs, most)
        list(with_data_errors(chain.training_dataset(plan, inputs, batch=5, stack=2, count=20, cache=cache), shards))
