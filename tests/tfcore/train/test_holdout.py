"""tfcore.train.rows: what the split keeps together is trained on or held out, never both."""

import datetime
import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.errors import DataError
from headway.schema.columns import UNIT, UNIT_COLUMN, Column
from tests.example_shards import write_examples
from tfcore.data.reader import Shards, kept_rows
from tfcore.train.config import TrainingConfig
from tfcore.train.request import TimeSplit, TrainRequest, TrialConfig
from tfcore.train.rows import draw_holdout, training_data

LABEL = Column(name="label", type="int64", nullable=False, role="label")
X = Column(name="x", type="float32", nullable=False)
GROUP = Column(name="query", type="bytes", nullable=True, encoding="dictionary", role="group")
DAY = Column(name="day", type="int64", nullable=False, temporal="date")
TEXT = Column(name="day", type="bytes", nullable=False, encoding="dictionary")


def written(folder, values, column, *, rows_per_record=4096, shards=2, span="all"):
    """Shards of rows that say their number, with another column."""
    rows = len(values)
    columns = (X, LABEL, column)
    table = pa.table(
        {
            "x": pa.array(np.arange(rows), pa.float32()),
            "label": pa.array(np.arange(rows) % 2),
            column.name: pa.array(values, column.arrow),
        }
    )
    splits = {"train": table}
    return write_examples(folder, splits, columns, shards=shards, span=span)


def shards_of(*parts):
    return Shards.of([(part.folder, part.result, "train") for part in parts])


def asked(part, training, **more):
    return TrainRequest(examples=(part.part("train"),), transform=part.fit(task="binary"), training=training, **more)


def held(shards, share, group=None, latest=None):
    """Whether each row is held out; bool [rows]."""
    drawn = draw_holdout(shards, share, group=group, latest=latest)
    if drawn.holdout is None:
        assert drawn.problem
        return None
    return np.concatenate([drawn.holdout.row_mask(i, sum(rows)) for i, rows in enumerate(shards.rows)])


@settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    units=st.lists(st.one_of(st.none(), st.integers(0, 30)), min_size=4, max_size=200),
    share=st.sampled_from([0.05, 0.2, 0.5]),
    by_group=st.booleans(),
)
def test_no_unit_is_held_out_and_trained_on(tmp_path_factory, units, share, by_group):
    """Nor is anything else lost: every row is on one side."""
    values = [None if unit is None else f"q{unit}".encode() for unit in units] if by_group else units
    folder = tmp_path_factory.mktemp("units")
    column = GROUP if by_group else UNIT_COLUMN
    part = written(folder, values, column)
    values = [value for piece in cut(part, values, by_group) for value in piece]
    mask = held(shards_of(part), share, group="query" if by_group else None)
    sizes = [1 if unit == "None" else len(list(rows)) for unit, rows in itertools.groupby(sorted(map(str, values)))]
    distinct = len(set(values) - {None}) + values.count(None)
    if mask is None:
        assert distinct < 2 or max(sizes) * 2 > len(values)
        return
    out, on = ([v for v, m in zip(values, mask, strict=True) if m == side and v is not None] for side in (True, False))
    assert not set(out) & set(on) and 0 < mask.sum() <= len(values) / 2


def cut(part, values, by_group):
    """The values as shards hold them: a table is cut into shards where a group ends."""
    at = 0
    for shard in part.result["splits"]["train"]["shards"]:
        rows = sum(size * count for size, count in shard["rows"])
        yield values[at : at + rows]
        at += rows


def test_many_units_give_about_the_share_and_batches_have_none_of_them(tmp_path):
    units = np.random.default_rng(1).integers(0, 300, 3000)
    part = written(tmp_path, units, UNIT_COLUMN)
    training = TrainingConfig(steps=30, batch_size=64, jit="off", early_stopping={"holdout": 0.2})
    data = training_data(asked(part, training))
    assert data.rows.held_out_count + data.rows.count == 3000 and abs(data.rows.held_out_count - 600) < 30
    mean, std = np.arange(3000).mean(), np.arange(3000).std()  # x is standardized

    def rows(batches):
        numbers = [b["numeric"].numpy().reshape(-1)[b["weight"].numpy().reshape(-1) > 0] for b in batches]
        return np.round(np.concatenate(numbers) * std + mean).astype(int)

    out = rows(data.holdout())
    on = rows(stack for stack, _ in zip(data.stack_reader(8)(0), range(4), strict=False))
    assert len(out) == data.rows.held_out_count and not set(units[out]) & set(units[on])


def test_where_units_are_few_one_is_held_out_and_one_is_left(tmp_path):
    for number, units in enumerate(([1] * 50 + [2] * 30 + [3] * 40, [5] * 60 + [6] * 60, [7] * 90 + [8] * 5 + [9] * 5)):
        part = written(tmp_path / str(number), units, UNIT_COLUMN)
        mask = held(shards_of(part), 0.1)
        assert (mask == held(shards_of(part), 0.1)).all(), "drawn again"
        out = set(np.asarray(units)[mask])
        assert out and out < set(units) and 7 not in out  # which most rows have


def test_one_unit_trains_without_a_holdout_and_a_trial_of_it_says_why(tmp_path):
    part = written(tmp_path, [4] * 500, UNIT_COLUMN)
    training = TrainingConfig(steps=20, batch_size=16, jit="off", early_stopping={})
    data = training_data(asked(part, training))
    assert data.rows.held_out is None and data.rows.count == 500
    assert "nothing stops the training early" in data.rows.notes[0]
    with pytest.raises(DataError, match="no holdout to judge by: one unit that the split keeps together"):
        training_data(asked(part, training, trial=TrialConfig(holdout=0.2)))


def test_by_time_the_last_spans_are_held_out_where_they_are_about_the_share(tmp_path):
    parts = [
        written(tmp_path / str(i), [0] * rows, X.model_copy(update={"name": "z"}))
        for i, rows in enumerate((400, 500, 100))
    ]
    shards, latest = shards_of(*parts), TimeSplit(column=None)
    assert np.flatnonzero(held(shards, 0.12, latest=latest)).tolist() == list(range(900, 1000))
    assert np.flatnonzero(held(shards, 0.03, latest=latest)).tolist() == list(range(970, 1000))
    assert held(shards, 0.3, latest=latest).sum() == 300  # the last span is too little, two of them too much
    assert held(shards_of(parts[0]), 0.25, latest=latest).sum() == 100


@pytest.mark.parametrize("column", [DAY, TEXT], ids=["dates", "texts"])
def test_by_a_column_its_latest_values_are_held_out_whole(tmp_path, column):
    days = np.random.default_rng(0).integers(0, 40, 2000)
    texts = [(datetime.date(2020, 1, 1) + datetime.timedelta(int(day))).isoformat().encode() for day in days]
    part = written(tmp_path, texts if column is TEXT else days, column)
    mask = held(shards_of(part), 0.1, latest=TimeSplit(column="day"))
    assert days[mask].min() > days[~mask].max() and 150 < mask.sum() < 250


def test_a_column_that_is_not_stored_leaves_the_last_rows(tmp_path):
    shards = shards_of(written(tmp_path, [0] * 100, X.model_copy(update={"name": "z"})))
    assert np.flatnonzero(held(shards, 0.1, latest=TimeSplit(column="gone"))).tolist() == list(range(90, 100))


def test_units_of_a_split_by_a_column_go_with_their_latest_row(tmp_path):
    rng = np.random.default_rng(3)
    units, days = rng.integers(0, 50, 1000), rng.integers(0, 400, 1000)
    table = pa.table(
        {"x": pa.array(np.arange(1000), pa.float32()), "label": np.arange(1000) % 2, "day": days, UNIT: units}
    )
    part = write_examples(tmp_path, {"train": table}, (X, LABEL, DAY, UNIT_COLUMN), shards=3)
    mask = held(shards_of(part), 0.3, latest=TimeSplit(column="day"))
    last = np.array([days[units == unit].max() for unit in range(50)])
    assert not set(units[mask]) & set(units[~mask]) and last[units[mask]].min() > last[units[~mask]].max()


def test_counts_of_records_are_those_of_the_mask(tmp_path):
    units = np.random.default_rng(2).integers(0, 20, 700)
    shards = shards_of(written(tmp_path, units, UNIT_COLUMN, rows_per_record=64, shards=3))
    holdout = draw_holdout(shards, 0.3, group=None, latest=None).holdout
    inside, outside = (np.concatenate(kept_rows(shards, each)) for each in (holdout, holdout.inverse))
    assert (inside + outside == np.concatenate([np.asarray(rows) for rows in shards.rows])).all()
    assert 0 < inside.sum() < outside.sum()
