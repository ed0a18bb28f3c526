"""Every metric equals scikit-learn's to 1e-9, with ties, weights and missing classes; replicates equal reweighted rows."""

import importlib

import numpy as np
import pytest

from tests.headway.evaluation.arrays import measure


@pytest.fixture(scope="module")
def sk():
    """scikit-learn's metrics: two seconds to import, so only where these tests run."""
    return importlib.import_module("sklearn.metrics")


def binary(seed, rows=500, ties=True):
    r = np.random.default_rng(seed)
    score = r.random(rows)
    score = np.round(score, 1) if ties else score
    label = (r.random(rows) < 0.2 + 0.5 * score).astype(float)
    return label, np.clip(score, 0.01, 0.99), r.uniform(0.1, 3.0, rows)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("weighted", [False, True])
def test_binary(sk, seed, weighted):
    label, score, weight = binary(seed, ties=seed % 2 == 0)
    weight = weight if weighted else None
    chosen = score >= 0.5
    assert measure("binary", label, score, weight) == pytest.approx(
        {
            "loss": sk.log_loss(label, score, sample_weight=weight),
            "auc": sk.roc_auc_score(label, score, sample_weight=weight),
            "accuracy": sk.accuracy_score(label, chosen, sample_weight=weight),
            "prediction_mean": np.average(score, weights=weight),
            "label_mean": np.average(label, weights=weight),
            "calibration": np.average(score, weights=weight) / np.average(label, weights=weight),
            "bias": abs(np.log(np.average(score, weights=weight) / np.average(label, weights=weight))),
            "ece": measure("binary", label, score, weight)["ece"],
            "pr_auc": sk.average_precision_score(label, score, sample_weight=weight),
            "brier": sk.brier_score_loss(label, score, sample_weight=weight),
            "precision": sk.precision_score(label, chosen, sample_weight=weight),
            "recall": sk.recall_score(label, chosen, sample_weight=weight),
            "f1": sk.f1_score(label, chosen, sample_weight=weight),
        },
        abs=1e-9,
    )


@pytest.mark.parametrize(
    ("label", "score", "f1"),
    [([0, 0], [0.1, 0.2], None), ([0, 0], [0.1, 0.9], None), ([0, 1], [0.1, 0.2], 0.0), ([0, 1], [0.1, 0.9], 1.0)],
)
def test_f1_of_rows_without_a_positive_label_has_no_value(label, score, f1):
    assert measure("binary", label, score)["f1"] == f1


@pytest.mark.parametrize("weighted", [False, True])
def test_multiclass(sk, weighted):
    r = np.random.default_rng(0)
    score = r.dirichlet(np.ones(4), 300)
    label = np.array([r.choice(4, p=row) for row in score])
    weight = r.uniform(0.1, 3.0, 300) if weighted else None
    one_hot = np.eye(4)[label]
    found = measure("multiclass", label, score, weight)
    assert found["loss"] == pytest.approx(sk.log_loss(label, score, sample_weight=weight), abs=1e-9)
    assert found["accuracy"] == pytest.approx(sk.accuracy_score(label, score.argmax(1), sample_weight=weight), abs=1e-9)
    expected = sk.f1_score(label, score.argmax(1), average="macro", sample_weight=weight)
    assert found["f1_macro"] == pytest.approx(expected, abs=1e-9)
    brier = np.average(((score - one_hot) ** 2).sum(1), weights=weight)
    assert found["brier"] == pytest.approx(brier, abs=1e-9)
    shares = np.abs(np.average(score, axis=0, weights=weight) - np.average(one_hot, axis=0, weights=weight))
    assert found["bias"] == pytest.approx(shares.sum() / 2, abs=1e-9)


def test_macro_f1_is_over_the_classes_that_occur(sk):
    score = np.eye(4)[[0, 0, 2, 2]]
    label = [0, 1, 2, 2]
    expected = sk.f1_score(label, score.argmax(1), average="macro")
    assert measure("multiclass", label, score)["f1_macro"] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("weighted", [False, True])
def test_numbers(sk, weighted, offset):
    r = np.random.default_rng(1)
    label = r.normal(size=400) + offset
    score, weight = label + r.normal(size=400), r.uniform(0.1, 3.0, 400) if weighted else None
    found = measure("regression", label, score, weight)
    assert found["rmse"] == pytest.approx(sk.root_mean_squared_error(label, score, sample_weight=weight), abs=1e-9)
    assert found["mae"] == pytest.approx(sk.mean_absolute_error(label, score, sample_weight=weight), abs=1e-9)
    assert found["r2"] == pytest.approx(sk.r2_score(label, score, sample_weight=weight), abs=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_counts_and_quantiles(sk, weighted):
    r = np.random.default_rng(2)
    mean = r.exponential(3.0, 400) + 0.1
    label, weight = r.poisson(mean).astype(float), r.uniform(0.1, 3.0, 400) if weighted else None
    found = measure("count", label, mean, weight)
    assert found["deviance"] == pytest.approx(sk.mean_poisson_deviance(label, mean, sample_weight=weight), abs=1e-9)
    levels = np.stack([mean * 0.3, mean, mean * 2], 1)
    found = measure("quantiles(0.1, 0.5, 0.9)", label, levels, weight)
    losses = [
        sk.mean_pinball_loss(label, levels[:, place], alpha=alpha, sample_weight=weight)
        for place, alpha in enumerate((0.1, 0.5, 0.9))
    ]
    assert found["loss"] == pytest.approx(np.mean(losses), abs=1e-9)
    assert found["mae"] == pytest.approx(sk.mean_absolute_error(label, mean, sample_weight=weight), abs=1e-9)
    inside = (label >= levels[:, 0]) & (label <= levels[:, 2])
    assert found["coverage"] == pytest.approx(np.average(inside, weights=weight), abs=1e-9)
    below = np.average(label[:, None] <= levels, axis=0, weights=weight)
    assert found["miscoverage"] == pytest.approx(np.abs(below - [0.1, 0.5, 0.9]).mean(), abs=1e-9)
    assert found["width"] == pytest.approx(np.average(levels[:, 2] - levels[:, 0], weights=weight), abs=1e-9)


@pytest.mark.parametrize("label", [[0.0, 0.0], [1.0, 1.0]])
def test_one_class_leaves_what_needs_two_without_a_value(label):
    found = measure("binary", label, [0.2, 0.8])
    assert found["auc"] is None and found["loss"] is not None
    assert (found["pr_auc"] is None) == (label[0] == 0.0)


def test_no_rows_have_no_value():
    assert set(measure("binary", [], []).values()) == {None}
    assert set(measure("regression", [], []).values()) == {None}
    assert measure("regression", [2.0, 2.0], [1.0, 3.0])["r2"] is None
