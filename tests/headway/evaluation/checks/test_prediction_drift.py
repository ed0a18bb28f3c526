"""The distance of two models' predictions."""

import numpy as np
import pytest

from headway.evaluation.checks.prediction_drift import prediction_drift
from headway.tasks.table import task_of

R = np.random.default_rng(0)
SCORE = 1 / (1 + np.exp(-R.normal(size=5000)))


def drift(task, ours, theirs, label, weight=None):
    return prediction_drift(task_of(task), task_of(task).rows(label, ours, weight), np.asarray(theirs))


def test_equal_predictions_have_no_distance_and_disjoint_ones_one_bit():
    label = R.integers(0, 2, 5000)
    assert drift("binary", SCORE, SCORE, label).divergence == 0
    assert drift("binary", SCORE, R.permutation(SCORE), label).divergence == pytest.approx(0, abs=1e-9)
    apart = drift("binary", SCORE / 2, 0.5 + SCORE / 2, label)
    assert apart.divergence == pytest.approx(1) and apart.summary("version 1", None).endswith("by 1 bit")
    assert drift("binary", np.full(9, 0.5), np.full(9, 0.5), np.arange(9) % 2).divergence == 0


def test_a_shift_of_all_log_odds_is_seen_with_the_means():
    label = R.integers(0, 2, 5000)
    found = drift("binary", 1 / (1 + (1 - SCORE) / SCORE * np.exp(-1)), SCORE, label)
    assert 0.1 < found.divergence < 0.3
    assert found.candidate > found.champion and found.label == pytest.approx(label.mean())
    assert found.summary("version 3", None).startswith("the predictions drifted from version 3's by 0.1")


def test_weights_count():
    ours, theirs = np.array([0.1, 0.9]), np.array([0.1, 0.2])
    assert drift("binary", ours, theirs, [0, 1], [1.0, 0.0]).divergence == 0
    assert drift("binary", ours, theirs, [0, 1], [0.0, 1.0]).divergence == pytest.approx(1)


def test_classes_are_compared_by_their_shares_and_quantiles_by_the_middle_one():
    p = np.array([[0.7, 0.2, 0.1]] * 4)
    swapped = drift("multiclass", p, p[:, ::-1], [0, 1, 2, 0]).divergence
    assert swapped == pytest.approx(0.7 * np.log2(0.7 / 0.4) + 0.1 * np.log2(0.1 / 0.4))
    assert (
        drift("multiclass", p, p, [0, 1, 2, 0]).summary("version 1", 0.1).endswith("by 0 bits, within the limit of 0.1")
    )
    q = np.sort(R.normal(size=(500, 3)), axis=1)
    moved = q.copy()
    moved[:, [0, 2]] += [-9, 9]
    assert drift("quantiles(0.1, 0.5, 0.9)", moved, q, R.normal(size=500)).divergence == 0
    assert drift("quantiles(0.1, 0.5, 0.9)", q + 1, q, R.normal(size=500)).divergence > 0.1
