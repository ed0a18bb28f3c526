"""The rows on which a model is most wrong."""

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headway.evaluation.measure import MOST_ROWS, measure
from headway.evaluation.measured import Measured
from headway.evaluation.requests import MeasureRequest
from headway.monitor import Monitor


def measured(folder, task, label, prediction, columns=None, weight=None, **options):
    rows = len(label)
    table = {
        "row": np.arange(rows),
        "label": np.asarray(label),
        "weight": np.ones(rows) if weight is None else weight,
        "prediction": pa.array(list(prediction)) if np.ndim(prediction) > 1 else np.asarray(prediction),
        **(columns or {}),
    }
    pq.write_table(pa.table(table), folder / "p.parquet")
    request = MeasureRequest(task=task, predictions=folder / "p.parquet", slice_min_rows=20, **options)
    return Measured.model_validate(measure(request, folder, Monitor()))


def test_the_rows_of_the_greatest_losses_come_first_with_label_and_prediction(tmp_path):
    r = np.random.default_rng(1)
    label = r.normal(size=500)
    prediction = label + r.normal(size=500) * 0.1
    prediction[[17, 400]] = label[[17, 400]] + [9.0, -5.0]
    found = measured(tmp_path, "regression", label, prediction).worst_rows
    assert [each.row for each in found[:2]] == [17, 400] and len(found) == MOST_ROWS
    assert (found[0].label, found[0].prediction) == (label[17], prediction[17])
    assert found[0].loss > found[1].loss > found[2].loss


def test_values_are_told_only_of_the_columns_that_are_named(tmp_path):
    days = np.arange(100) + 15_000
    columns = {"secret": np.arange(100.0), "id": np.arange(100), "day": pa.array(days, mask=days == 15_004)}
    label, prediction = np.zeros(100), np.arange(100) / 50.0
    found = measured(tmp_path, "regression", label, prediction, columns, shown={"id": None, "day": "date"})
    day = str(datetime.date(1970, 1, 1) + datetime.timedelta(days=15_099))
    assert found.worst_rows[0].values == {"id": 99, "day": day}
    assert all(set(each.values) == {"id", "day"} for each in found.worst_rows)


def test_a_class_is_told_by_its_name_and_how_likely_the_label_was(tmp_path):
    prediction = np.tile([0.8, 0.15, 0.05], (60, 1))
    label = np.array([0] * 59 + [2])
    first = measured(tmp_path, "multiclass", label, prediction, classes=("cat", "dog", "eel")).worst_rows[0]
    assert (first.label, first.prediction, first.of_label) == ("eel", "cat", 0.05)


def test_rows_without_weight_count_for_nothing_and_of_equal_losses_the_first_are_told(tmp_path):
    weight = np.ones(100)
    weight[3] = 0.0
    prediction = np.full(100, 0.1)
    found = measured(tmp_path, "binary", np.ones(100, np.int64), prediction, weight=weight).worst_rows
    assert [each.row for each in found] == [row for row in range(MOST_ROWS + 1) if row != 3]


@pytest.mark.parametrize("predictions", [[0.1, np.nan] * 50, None])
def test_where_rows_have_no_loss_none_is_told(tmp_path, predictions):
    label = np.zeros(100, np.int64)
    task, values = ("binary", predictions) if predictions else ("regression", np.full(100, np.nan))
    assert measured(tmp_path, task, label, values).worst_rows == ()
