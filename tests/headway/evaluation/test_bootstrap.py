"""The paired bootstrap: exact values, honest errors, the same numbers for the same seed."""

import time

import numpy as np
import pytest

from headway.evaluation import bootstrap
from headway.evaluation.bootstrap import Difference, _poisson, resampling_units, tail
from headway.evaluation.metrics import measure
from headway.metrics.classification import PositivesAmongNegatives, auc
from headway.metrics.ranking import NO_GROUP
from tests.headway.evaluation.arrays import paired_arrays


def models(n, seed=0, noise=(0.5, 0.6), positive=1.0):
    r = np.random.default_rng(seed)
    z = r.normal(size=n)
    label = (r.random(n) < 1 / (1 + np.exp(positive - z))).astype(float)
    return (label, *(1 / (1 + np.exp(positive - z - s * r.normal(size=n))) for s in noise))


def test_values_are_the_metrics_themselves():
    label, a, b = models(400)
    weight = np.random.default_rng(3).random(400)
    found = paired_arrays("binary", label, a, b, weight, metrics=("auc", "loss", "accuracy"), samples=50)
    ours, theirs = measure("binary", label, a, weight), measure("binary", label, b, weight)
    for name, difference in found.items():
        assert difference.candidate == pytest.approx(ours[name]) and difference.champion == pytest.approx(theirs[name])
        assert difference.difference == pytest.approx(ours[name] - theirs[name])
    found = paired_arrays("regression", label, a, b, weight, metrics=("rmse", "mae", "loss"), samples=50)
    ours = measure("regression", label, a, weight)
    assert all(found[name].candidate == pytest.approx(ours[name]) for name in found)
    matrix = np.stack([1 - a, a], 1)
    found = paired_arrays("multiclass", label, matrix, matrix, weight, metrics=("loss", "accuracy"), samples=50)
    assert found["loss"].difference == 0 and found["loss"].standard_error == 0


def test_a_replicate_is_the_auc_of_its_weights():
    r = np.random.default_rng(0)
    label, score = r.integers(0, 2, 300).astype(float), r.integers(0, 20, 300) / 20
    draws = _poisson(np.random.Philox(key=5), 7, 300)
    found = PositivesAmongNegatives(label, score).auc(draws)
    assert found == pytest.approx([auc(label, score, weights.astype(float)) for weights in draws])
    assert PositivesAmongNegatives(label, score).auc(draws * 0.25) == pytest.approx(found)


def test_draws_are_poisson_of_one_and_the_same_for_ever():
    draws = _poisson(np.random.Philox(key=0), 100, 9999)
    assert draws.mean() == pytest.approx(1, abs=0.005) and draws.var() == pytest.approx(1, abs=0.01)
    assert (draws == 0).mean() == pytest.approx(np.exp(-1), abs=0.002)
    assert _poisson(np.random.Philox(key=1), 2, 10).tolist() == [
        [1, 1, 1, 0, 0, 1, 3, 2, 0, 1],
        [1, 1, 1, 0, 0, 2, 4, 2, 2, 0],
    ]


@pytest.mark.slow
def test_the_standard_error_is_what_repeated_experiments_show():
    differences, errors = [], []
    for seed in range(150):
        label, a, b = models(600, seed=seed)
        found = paired_arrays("binary", label, a, b, metrics=("auc", "loss"), samples=100)
        differences.append([found["auc"].difference, found["loss"].difference])
        errors.append([found["auc"].standard_error, found["loss"].standard_error])
    assert np.mean(errors, 0) == pytest.approx(np.std(differences, 0), rel=0.15)


def test_grouped_rows_are_less_certain():
    label, a, b = models(200)
    repeated = [np.repeat(x, 25) for x in (label, a, b)]
    group = np.repeat(np.arange(200), 25).astype(str)
    alone = paired_arrays("binary", label, a, b, metrics=("loss",), samples=400)["loss"].standard_error
    naive = paired_arrays("binary", *repeated, metrics=("loss",), samples=400)["loss"].standard_error
    grouped = paired_arrays("binary", *repeated, metrics=("loss",), samples=400, group=group)["loss"].standard_error
    assert grouped == pytest.approx(alone, rel=0.15) and naive == pytest.approx(alone / 5, rel=0.15)


def test_rows_without_a_group_are_drawn_one_by_one():
    label, a, b = models(2000)
    by_row = paired_arrays("binary", label, a, b, metrics=("loss",), samples=50)["loss"]
    nobody = paired_arrays("binary", label, a, b, metrics=("loss",), samples=50, group=np.full(2000, NO_GROUP))["loss"]
    assert nobody.standard_error == pytest.approx(by_row.standard_error, rel=1e-3)
    group = np.where(np.arange(2000) < 1000, np.arange(2000) // 10, NO_GROUP)
    codes, units = resampling_units(group)
    assert units == 1100 and sorted({*codes}) == list(range(1100))
    assert len({*codes[:1000]}) == 100 and len({*codes[1000:]}) == 1000


def test_a_single_group_gives_no_interval():
    label, a, b = models(500)
    found = paired_arrays("binary", label, a, b, metrics=("loss",), samples=50, group=np.zeros(500, np.int64))["loss"]
    assert found.difference is not None and found.standard_error is None and found.probability_above(0.0) is None


def test_the_seed_decides_and_the_chunking_does_not(monkeypatch):
    label, a, b = models(1000)
    first = paired_arrays("binary", label, a, b, metrics=("auc", "loss"), samples=60, seed=7)
    assert paired_arrays("binary", label, a, b, metrics=("auc", "loss"), samples=60, seed=8) != first
    monkeypatch.setattr("headway.evaluation.bootstrap.CELLS", 4000)
    again = paired_arrays("binary", label, a, b, metrics=("auc", "loss"), samples=60, seed=7)
    for name in first:
        assert again[name].standard_error == pytest.approx(first[name].standard_error, rel=1e-12)


def test_intervals_and_tails():
    d = Difference(metric="auc", candidate=0.7, champion=0.71, difference=-0.01, standard_error=0.002)
    low, high = d.interval(0.95)
    assert (low, high) == (pytest.approx(-0.01 - 1.96 * 0.002, abs=1e-5), pytest.approx(-0.01 + 1.96 * 0.002, abs=1e-5))
    for bound in (-0.02, high - 1e-6, high + 1e-6, 0.0):
        assert (d.probability_below(bound) < 0.025) == (bound > high)
    assert d.probability_above(-0.02) == pytest.approx(1 - d.probability_below(-0.02))
    exact = Difference(metric="auc", candidate=0.7, champion=0.7, difference=0.0, standard_error=0.0)
    assert exact.probability_below(0.0) == 1.0 and exact.probability_below(0.001) == 0.0
    none = Difference(metric="auc", candidate=None, champion=0.7, difference=None, standard_error=None)
    assert none.interval(0.95) is None and none.probability_above(0) is None and none.probability_below(0) is None


@pytest.mark.parametrize("units", [6, 20, 50])
def test_what_few_groups_are_said_to_detect_is_blocked_as_often_as_said(units):
    """The error of few groups is more often too small than too large, and so would be what is said to be detectable."""
    r = np.random.default_rng(0)
    moved = r.normal(size=(4000, units))
    errors = moved.std(1, ddof=1) / np.sqrt(units)
    said = [
        Difference(metric="a", candidate=0, champion=0, difference=0, standard_error=e, freedom=units - 1)
        for e in errors
    ]
    truth = np.median([each.detectable(0.95) for each in said])
    found = zip(moved.mean(1) + truth, errors, strict=True)
    blocked = np.mean([tail(-difference, error, units - 1) < 0.025 for difference, error in found])
    assert 0.8 <= blocked <= 0.97


def test_what_is_undefined_stays_so():
    found = paired_arrays("binary", [1.0, 1.0], [0.1, 0.2], [0.2, 0.1], metrics=("auc", "loss"), samples=50)
    assert found["auc"].difference is None and found["loss"].difference is not None
    empty = paired_arrays("binary", [], [], [], metrics=("auc", "loss"), samples=50)
    assert empty["loss"].candidate is None and empty["auc"].standard_error is None


@pytest.mark.slow
def test_a_million_rows_stay_quick():
    label, a, b = models(1_000_000)
    started = time.process_time()
    found = paired_arrays("binary", label, a, b, metrics=("auc", "loss"), samples=20)
    assert found["auc"].standard_error < 0.001
    assert time.process_time() - started < 10, "20 resamples of a million rows take well under a second of CPU here"


@pytest.mark.parametrize("grouped", [False, True])
def test_of_many_rows_the_derivative_gives_the_error_that_the_replicates_come_to(grouped, monkeypatch):
    label, a, b = models(10_000)
    group = np.arange(10_000) // 2 if grouped else None
    names = ("auc", "loss", "accuracy", "bias")
    monkeypatch.setattr(bootstrap, "LINEAR_UNITS", 5_000)
    linear = paired_arrays("binary", label, a, b, metrics=names, group=group)
    monkeypatch.setattr(bootstrap, "LINEAR_UNITS", 10**9)
    drawn = paired_arrays("binary", label, a, b, metrics=names, samples=1_000, group=group)
    for name in names:
        assert linear[name].difference == drawn[name].difference
        assert linear[name].standard_error == pytest.approx(drawn[name].standard_error, rel=0.08), name
