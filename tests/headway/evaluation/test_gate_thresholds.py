"""Absolute thresholds on slices: each value, one value, and what cannot be checked."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.report.verdict import explain
from headway.evaluation import predictions
from headway.evaluation.config import GateConfig
from headway.evaluation.gate import decide
from headway.evaluation.requests import Candidate, GateRequest


def verdict(tmp_path, thresholds, **config):
    """Of 4,000 rows: UA is predicted well, AA is not at all, HA has 50 rows."""
    r = np.random.default_rng(0)
    carrier = np.array(["HA"] * 50 + ["AA"] * 1000 + ["UA"] * 2950)
    z = r.normal(size=4000)
    label = (r.random(4000) < 1 / (1 + np.exp(1 - 2 * z))).astype(int)
    prediction = 1 / (1 + np.exp(1 - 2 * np.where(carrier == "AA", r.normal(size=4000), z)))
    columns = {"label": label, "prediction": prediction, "carrier": carrier, "distance": np.arange(4000.0)}
    pq.write_table(pa.table(columns), tmp_path / "p.parquet")
    candidate = Candidate(model="new", predictions=tmp_path / "p.parquet")
    return decide(GateRequest(task="binary", config=GateConfig(thresholds=thresholds, **config), candidate=candidate))


def reasons(found):
    return " | ".join(explain(found).sentences)


def test_a_slice_below_its_bound_rejects_and_names_value_and_rows(tmp_path):
    found = verdict(tmp_path, {"auc": {"min": 0.6, "slices": {"carrier": {"min": 0.7}}}})
    assert found.status == "rejected"
    assert "auc on carrier=AA (1,000 rows) is 0.4" in reasons(found) and "minimum of 0.7" in reasons(found)
    assert "auc was not checked on 1 value of carrier with fewer than 200 rows (gate.slice_min_rows)" in reasons(found)
    assert "carrier=UA" not in reasons(found) and "HA" not in reasons(found)
    failed = next(check for check in found.checks if check.name == "threshold" and not check.passed)
    assert (failed.slice, failed.slice_value, failed.rows, failed.allowed) == ("carrier", "AA", 1000, 0.7)


def test_met_thresholds_name_the_value_that_is_nearest_to_the_limit(tmp_path):
    found = verdict(tmp_path, {"auc": {"slices": {"carrier": {"min": 0.4}, "carrier=UA": {"min": 0.75}}}})
    assert found.promote, reasons(found)
    assert "auc on carrier=AA is 0.4" in reasons(found)
    assert "auc on carrier=UA is 0.8" in reasons(found) and "at least 0.75 is required" in reasons(found)


def test_a_slice_without_positives_does_not_reject_a_model_that_is_right_there(tmp_path):
    carrier = np.repeat(["UA", "AA"], 1000)
    label = np.where(carrier == "UA", np.arange(2000) % 2, 0)
    columns = {"label": label, "prediction": np.where(label == 1, 0.9, 0.1), "carrier": carrier}
    pq.write_table(pa.table(columns), tmp_path / "p.parquet")
    candidate = Candidate(model="new", predictions=tmp_path / "p.parquet")
    config = GateConfig(thresholds={"f1": {"min": 0.9, "slices": {"carrier": {"min": 0.9}}}})
    found = decide(GateRequest(task="binary", config=config, candidate=candidate))
    assert found.promote, reasons(found)
    assert "f1 was not checked on 1 value of carrier on which it has no value" in reasons(found)


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("carrier=HA", "auc cannot be checked on carrier=HA: it has fewer than 200 rows (gate.slice_min_rows)"),
        ("carrier=XX", "auc cannot be checked on carrier=XX: no evaluation row that was judged has this value"),
        ("carrier x label", "auc cannot be checked on carrier x label: no value of carrier x label has 200 rows"),
    ],
)
def test_what_is_named_and_cannot_be_checked_rejects(tmp_path, key, why):
    found = verdict(tmp_path, {"auc": {"slices": {key: {"min": 0.1}}}})
    assert found.status == "rejected" and why in reasons(found), reasons(found)


@pytest.fixture
def sampled(monkeypatch):
    """More than 1,000 rows are many."""
    monkeypatch.setattr(predictions, "MOST_ROWS", 1000)


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("carrier=HA", "it has fewer than 40 rows (gate.slice_min_rows)"),
        ("carrier=XX", "no evaluation row that was judged has this value"),
    ],
)
def test_of_many_rows_a_value_needs_its_rows_in_the_sample(tmp_path, sampled, key, why):
    found = verdict(tmp_path, {"auc": {"slices": {key: {"min": 0.1}}}}, slice_min_rows=40)
    assert found.status == "rejected" and f"auc cannot be checked on {key}: {why}" in reasons(found)
    every = verdict(tmp_path, {"auc": {"slices": {"carrier": {"min": 0.1}}}}, slice_min_rows=40)
    assert every.promote and "judged on a random sample of " in reasons(every)
    assert "auc was not checked on 1 value of carrier with fewer than 40 rows (gate.slice_min_rows)" in reasons(every)


def test_bins_and_crossed_slices_are_written_as_evaluation_writes_them(tmp_path):
    found = verdict(tmp_path, {"loss": {"slices": {"distance: 2": {"max": 0.01}}}})
    assert "loss on distance <= 1,999 (2,000 rows) is" in reasons(found).replace("1999", "1,999")
    assert verdict(tmp_path, {"auc": {"slices": {"carrier=HA": {"min": 0.1}}}}, slice_min_rows=20).promote
