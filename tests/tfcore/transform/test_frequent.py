"""The frequent values of a number are a category beside it, the same in the graph as in the train rows."""

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from headway.schema.columns import Column
from headway.stages.refs import Ref
from headway.statistics.split_statistics import SplitStatistics
from tfcore.transform.config import ColumnTransform
from tfcore.transform.layer import Transform
from tfcore.transform.parameters import TransformRequest, fit_parameters
from tfcore.transform.raw_column import RawColumn

LABEL = Column(name="label", type="int64", nullable=False, role="label")
SPIKED = [0.0, 999.0, 0.1] * 20 + [float(k) + 0.5 for k in range(100)]


def _fitted(values, kind="float32", frequent=0.05, transform="auto", recurring=False):
    column = Column(name="wait", type=kind, nullable=True)
    types = {"float32": pa.float32(), "int64": pa.int64(), "bytes": pa.binary()}
    batch = pa.record_batch({"wait": pa.array(values, types[kind]), "label": [i % 2 for i in range(len(values))]})
    statistics = SplitStatistics.create([column, LABEL])
    statistics.update(batch)
    config = ColumnTransform(transform=transform, frequent=frequent)
    return fit_parameters([column], {"wait": config}, statistics, recurring=recurring)


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


@pytest.mark.parametrize("kind", ["float32", "int64"])
def test_of_a_number_that_recurs_each_value_but_single_ones_is_a_category_where_a_model_asks(kind):
    values = [7 * k for k in range(60) for _ in range(11)] + [1000]
    parameters, notes = _fitted(values, kind, frequent=None, recurring=True)
    assert notes == [] and parameters.numeric == ("wait",)
    _, ids = _ids(parameters, values[::11], tf.float32 if kind == "float32" else tf.int64)
    assert len(set(ids)) == 61, "the single one shares the id of the range above"
    often = _fitted(values, kind, recurring=True)[0]
    assert [category.name for category in often.categorical] == [], "a share that is given counts"
    assert _fitted(values, kind, frequent=None)[0].parts == ()


@pytest.mark.parametrize("values", [[*range(60)] * 9, [0, 1] * 60], ids=["rare", "two"])
def test_a_number_of_few_rows_per_value_or_of_two_values_has_no_second_one(values):
    parameters, notes = _fitted(values, "int64", frequent=None, recurring=True)
    assert parameters.parts == () and notes == []


def test_an_integer_of_few_values_keeps_its_order_where_a_model_asks():
    values = [*range(20)] * 20
    alone, both = (_fitted(values, "int64", frequent=None, recurring=asked)[0] for asked in (False, True))
    assert alone.numeric == () and [category.name for category in alone.categorical] == ["wait"]
    assert both.numeric == ("wait",) and [category.name for category in both.categorical] == ["wait__value"]
    given = _fitted(values, "int64", frequent=None, transform="vocabulary", recurring=True)[0]
    assert given.numeric == () and given.parts == (), "what the user says counts"


def test_a_transform_that_an_earlier_headway_made_with_recurring_is_made_anew_and_others_are_not():
    request = TransformRequest(transforms={}, columns=(LABEL,), statistics=Ref(stage="statistics", fingerprint="a"))
    earlier = request.key()
    assert request.model_copy(update={"recurring": True}).key() not in (earlier, earlier | {"recurring": True})
    assert "recurring" not in earlier


def test_many_numbers_that_recur_are_no_categories_such_as_pixels():
    columns = [Column(name=f"p{place}", type="float32", nullable=False) for place in range(33)]
    statistics = SplitStatistics.create([*columns, LABEL])
    rows = {c.name: pa.array([k % 10 for k in range(100)], pa.float32()) for c in columns}
    statistics.update(pa.record_batch(rows | {"label": [k % 2 for k in range(100)]}))
    assert fit_parameters(columns, {}, statistics, recurring=True)[0].parts == ()
    assert len(fit_parameters(columns[1:], {}, statistics, recurring=True)[0].parts) == 32
