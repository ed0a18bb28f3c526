"""The frequent values of a number are a category beside it, the same in the graph as in the train rows."""

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from headway.schema.columns import Column
from headway.statistics.split_statistics import SplitStatistics
from tfcore.transform.config import ColumnTransform
from tfcore.transform.layer import Transform
from tfcore.transform.parameters import fit_parameters
from tfcore.transform.raw_column import RawColumn

LABEL = Column(name="label", type="int64", nullable=False, role="label")
SPIKED = [0.0, 999.0, 0.1] * 20 + [float(k) + 0.5 for k in range(100)]


def _fitted(values, kind="float32", frequent=0.05, transform="auto"):
    column = Column(name="wait", type=kind, nullable=True)
    types = {"float32": pa.float32(), "int64": pa.int64(), "bytes": pa.binary()}
    batch = pa.record_batch({"wait": pa.array(values, types[kind]), "label": [i % 2 for i in range(len(values))]})
    statistics = SplitStatistics.create([column, LABEL])
    statistics.update(batch)
    config = ColumnTransform(transform=transform, frequent=frequent)
    return fit_parameters([column], {"wait": config}, statistics)


def _ids(parameters, values, dtype):
    present = tf.constant([value is not None for value in values])
    raw = RawColumn(values=tf.constant([value or 0 for value in values], dtype), present=present, codes=None)
    inputs = Transform(parameters).named({"wait": raw})
    return inputs["wait"].numpy(), inputs["wait__value"].numpy().tolist()


@pytest.mark.parametrize("kind", ["float32", "int64"])
def test_each_frequent_value_has_an_id_of_its_own_and_the_number_stays(kind):
    values = SPIKED if kind == "float32" else [int(value * 100) for value in SPIKED]
    parameters, notes = _fitted([*values, None], kind)
    assert notes == [] and parameters.raw[0].name == "wait" and len(parameters.raw) == 1
    assert parameters.numeric == ("wait", "wait__missing")
    spikes, between = [values[0], values[2], values[1]], [values[60], values[61], values[159], values[1] + 1]
    asked = [*spikes, *between, None]
    number, ids = _ids(parameters, asked, tf.float32 if kind == "float32" else tf.int64)
    assert ids[:3] == [1, 3, 5], "below, 0, between, 0.1, between, 999, above"
    assert ids[3:7] == [4, 4, 4, 6] and ids[7] == parameters.categorical[0].size - 1 == 7
    assert np.all(np.diff(number[:3]) > 0)


def test_the_values_next_to_a_frequent_one_are_not_that_one():
    parameters, _ = _fitted(SPIKED)
    beside = [np.nextafter(np.float32(0.1), np.float32(side)) for side in (0, 1)]
    assert _ids(parameters, [*beside, np.float32(0.1), float("nan")], tf.float32)[1] == [2, 4, 3, 7]


@pytest.mark.parametrize(
    ("values", "kind"),
    [([float(k) for k in range(100)], "float32"), ([0, 1] * 50, "int64")],
)
def test_where_no_value_is_frequent_or_there_are_two_nothing_is_added_and_a_note_says_so(values, kind):
    parameters, notes = _fitted(values, kind)
    assert parameters.parts == () and "wait__value" not in str(parameters.model_dump())
    assert any("no wait__value" in note.text for note in notes)


def test_a_date_has_none_and_a_note_says_so():
    column = Column(name="day", type="int64", nullable=True, temporal="date")
    batch = pa.record_batch({"day": [0, 0, 400] * 30, "label": [0, 1] * 45})
    statistics = SplitStatistics.create([column, LABEL])
    statistics.update(batch)
    parameters, notes = fit_parameters([column], {"day": ColumnTransform(frequent=0.05)}, statistics)
    assert any("no day__value: it is a date or a time" in note.text for note in notes)
    assert "day__value" not in {part.name for part in parameters.parts}
