"""The table of thresholds: its points are those of recounted rows, the one in use and the cheapest among them."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.report.evaluation import thresholds
from headway.evaluation.measure import measure
from headway.evaluation.measured import Measured
from headway.evaluation.requests import MeasureRequest
from headway.messages import number
from headway.monitor import Monitor

ROWS = 4000


def told(folder, weight, costs=None):
    """(the table, label, prediction, measured)"""
    r = np.random.default_rng(3)
    label = (r.random(ROWS) < 0.1).astype(int)
    prediction = 1 / (1 + np.exp(3 - 2 * label - r.normal(size=ROWS)))
    columns = {"row": np.arange(ROWS), "label": label, "weight": weight, "prediction": prediction}
    pq.write_table(pa.table(columns), folder / "p.parquet")
    request = {"task": "binary", "predictions": folder / "p.parquet", "threshold": {"recall": 0.42}}
    measured = Measured.model_validate(measure(MeasureRequest.model_validate(request), folder, Monitor()))
    rule = {"threshold": {"cost": costs}} if costs else {}
    results = SimpleNamespace(measured=measured, key=lambda stage: {"config": rule})
    (table,) = thresholds(results)
    return table, label, prediction, measured


def in_use(table):
    """The row of the threshold that decides."""
    return next(row for row in table if row["threshold"].endswith(", in use"))


@pytest.mark.parametrize(
    "costs", [{"false_positive": 1, "false_negative": 1}, {"false_positive": 7, "false_negative": 2}]
)
def test_the_threshold_in_use_and_the_cheapest_are_points(tmp_path, costs):
    table, label, prediction, measured = told(tmp_path, np.ones(ROWS), costs)
    flagged = prediction >= measured.threshold.value
    expected = [int((flagged & (label == 0)).sum()), int((~flagged & (label == 1)).sum())]
    assert [in_use(table)["false positives"], in_use(table)["false negatives"]] == expected
    assert in_use(table)["precision"] == number((flagged & (label == 1)).sum() / flagged.sum())
    each = list(costs.values())
    cheapest = min(
        each[0] * ((p := prediction >= t) & (label == 0)).sum() + each[1] * (~p & (label == 1)).sum()
        for t in measured.tables["precision_recall"]["threshold"]
    )
    assert min(each[0] * row["false positives"] + each[1] * row["false negatives"] for row in table) == cheapest


def test_rows_with_weights_are_summed_and_not_rounded(tmp_path):
    weight = np.random.default_rng(1).uniform(0.0001, 0.002, ROWS)
    table, label, prediction, measured = told(tmp_path, weight)
    assert "sums of the rows' weights" in table.note and 20 <= len(table) <= 23
    missed = weight[(prediction < measured.threshold.value) & (label == 1)].sum()
    assert in_use(table)["false negatives"] == pytest.approx(missed, rel=1e-9) and 0 < missed < 0.5
    assert float(in_use(table)["cost"]) > 0
