"""Parts of dates in the graph are Python's calendar, and what `auto` makes of a date is what varies in it."""

import datetime as dt
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import ConfigError
from headway.schema.calendar_days import PARTS, part_of, parts_of
from headway.schema.columns import Column
from headway.statistics.split_statistics import SplitStatistics
from tfcore.transform.config import ColumnTransform
from tfcore.transform.fit import fit_parameters
from tfcore.transform.layer import Transform
from tfcore.transform.raw_column import RawColumn

LABEL = Column(name="label", type="int64", nullable=False, role="label")
EPOCH = dt.datetime(1970, 1, 1)
EDGES = [
    dt.datetime(1, 1, 1),
    dt.datetime(1900, 2, 28, 23, 59, 59),
    dt.datetime(2000, 2, 29),
    dt.datetime(9999, 12, 31, 23),
]


@cache
def _graph(temporal):
    """All parts of times as one graph for any number of them."""
    names = [part for part in PARTS if temporal == "timestamp" or part not in ("hour", "minute", "second", "elapsed")]
    times = [tf.TensorSpec([None], tf.int64)]
    return tf.function(
        lambda values: {part: part_of(values, temporal, part) for part in names}, input_signature=times, autograph=False
    )


@settings(max_examples=50, deadline=None)
@given(st.lists(st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)), max_size=50))
def test_parts_of_any_time_are_those_of_the_calendar(some):
    moments = [*EDGES, *some]
    micros = np.array([(m - EPOCH) // dt.timedelta(microseconds=1) for m in moments], np.int64)
    days = np.array([(m.date() - EPOCH.date()).days for m in moments], np.int64)
    python = {
        "year": [m.year for m in moments],
        "quarter": [(m.month + 2) // 3 for m in moments],
        "month": [m.month for m in moments],
        "week": [m.isocalendar().week for m in moments],
        "day": [m.day for m in moments],
        "day_of_year": [m.timetuple().tm_yday for m in moments],
        "weekday": [m.weekday() for m in moments],
        "hour": [m.hour for m in moments],
        "minute": [m.minute for m in moments],
        "second": [m.second for m in moments],
        "elapsed": micros.tolist(),
    }
    assert set(python) == set(PARTS)
    of_times, of_days = _graph("timestamp")(micros), _graph("date")(days)
    assert of_times.keys() == python.keys()
    assert of_days.keys() == python.keys() - {"hour", "minute", "second", "elapsed"}
    for part, wanted in python.items():
        assert of_times[part].numpy().tolist() == wanted, part
        assert parts_of(micros, "timestamp", part).tolist() == wanted, part
    for part, found in of_days.items():
        assert found.numpy().tolist() == python[part], part


def _fitted(days, temporal="date", transform="auto"):
    column = Column(name="day", type="int64", nullable=True, temporal=temporal)
    batch = pa.record_batch({"day": pa.array(days, pa.int64()), "label": [i % 2 for i in range(len(days))]})
    statistics = SplitStatistics.create((column, LABEL))
    statistics.update(batch)
    return fit_parameters((column, LABEL), {"day": ColumnTransform(transform=transform)}, statistics)[0]


def test_auto_takes_the_parts_that_vary_and_serving_takes_the_date_alone():
    parameters = _fitted([*range(15706, 15706 + 500), None])  # 2013 and the first half of 2014
    assert [part.part for part in parameters.parts] == ["year", "month", "weekday"]
    assert [column.name for column in parameters.raw] == ["day"]
    assert parameters.numeric == ("day__year", "day__year__missing")
    assert [(c.name, c.size) for c in parameters.categorical] == [("day__month", 14), ("day__weekday", 9)]
    known = tf.constant([True, False])
    made = Transform(parameters).named({"day": RawColumn(tf.constant([15706, 0], tf.int64), known)})
    assert made["day__month"].numpy().tolist() == [0, 13] and made["day__weekday"].numpy().tolist() == [1, 8]
    assert made["day__year__missing"].numpy().tolist() == [0.0, 1.0]
    within_a_week = _fitted(list(range(15706, 15713)))
    assert [part.part for part in within_a_week.parts] == ["weekday"]
    seconds = _fitted([15706 * 86_400_000_000 + i * 1_000_000 for i in range(60)], "timestamp")
    assert [part.part for part in seconds.parts] == ["elapsed"]


def test_parts_are_chosen_and_refused_where_there_are_none():
    chosen = _fitted([*range(15706, 16206)], transform={"date_parts": ["week", "day_of_year"]})
    assert chosen.numeric == ("day__day_of_year",) and [c.name for c in chosen.categorical] == ["day__week"]
    with pytest.raises(ConfigError, match="have no hour"):
        _fitted([*range(15706, 16206)], transform={"date_parts": "hour"})
    with pytest.raises(ConfigError, match="needs a date or a time") as error:
        _fitted([*range(15706, 16206)], temporal=None, transform={"date_parts": ["week"]})
    assert "parse" in error.value.fix
    for wrong, told in [
        (["log", {"date_parts": ["week"]}], "no other operations"),
        ({"date_parts": ["week", "week"]}, "twice"),
    ]:
        with pytest.raises(ValueError, match=told):
            ColumnTransform(transform=wrong)
