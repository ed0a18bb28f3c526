"""Batches of whole groups: every row once an epoch, no group cut, and the same wherever one begins."""

import dataclasses
import itertools

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import DataError
from headway.schema.columns import Column
from tests.example_shards import write_examples
from tests.patched import patched
from tfcore.data.groups import NO_GROUP, GroupOrder, group_splits, row_groups
from tfcore.data.reader import Holdout, Shards, kept_rows
from tfcore.data.source import rows_in_memory
from tfcore.train.config import TrainingConfig
from tfcore.train.request import TrainRequest
from tfcore.train.rows import group_runs, training_data
from tfcore.transform.config import ColumnTransform

pytestmark = pytest.mark.long
COLUMNS = (
    Column(name="x", type="float32", nullable=False),
    Column(name="query", type="bytes", nullable=True, encoding="dictionary", role="group"),
    Column(name="label", type="int64", nullable=False, role="label"),
)


def table(sizes, nulls=()):
    """Group i has sizes[i] rows; x counts rows."""
    names = [None if i in nulls else f"q{i}".encode() for i, size in enumerate(sizes) for _ in range(size)]
    rows = len(names)
    return pa.table(
        {
            "x": pa.array(np.arange(rows), pa.float32()),
            "query": pa.array(names, pa.binary()),
            "label": pa.array(np.arange(rows) % 3 == 0).cast(pa.int64()),
        }
    )


_small_windows = patched({"tfcore.train.rows.window_rows": lambda row_bytes: 200})


SIZES = np.random.default_rng(0).integers(1, 15, 160)


@st.composite
def shards_of_groups(draw):
    """Shards of records of whole groups; sizes from 1 to 9."""
    rows, runs = [], []
    for _ in range(draw(st.integers(1, 4))):
        records = draw(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), max_size=5))
        rows.append(tuple(sum(record) for record in records))
        runs.append(np.array([size for record in records for size in record], np.int64))
    return Shards(tuple(f"s{i}" for i in range(len(rows))), tuple(rows), (), runs=tuple(runs))


@settings(deadline=None)
@given(shards_of_groups(), st.integers(9, 25), st.integers(1, 40), st.integers(1, 3), st.data())
def test_an_epoch_is_every_row_once_in_whole_batches_that_can_begin_anywhere(shards, batch, window, cycle, data):
    from tfcore.data.order import Plan

    holdout = None
    if data.draw(st.booleans()):
        held_out = np.random.default_rng(data.draw(st.integers(0, 9)))
        holdout = Holdout.of(np.repeat(held_out.random(len(runs)) < 0.4, runs) for runs in shards.runs)
    plan = Plan(kept_rows(shards, holdout), 7, window=window, cycle=cycle)
    order = GroupOrder("query", plan, shards, batch=batch, holdout=holdout)
    if not plan.rows:
        return
    of_row = np.repeat(np.arange(sum(map(len, shards.runs))), np.concatenate(shards.runs))
    kept = np.ones(shards.total, bool)
    if holdout:
        keeps = [holdout.row_mask(i, int(runs.sum())) for i, runs in enumerate(shards.runs)]
        kept = np.concatenate(keeps)
    of_row = of_row[kept]
    orders = []
    for epoch in (0, 1):
        bounds, places = order.bounds(epoch), plan.places(epoch)
        stream = []
        for number in range(len(bounds) - 1):
            assert bounds[number + 1] - bounds[number] > 0
            chosen, before = order.window(epoch, number)
            assert before == len(stream)
            stream += [-1 if c < 0 else int(places[bounds[number] + c]) for c in chosen]
            empty = np.flatnonzero(chosen < 0)
            before_it = chosen[empty - 1]
            assert np.all(chosen[empty] == np.where(before_it < 0, before_it, -1 - before_it)) and 0 not in empty
        assert bounds[-1] == plan.rows and len(stream) == batch * order.batch_count(epoch)
        assert sorted(i for i in stream if i >= 0) == list(range(plan.rows))
        batches = [[int(of_row[i]) for i in stream[at : at + batch] if i >= 0] for at in range(0, len(stream), batch)]
        assert sum(len(set(groups)) for groups in batches) == len(set(of_row.tolist()))
        for now, after in itertools.pairwise(batches):  # the next group did not fit
            assert len(now) + after.count(after[0]) > batch
        orders.append(stream)
    total = order.batch_count(0)
    assert order.epochs(total) == 1
    step = data.draw(st.integers(0, total + order.batch_count(1) - 1))
    start = order.start(step)
    assert (start.epoch, step - start.epoch * total) == (int(step >= total), step if step < total else step - total)
    chosen, before = order.window(start.epoch, start.window)
    assert before + start.drop_in_window == (step - start.epoch * total) * batch and start.drop_in_window < len(chosen)
    ends = np.cumsum(plan.rows_per_record(start.epoch))
    first = (ends[start.skip_records - 1] if start.skip_records else 0) + start.drop_rows
    assert first == order.bounds(start.epoch)[start.window]


def asked(written, transform, training):
    return TrainRequest(examples=(written.part("train"),), transform=transform, training=training, seed=3)


def made(written, **training):
    given = {"batch_size": 32, "steps": 1, "ranking": {}, "jit": "off"}
    config = TrainingConfig(**(given | training))
    return training_data(asked(written, written.fit(task="binary"), config))


def batches(data, first, count):
    """(x, group, weight) of so many batches."""
    stack = next(data.stack_reader(count)(first))
    return [stack[name].numpy().reshape(count, 32, -1)[:, :, 0] for name in ("numeric", "group", "weight")]


EARLY, SAMPLING = {"early_stopping": {"holdout": 0.2}}, {"sampling": {"rates": {"1": 1.7}}}


@pytest.mark.parametrize(
    ("options", "per_record", "starts"),
    [
        # several records a shard, single rows, one record a shard; begun early and late in the first epoch, about where
        # it ends, and in the second
        ({}, 64, (1, 40, 63)),
        ({}, 1, (17,)),
        ({}, 1000, (40,)),
        # what leaves rows out or repeats them does so row by row: it is told apart by whether records hold several
        (EARLY, 64, (17,)),
        (EARLY, 1, (40,)),
        (SAMPLING, 64, (63,)),
        (SAMPLING, 1, (17,)),
    ],
)
def test_read_kept_and_resumed_alike(tmp_path, monkeypatch, per_record, options, starts):
    written = write_examples(
        tmp_path, {"train": table(SIZES, nulls=(3, 4))}, COLUMNS, rows_per_record=per_record, shards=3
    )
    data = made(written, **options)
    kept = batches(data, 0, 80)
    monkeypatch.setattr("tfcore.train.rows.KEPT_BYTES", 0)
    if "sampling" not in options:  # with it none are kept
        for ours, theirs in zip(kept, batches(data, 0, 80), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    for first in starts:
        for ours, theirs in zip(kept, batches(data, first, 17), strict=True):
            np.testing.assert_array_equal(ours[first : first + 17], theirs)
    x, group, weight = kept
    whole = {}
    for ids in group[: data.rows.plan.groups.batch_count(0)]:
        for one in set(ids) - {NO_GROUP}:
            assert one not in whole
            whole[one] = int(np.sum(ids == one))
    named = [size for i, size in enumerate(SIZES) if i not in (3, 4)]
    if not options:
        assert sorted(whole.values()) == sorted(named)
        assert np.sum(weight[: data.rows.plan.groups.batch_count(0)]) == SIZES.sum() == data.rows.count
    elif "early_stopping" in options:
        assert 0.6 * len(named) < len(whole) < 0.95 * len(named) and set(whole.values()) <= set(named)
        assert (
            np.sum(weight[: data.rows.plan.groups.batch_count(0)])
            == data.rows.count
            == SIZES.sum() - data.rows.held_out_count
        )
        held_out = np.concatenate([rows["weight"].numpy() for rows in data.holdout()])
        assert held_out.sum() == data.rows.held_out_count
    assert np.sum(weight[: data.rows.plan.groups.batch_count(0)] > 0) == data.rows.plan.order.rows
    assert np.isfinite(x).all()


def test_augmented_rows_resume_too(tmp_path):
    photos = np.random.default_rng(1).integers(0, 256, (SIZES.sum(), 4 * 4 * 3), np.uint8)
    whole = table(SIZES).append_column("photo", pa.array([photo.tobytes() for photo in photos], pa.binary()))
    columns = (*COLUMNS, Column(name="photo", type="bytes", nullable=False))
    written = write_examples(tmp_path, {"train": whole}, columns, rows_per_record=64, shards=2)
    given = {"batch_size": 32, "steps": 1, "ranking": {}, "jit": "off", "augment": {"flip": "both", "crop": 1}}
    fitted = written.fit({"photo": ColumnTransform(transform={"image": {"height": 4, "width": 4}})}, "binary")
    data = training_data(asked(written, fitted, TrainingConfig(**given)))

    def images(first, count):
        return next(data.stack_reader(count)(first))["image_photo"].numpy()

    found, stored = images(0, 70), {photo.tobytes() for photo in photos}
    np.testing.assert_array_equal(found[45:], images(45, 25))
    assert sum(photo.tobytes() in stored for photo in found.reshape(-1, 48)) < 0.5 * 70 * 32


def test_groups_that_are_cut_are_counted_and_named(tmp_path):
    whole = table([4, 5, 6, 3])
    parts = [write_examples(tmp_path / name, {"train": piece}, COLUMNS, span=name, shards=1) for name, piece in
             (("a", whole.slice(0, 12)), ("b", whole.slice(12)))]  # fmt: skip
    shards = Shards.of([(part.folder, part.result, "train") for part in parts])
    found = group_runs(shards, "query")
    assert [runs.tolist() for runs in found.shards.runs] == [[4, 5, 3], [3, 3]]
    assert found.notes == (
        "1 group of 4 in 'query' lies in several spans, files or ranges of a file: each part is ranked by itself",
    )
    assert not group_runs(Shards.of([(parts[0].folder, parts[0].result, "train")]), "query").notes


def test_records_that_cut_groups_are_taken_as_they_are():
    plain = [column.model_copy(update={"role": "feature"}) for column in COLUMNS[:2]] + [COLUMNS[2]]
    held = rows_in_memory(table([4, 5, 6, 3]), plain, rows_per_record=6)  # as ingest once wrote them
    found = group_runs(held, "query")
    assert [runs.tolist() for runs in found.shards.runs] == [[4, 2, 3, 3, 3, 3]]
    assert len(found.notes) == 1 and found.notes[0].startswith("2 groups of 4 in 'query' lie in ")
    assert dataclasses.replace(held) == held


def test_rows_of_a_group_that_do_not_lie_together_are_an_error_that_names_it(tmp_path):
    whole = table([4, 5, 6, 3])
    mixed = pa.concat_tables([whole, whole.slice(5, 2)])
    with pytest.raises(DataError) as caught:
        made(write_examples(tmp_path, {"train": mixed}, COLUMNS, shards=1))
    assert "the rows of 1 group of 4 in 'query' do not lie together, as those of 'q1'" in str(caught.value)
    torn = pa.concat_tables([whole.slice(0, 1), whole.slice(5, 1)] * 20)  # in each of the shards
    with pytest.raises(DataError, match="the rows of 2 groups of 2 in 'query' do not lie together"):
        made(write_examples(tmp_path / "torn", {"train": torn}, COLUMNS, shards=3))
    assert "sort the input by query" in str(caught.value)


def test_a_group_larger_than_a_batch_is_an_error_that_names_it(tmp_path):
    written = write_examples(tmp_path, {"train": table([4, 5, 33, 3, 32])}, COLUMNS, shards=1)
    with pytest.raises(DataError) as caught:
        made(written)
    assert "1 group of 'query' has more rows than a batch" in str(caught.value)
    assert "'q2' has 33, training.batch_size is 32" in str(caught.value)
    assert "training.batch_size: 64" in str(caught.value)
    made(written, batch_size=33)
    with pytest.raises(DataError, match="more rows than a batch"):  # a row that comes twice takes two places
        made(written, batch_size=40, sampling={"rates": {"1": 2.5}})


compiled = tf.function(group_splits, jit_compile=True, reduce_retracing=True)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 3), max_size=12))
def test_a_group_is_a_run_of_one_id(ids):
    lengths = [1] * bool(ids)
    for before, one in itertools.pairwise(ids):
        if one == before:
            lengths[-1] += 1
        else:
            lengths.append(1)
    expected = np.cumsum([0, *lengths, *[0] * (len(ids) - len(lengths))])
    for given_ids in (np.array(ids, np.int64), np.array([str(one) for one in ids], object)):
        splits = group_splits(tf.constant(given_ids, tf.int64 if given_ids.dtype == np.int64 else tf.string))
        np.testing.assert_array_equal(splits, expected)
    np.testing.assert_array_equal(row_groups(splits, len(ids)), np.repeat(np.arange(len(lengths)), lengths))


def test_the_shape_is_known_under_xla():
    splits = compiled(tf.constant([5, 5, 1, 5]))
    np.testing.assert_array_equal(splits, [0, 2, 3, 4, 4])
    traced = tf.function(group_splits).get_concrete_function(tf.TensorSpec([7], tf.int64))
    assert traced.outputs[0].shape == [8]


def test_ids_that_are_no_vector_are_refused():
    with pytest.raises(ValueError, match=r"ids is a vector, not of shape \(1, 2\)"):
        group_splits([[1, 2]])
