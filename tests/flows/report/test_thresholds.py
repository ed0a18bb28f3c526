"""The table of thresholds: its points are those of recounted rows, the one in use, none flagged and the cheapest among them."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.report.evaluation import thresholds
from headway.evaluation.results.measured import Measured
from headway.evaluation.results.request import MeasureRequest
from headway.evaluation.results.stage import measure
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


def wrong(table):
    """(false positives, false negatives) of each point, as the page's script reads them."""
    return np.array(table.data["wrong"].split(), float).reshape(-1, 2)


@pytest.mark.parametrize(
    "costs", [{"false_positive": 1, "false_negative": 1}, {"false_positive": 7, "false_negative": 2}]
)
def test_the_threshold_in_use_none_flagged_and_the_cheapest_are_points(tmp_path, costs):
    table, label, prediction, measured = told(tmp_path, np.ones(ROWS), costs)
    start, flagged = int(table.data["thresholds"].split()[2]), prediction >= measured.threshold.value
    expected = [int((flagged & (label == 0)).sum()), int((~flagged & (label == 1)).sum())]
    assert [table[start]["false positives"], table[start]["false negatives"]] == expected
    assert table[-1]["flagged"] == "0.0%" and table[-1]["false negatives"] == label.sum()
    points, each = wrong(table), list(costs.values())
    cheapest = min(
        each[0] * ((p := prediction >= t) & (label == 0)).sum() + each[1] * (~p & (label == 1)).sum()
        for t in measured.tables["precision_recall"]["threshold"]
    )
    assert (points @ each).min() == min(cheapest, each[1] * label.sum())


def test_rows_with_weights_are_summed_and_not_rounded(tmp_path):
    weight = np.random.default_rng(1).uniform(0.0001, 0.002, ROWS)
    table, label, prediction, measured = told(tmp_path, weight)
    at = [float(row["threshold"]) for row in table[1:-1]]
    assert "sums of the rows' weights" in table.note and len(at) > 20
    missed = weight[(prediction < measured.threshold.value) & (label == 1)].sum()
    start = int(table.data["thresholds"].split()[2])
    assert wrong(table)[start][1] == pytest.approx(missed, rel=1e-9) and 0 < missed < 0.5
    assert table[start]["false negatives"] == pytest.approx(missed) and float(table[start]["cost"]) > 0
