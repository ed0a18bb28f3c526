"""The constant that a candidate has to beat: the best one for each metric, and chance taken into account."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.report.verdict import explain
from headway.evaluation import baseline
from headway.evaluation.config import GateConfig
from headway.evaluation.gate import decide
from headway.evaluation.predictions import metrics_of
from headway.evaluation.requests import Candidate, GateRequest
from headway.messages import number
from headway.metrics.base import Rows
from headway.tasks.base import LabelFacts
from headway.tasks.table import task_of


def rows(label, prediction, weight=None, **more):
    label = np.asarray(label, np.float64)
    return Rows(label, np.asarray(prediction, np.float64), np.ones(len(label)) if weight is None else weight, **more)


def constant(task, facts, data, ndcg_at=None):
    return baseline.constant(task_of(task), facts, data, metrics_of(task, ndcg_at))


def decided_by(found):
    """(the outcome, the metric that decides, its values)"""
    test = found.decisive
    return found.outcome, test.metric, number(test.value), number(test.before)


def judged(task, facts, data, *, primary, metrics, ndcg_at=None):
    by_name = {metric.name: metric for metric in metrics_of(task, ndcg_at)}
    ordered = [by_name[name] for name in dict.fromkeys((primary, *metrics))]
    return baseline.judge_against_baseline(task_of(task), facts, data, metrics=ordered, confidence=0.95)


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
        assert found.outcome != "better", found
    known = rows(label, np.clip(r.random(16_000) + 0.2 * label, 0, 1), groups=groups)
    assert (
        judged("binary", LabelFacts(counts=(8, 2)), known, primary="mrr", metrics=("ndcg", "mrr"), ndcg_at=5).outcome
        == "better"
    )


def test_the_majority_class_may_be_all_that_accuracy_can_say():
    r = np.random.default_rng(0)
    rare = r.random(3000) < 0.05
    label = np.where(rare, 1 + (r.random(3000) < 0.5), 0)
    likely = np.where(rare, 0.3, 0.02)  # it knows who is rare, and still says the majority class
    prediction = np.stack([1 - 2 * likely, likely, likely], 1)
    facts = LabelFacts(counts=(950, 25, 25))
    found = judged("multiclass", facts, rows(label, prediction), primary="accuracy", metrics=("loss", "accuracy"))
    assert decided_by(found)[:2] == ("better", "loss")
    assert found.beside.value == found.beside.before == pytest.approx(0.9467, abs=1e-4)
    found = judged("multiclass", facts, rows(label, prediction[::-1]), primary="accuracy", metrics=("loss", "accuracy"))
    assert decided_by(found)[:2] == ("cannot tell", "accuracy")


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
    assert (found.status, found.promote) == ("needs a person", False)
    assert "36 eval rows are too few to say" in explain(found).sentences[0]
    assert "accuracy is 0.3333, constant 0.4444" in explain(found).sentences[0]
    assert found.metrics.baselines["constant"]["accuracy"] == pytest.approx(16 / 36)
    assert decide(GateRequest(**asked, config=GateConfig(baseline=False))).status == "promoted"
    assert decide(GateRequest(**asked, force=True)).status == "promoted"


def test_one_class_in_eval_is_judged_by_what_has_a_value():
    facts = LabelFacts(counts=(50, 50))
    found = judged("binary", facts, rows(np.ones(10), np.full(10, 0.9)), primary="auc", metrics=("auc", "loss"))
    assert decided_by(found) == ("better", "loss", "0.1054", "0.6931")
    nothing = rows(np.ones(10), np.full(10, 0.9), np.zeros(10))
    assert judged("binary", facts, nothing, primary="auc", metrics=("auc", "loss")) is None


def first(task, facts, data, *metrics, trained_for=None):
    by_name = {metric.name: metric for metric in metrics_of(task)}
    asked = {"metrics": [by_name[name] for name in metrics], "trained_for": trained_for or metrics, "confidence": 0.95}
    return baseline.judge_first_model(task_of(task), facts, data, **asked)


def told(rate, gain, rows_, seed=0):
    """Labels and calibrated probabilities of a model whose scores of the classes are `gain` deviations apart."""
    r = np.random.default_rng(seed)
    label = (r.random(rows_) < rate).astype(float)
    score = gain * (gain * label + r.normal(size=rows_)) - gain**2 / 2
    return label, 1 / (1 + (1 - rate) / rate * np.exp(-score))


def test_a_first_model_that_ranks_well_and_says_wild_probabilities_is_rejected():
    label, p = told(0.5, 0.3, 2000)
    wild = rows(label, 1 / (1 + (1 / p - 1) ** 20))
    found = first("binary", LabelFacts(counts=(1, 1)), wild, "auc", "loss")
    assert decided_by(found)[:2] == ("worse", "loss")
    assert first("binary", LabelFacts(counts=(1, 1)), wild, "auc", "loss", trained_for=["auc"]).outcome == "better"
    few = rows(label[:60], wild.prediction[:60])  # too few for the AUC; the loss leaves no doubt
    assert first("binary", LabelFacts(counts=(1, 1)), few, "auc", "loss").outcome == "worse"


def test_a_first_model_with_a_negative_r2_is_rejected():
    r = np.random.default_rng(0)
    label = r.normal(size=300)
    found = first("regression", LabelFacts(mean=0.0, median=0.0), rows(label, r.normal(size=300)), "rmse", "mae")
    assert decided_by(found)[:2] == ("worse", "rmse")


def test_a_mean_of_skewed_labels_need_not_beat_the_absolute_error_of_their_median():
    r = np.random.default_rng(0)
    signal = 0.4 * r.normal(size=3000)
    label = np.exp(signal + 1.5 * r.normal(size=3000))
    data = rows(label, np.exp(signal + 1.125))  # the mean of each row
    facts = LabelFacts(mean=float(np.exp(0.08 + 1.125)), median=1.0)
    assert constant("regression", facts, data)["mae"] < np.abs(label - data.prediction).mean()
    assert first("regression", facts, data, "rmse", "mae").outcome == "better"


@pytest.mark.parametrize(
    ("data", "outcome", "why"),
    [
        (lambda: rows(*told(0.5, 3, 19)), "too few rows", "under 20 rows"),
        (lambda: rows(*told(0.1, 3, 35)), "too few rows", "under 10 rows of one class"),
        (lambda: rows(*told(0.5, 0.05, 300)), "cannot tell", ""),
        (lambda: rows(*told(0.5, 3, 400), groups=np.arange(400) % 4), "too few rows", "under 5 groups"),
    ],
)
def test_too_few_rows_to_tell_are_not_a_first_model_and_not_a_rejection(data, outcome, why):
    found = first("binary", LabelFacts(counts=(1, 1)), data(), "auc", "loss")
    assert (found.outcome, found.decisive.why) == (outcome, why)
    one_class = first("binary", LabelFacts(counts=(1, 1)), rows(np.ones(300), np.full(300, 0.9)), "auc", "loss")
    assert one_class.outcome == "too few rows"


def test_what_is_too_little_to_say_is_shown_by_a_metric_that_chance_can_explain():
    """The mean of skewed labels has a larger absolute error than their median, which is sure."""
    r = np.random.default_rng(0)
    label = np.exp(1.5 * r.normal(size=300))
    data = rows(label, label.mean() * (1 + 0.05 * r.normal(size=300)))
    facts = LabelFacts(mean=float(label.mean()), median=float(np.median(label)))
    found = first("regression", facts, data, "mae", "rmse")
    assert decided_by(found)[:2] == ("cannot tell", "rmse")


def test_rows_of_one_unit_count_once():
    """Ten copies of 60 rows say no more than 60 rows."""
    label, p = told(0.5, 0.7, 60, seed=1)
    alone = first("binary", LabelFacts(counts=(1, 1)), rows(np.tile(label, 10), np.tile(p, 10)), "loss")
    units = rows(np.tile(label, 10), np.tile(p, 10), groups=np.tile(np.arange(60), 10))
    assert alone.outcome == "better"
    assert first("binary", LabelFacts(counts=(1, 1)), units, "loss").outcome == "cannot tell"


@pytest.mark.long
@pytest.mark.parametrize(("count", "rate"), [(20, 0.5), (100, 0.1), (200, 0.5)])
def test_a_model_no_better_than_the_constant_hardly_ever_becomes_the_first_and_a_good_one_does(count, rate):
    """600 first models of each kind; the rate is at most 2.5%, known to 0.6 points."""
    passed = {"auc": 0, "rmse": 0, "accuracy": 0, "good": 0}
    shares = np.array([0.5, 0.3, 0.2])
    for seed in range(600):
        r = np.random.default_rng(seed)
        label = (np.arange(count) < rate * count).astype(float)
        nothing = rows(label, rate * (1 + 0.02 * r.normal(size=count)))
        passed["auc"] += (
            first(
                "binary", LabelFacts(counts=(round(100 - 100 * rate), round(100 * rate))), nothing, "auc", "loss"
            ).outcome
            == "better"
        )
        number = rows(r.exponential(size=count), 1 + 0.03 * r.normal(size=count))
        passed["rmse"] += (
            first("regression", LabelFacts(mean=1.0, median=np.log(2)), number, "rmse", "mae").outcome == "better"
        )
        classes = shares + 0.01 * r.normal(size=(count, 3))
        of_classes = rows(r.choice(3, count, p=shares), classes / classes.sum(1, keepdims=True))
        passed["accuracy"] += (
            first("multiclass", LabelFacts(counts=(5, 3, 2)), of_classes, "accuracy", "loss").outcome == "better"
        )
        if seed < 100:
            good = rows(*told(0.3, 0.75, 300, seed))
            passed["good"] += first("binary", LabelFacts(counts=(7, 3)), good, "auc", "loss").outcome == "better"
    assert passed.pop("good") >= 98
    assert max(passed.values()) <= (0.025 + 2 * 0.0064) * 600, passed
