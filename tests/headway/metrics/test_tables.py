"""Every table equals scikit-learn's to 1e-9, with ties, weights and one class, and is empty without rows."""

import json

import numpy as np
import pytest
import sklearn.metrics as sk

from headway.metrics import tables
from headway.metrics.classification import decided
from headway.tasks.table import task_of
from tests.headway.evaluation.arrays import scored

TASKS = ("binary", "multiclass", "regression", "count", "quantiles(0.1, 0.5, 0.9)")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("weighted", [False, True])
def test_curves_are_scikit_learns(seed, weighted):
    rows = scored("binary", weighted, rows=700, seed=seed)
    found = tables.ROC.compute(rows)
    far, near, at = sk.roc_curve(rows.label, rows.prediction, sample_weight=rows.weight, drop_intermediate=False)
    assert found["threshold"][0] is None and found["threshold"][1:] == pytest.approx(at[1:], abs=1e-9)
    assert found["false_positive_rate"] == pytest.approx(far, abs=1e-9)
    assert found["true_positive_rate"] == pytest.approx(near, abs=1e-9)
    found = tables.PRECISION_RECALL.compute(rows)
    precision, recall, at = sk.precision_recall_curve(rows.label, rows.prediction, sample_weight=rows.weight)
    assert found["threshold"] == pytest.approx(at[::-1], abs=1e-9)
    assert found["precision"] == pytest.approx(precision[:-1][::-1], abs=1e-9)
    assert found["recall"] == pytest.approx(recall[:-1][::-1], abs=1e-9)


def test_a_long_curve_is_kept_in_few_exact_points_that_hold_its_area():
    r = np.random.default_rng(0)
    score = r.random(50_000)
    rows = task_of("binary").rows((r.random(50_000) < score**3).astype(float), score)
    for table, x, y in (
        (tables.ROC, "false_positive_rate", "true_positive_rate"),
        (tables.PRECISION_RECALL, "recall", "precision"),
    ):
        found = table.compute(rows)
        assert 100 < len(found[x]) <= tables.POINTS + 1
        if table is tables.ROC:
            assert (found[x][0], found[y][0], found[x][-1], found[y][-1]) == (0, 0, 1, 1)
            assert np.trapezoid(found[y], found[x]) == pytest.approx(sk.roc_auc_score(rows.label, score), abs=1e-3)
        reached = sk.recall_score(rows.label, score >= found["threshold"][50])
        assert found["true_positive_rate" if table is tables.ROC else "recall"][50] == pytest.approx(reached, abs=1e-9)


@pytest.mark.parametrize("task", ["binary", "multiclass"])
@pytest.mark.parametrize("weighted", [False, True])
def test_decisions_are_scikit_learns(task, weighted):
    rows = scored(task, weighted, rows=700)
    width = 2 if task == "binary" else 3
    chosen = rows.prediction >= 0.5 if task == "binary" else rows.prediction.argmax(1)
    found = tables.CONFUSION.compute(rows)
    matrix = np.zeros((width, width))
    matrix[found["label"], found["predicted"]] = found["weight"]
    assert matrix == pytest.approx(sk.confusion_matrix(rows.label, chosen, sample_weight=rows.weight), abs=1e-9)
    found = tables.PER_CLASS.compute(rows)
    expected = sk.precision_recall_fscore_support(rows.label, chosen, sample_weight=rows.weight, zero_division=0)
    for name, values in zip(("precision", "recall", "f1", "weight"), expected, strict=True):
        assert found[name] == pytest.approx(values, abs=1e-9)


def test_reliability_and_lift_add_up_to_the_rows():
    rows = scored("binary", rows=700)
    curve, lift = tables.RELIABILITY.compute(rows), tables.LIFT.compute(rows)
    assert sum(curve["rows"]) == len(rows) and sum(curve["weight"]) == pytest.approx(rows.total)
    for low, high, observed in zip(curve["low"], curve["high"], curve["label_mean"], strict=True):
        inside = (rows.prediction >= low) & (rows.prediction <= high)
        assert observed == pytest.approx(np.average(rows.label[inside], weights=rows.weight[inside]), abs=1e-9)
    assert lift["share_of_rows"][-1] == lift["share_of_positives"][-1] == pytest.approx(1)
    best = rows.prediction >= curve["low"][-1]
    for name, of in (("share_of_rows", rows.weight), ("share_of_positives", rows.weight * rows.label)):
        assert lift[name][0] == pytest.approx(of[best].sum() / of.sum(), abs=1e-9)


def test_residuals_by_tenths_are_those_of_their_rows():
    rows = scored("regression", rows=700)
    found = tables.RESIDUALS.compute(rows)
    assert sum(found["rows"]) == len(rows)
    for i, (low, high) in enumerate(zip(found["low"], found["high"], strict=True)):
        inside = (rows.prediction >= low) & (rows.prediction <= high)
        residual, weight = (rows.label - rows.prediction)[inside], rows.weight[inside]
        mean = np.average(residual, weights=weight)
        assert found["residual_mean"][i] == pytest.approx(mean, abs=1e-9)
        spread = np.average((residual - mean) ** 2, weights=weight)
        assert found["residual_deviation"][i] == pytest.approx(np.sqrt(spread), abs=1e-9)


def test_levels_have_the_coverage_of_each_quantile():
    rows = scored(TASKS[-1], rows=700)
    found = {table.name: table for table in task_of(TASKS[-1]).tables}["levels"].compute(rows)
    for i, below in enumerate(found["labels_below"]):
        share = np.average(rows.label <= rows.prediction[:, i], weights=rows.weight)
        assert below == pytest.approx(share, abs=1e-9)


@pytest.mark.parametrize("task", TASKS)
def test_tables_of_no_rows_of_no_weight_and_of_unknown_predictions_are_empty_and_all_are_json(task):
    rows = scored(task, rows=700)
    for table in task_of(task).tables:
        assert table.compute(rows.at(slice(0, 0))) == {} == table.compute(rows.predicted(rows.prediction * np.nan))
        assert table.compute(task_of(task).rows(rows.label, rows.prediction, 0 * rows.weight)) == {}
        found = table.compute(rows)
        assert found and len({len(values) for values in found.values()}) == 1
        json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("only", [0.0, 1.0])
def test_tables_of_one_class_say_what_is_undefined(only):
    rows = scored("binary", rows=700)
    rows = rows.at(rows.label == only)
    found = {table.name: table.compute(rows) for table in task_of("binary").tables}
    json.dumps(found, allow_nan=False)
    assert found["per_class"]["recall"][int(1 - only)] is None
    rate = found["roc"]["true_positive_rate" if only == 0 else "false_positive_rate"]
    assert rate == [None] * len(rate)
    assert (found["lift"]["share_of_positives"][0] is None) == (only == 0)


def test_a_confusion_of_many_classes_keeps_its_heaviest_pairs():
    r = np.random.default_rng(0)
    rows = task_of("multiclass").rows(r.integers(0, 50, 3000), r.dirichlet(np.ones(50), 3000))
    found = tables.CONFUSION.compute(rows)
    assert len(found["label"]) == tables.MOST_PAIRS and min(found["rows"]) > 0


def test_a_probability_of_a_half_is_decided_as_the_signature_classify_decides():
    assert decided(np.array([0.5, np.nextafter(0.5, 0)])).tolist() == [True, False]
