"""The constant that a candidate has to beat: the best one for each metric, and chance taken into account."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headway.evaluation import baseline
from headway.evaluation.gate import Candidate, GateRequest, decide
from headway.evaluation.gate_config import GateConfig
from headway.evaluation.metrics import metrics_of
from headway.metrics.base import Rows
from headway.tasks.base import LabelFacts
from headway.tasks.table import task_of


def rows(label, prediction, weight=None, **more):
    label = np.asarray(label, np.float64)
    return Rows(label, np.asarray(prediction, np.float64), np.ones(len(label)) if weight is None else weight, **more)


def constant(task, facts, data, ndcg_at=None):
    return baseline.constant(task_of(task), facts, data, metrics_of(task, ndcg_at))


def judged(task, facts, data, *, primary, metrics, ndcg_at=None):
    by_name = {metric.name: metric for metric in metrics_of(task, ndcg_at)}
    ordered = [by_name[name] for name in dict.fromkeys((primary, *metrics))]
    return baseline.beats(task_of(task), facts, data, metrics=ordered, confidence=0.95, samples=100)


def test_each_metric_has_its_best_constant():
    label = (np.arange(1000) < 120).astype(float)
    found = constant("binary", LabelFacts(counts=(880, 120)), rows(label, label))
    assert found["auc"] == 0.5 and found["accuracy"] == 0.88 and found["calibration"] == pytest.approx(1)
    assert found["loss"] == pytest.approx(-(0.12 * np.log(0.12) + 0.88 * np.log(0.88)))
    classes = np.repeat([0, 1, 2], [20, 50, 30])
    found = constant("multiclass", LabelFacts(counts=(20, 50, 30)), rows(classes, np.full((100, 3), 1 / 3)))
    assert found["accuracy"] == 0.5
    values = np.random.default_rng(0).exponential(size=4001)
    facts = LabelFacts(mean=float(values.mean()), median=float(np.median(values)))
    found = constant("regression", facts, rows(values, values))
    assert found["rmse"] == pytest.approx(values.std()) and found["prediction_mean"] == pytest.approx(values.mean())
    assert found["mae"] == pytest.approx(np.abs(values - np.median(values)).mean())
    groups = np.repeat(np.arange(50), 4)
    label = np.tile([1.0, 0, 0, 0], 50)
    found = constant("binary", LabelFacts(counts=(3, 1)), rows(label, label, groups=groups), ndcg_at=4)
    assert found["ndcg"] == pytest.approx(np.mean([1 / np.log2(1 + rank) for rank in (1, 2, 3, 4)]))
    assert constant("binary", LabelFacts(), rows(label, label)) is None


def test_a_random_order_does_not_beat_the_constant():
    r = np.random.default_rng(0)
    groups, label = np.repeat(np.arange(2000), 8), (r.random(16_000) < 0.2).astype(float)
    data = rows(label, r.random(16_000), groups=groups)
    for primary in ("ndcg", "mrr"):
        found = judged("binary", LabelFacts(counts=(8, 2)), data, primary=primary, metrics=("ndcg", "mrr"), ndcg_at=5)
        assert not found.passed, found
    known = rows(label, np.clip(r.random(16_000) + 0.2 * label, 0, 1), groups=groups)
    assert judged("binary", LabelFacts(counts=(8, 2)), known, primary="mrr", metrics=("ndcg", "mrr"), ndcg_at=5).passed


@pytest.mark.slow
def test_learning_nothing_fails_on_many_rows_and_rarely_costs_a_good_model_on_few():
    """Simulated: first models that know nothing, and models of an AUC of 0.76 on 30 rows."""
    facts, metrics = LabelFacts(counts=(700, 300)), ("auc", "loss")
    passed = {"nothing": 0, "good": 0}
    for seed in range(200):
        r = np.random.default_rng(seed)
        label = (r.random(2000) < 0.3).astype(float)
        data = rows(label, 0.3 + 0.02 * r.normal(size=2000))
        passed["nothing"] += judged("binary", facts, data, primary="auc", metrics=metrics).passed
        label = np.arange(30) % 3 == 0
        score = 1 / (1 + np.exp(0.8 - label - r.normal(size=30)))
        passed["good"] += judged("binary", facts, rows(label, score), primary="auc", metrics=metrics).passed
    # beyond chance on one side of 95%: 2.5% by auc, and the loss of noise is not better than the constant's
    assert passed["nothing"] <= 0.07 * 200
    assert passed["good"] >= 0.98 * 200


def test_the_majority_class_may_be_all_that_accuracy_can_say():
    r = np.random.default_rng(0)
    rare = r.random(3000) < 0.05
    label = np.where(rare, 1 + (r.random(3000) < 0.5), 0)
    likely = np.where(rare, 0.3, 0.02)  # it knows who is rare, and still says the majority class
    prediction = np.stack([1 - 2 * likely, likely, likely], 1)
    facts = LabelFacts(counts=(950, 25, 25))
    found = judged("multiclass", facts, rows(label, prediction), primary="accuracy", metrics=("loss", "accuracy"))
    assert found.passed and "loss is" in found.reason and "accuracy is 0.9467 (constant 0.9467)" in found.reason
    found = judged("multiclass", facts, rows(label, prediction[::-1]), primary="accuracy", metrics=("loss", "accuracy"))
    assert not found.passed and "does not beat the constant baseline: accuracy is" in found.reason


def test_a_few_steps_of_training_on_36_rows_are_not_promoted(tmp_path):
    """As wine is after three epochs: 0.33 accuracy where the most frequent class has 0.44."""
    label = np.repeat([0, 1, 2], [12, 16, 8])
    prediction = np.tile([0.36, 0.31, 0.33], (36, 1))
    pq.write_table(pa.table({"label": label, "prediction": list(prediction)}), tmp_path / "a.parquet")
    asked = {
        "task": "multiclass",
        "candidate": Candidate(model="new", predictions=tmp_path / "a.parquet"),
        "label": LabelFacts(counts=(47, 55, 40)),
    }
    found = decide(GateRequest(**asked))
    assert (found["verdict"], found["promote"]) == ("reject", False)
    assert "accuracy is 0.3333 (constant 0.4444)" in found["reasons"][0] and "gate.baseline" in found["reasons"][0]
    assert found["metrics"]["baselines"]["constant"]["accuracy"] == pytest.approx(16 / 36)
    assert decide(GateRequest(**asked, config=GateConfig(baseline=False)))["verdict"] == "first model"
    assert decide(GateRequest(**asked, force=True))["verdict"] == "forced"


def test_one_class_in_eval_is_judged_by_what_has_a_value():
    facts = LabelFacts(counts=(50, 50))
    found = judged("binary", facts, rows(np.ones(10), np.full(10, 0.9)), primary="auc", metrics=("auc", "loss"))
    assert found.passed and "loss is 0.1054 (constant 0.6931)" in found.reason
    nothing = rows(np.ones(10), np.full(10, 0.9), np.zeros(10))
    assert judged("binary", facts, nothing, primary="auc", metrics=("auc", "loss")) is None
