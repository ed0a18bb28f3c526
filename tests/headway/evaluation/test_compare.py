"""Two models on the same rows: exact values, honest errors, the same numbers for the same seed."""

import numpy as np
import pytest

from headway.evaluation.compare import Difference, compare
from headway.evaluation.intervals import intervals, tail
from headway.evaluation.units import unit_numbers
from headway.metrics.ranking import NO_GROUP
from headway.tasks.table import task_of
from tests.headway.evaluation.arrays import compare_arrays, measure


def models(n, seed=0, noise=(0.5, 0.6), positive=1.0):
    r = np.random.default_rng(seed)
    z = r.normal(size=n)
    label = (r.random(n) < 1 / (1 + np.exp(positive - z))).astype(float)
    return (label, *(1 / (1 + np.exp(positive - z - s * r.normal(size=n))) for s in noise))


def test_values_are_the_metrics_themselves():
    label, a, b = models(400)
    weight = np.random.default_rng(3).random(400)
    found = compare_arrays("binary", label, a, b, weight, metrics=("auc", "loss", "accuracy"))
    ours, theirs = measure("binary", label, a, weight), measure("binary", label, b, weight)
    for name, difference in found.items():
        assert difference.value == pytest.approx(ours[name]) and difference.other == pytest.approx(theirs[name])
        assert difference.difference == pytest.approx(ours[name] - theirs[name])
    found = compare_arrays("regression", label, a, b, weight, metrics=("rmse", "mae", "loss"))
    ours = measure("regression", label, a, weight)
    assert all(found[name].value == pytest.approx(ours[name]) for name in found)
    matrix = np.stack([1 - a, a], 1)
    found = compare_arrays("multiclass", label, matrix, matrix, weight, metrics=("loss", "accuracy"))
    assert found["loss"].difference == 0 and found["loss"].error == 0


def test_rows_without_a_group_are_drawn_one_by_one():
    label, a, b = models(2000)
    by_row = compare_arrays("binary", label, a, b, metrics=("loss",))["loss"]
    nobody = compare_arrays("binary", label, a, b, metrics=("loss",), group=np.full(2000, NO_GROUP))["loss"]
    assert nobody.error == pytest.approx(by_row.error, rel=1e-3)
    group = np.where(np.arange(2000) < 1000, np.arange(2000) // 10, NO_GROUP)
    codes, units = unit_numbers(group)
    assert units == 1100 and sorted({*codes}) == list(range(1100))
    assert len({*codes[:1000]}) == 100 and len({*codes[1000:]}) == 1000


def test_a_single_group_gives_no_interval():
    label, a, b = models(500)
    found = compare_arrays("binary", label, a, b, metrics=("loss",), group=np.zeros(500, np.int64))["loss"]
    assert found.difference is not None and found.error is None and found.p_value_above(0.0) is None


def test_intervals_and_tails():
    d = Difference(metric="auc", value=0.7, other=0.71, difference=-0.01, error=0.002)
    low, high = d.interval(0.95)
    assert (low, high) == (pytest.approx(-0.01 - 1.96 * 0.002, abs=1e-5), pytest.approx(-0.01 + 1.96 * 0.002, abs=1e-5))
    for bound in (-0.02, high - 1e-6, high + 1e-6, 0.0):
        assert (d.p_value_below(bound) < 0.025) == (bound > high)
    assert d.p_value_above(-0.02) == pytest.approx(1 - d.p_value_below(-0.02))
    exact = Difference(metric="auc", value=0.7, other=0.7, difference=0.0, error=0.0)
    assert exact.p_value_below(0.0) == 1.0 and exact.p_value_below(0.001) == 0.0
    none = Difference(metric="auc", value=None, other=0.7, difference=None, error=None)
    assert none.interval(0.95) is None and none.p_value_above(0) is None and none.p_value_below(0) is None


@pytest.mark.parametrize("units", [6, 20, 50])
def test_what_few_groups_are_said_to_detect_is_blocked_as_often_as_said(units):
    """The error of few groups is more often too small than too large, and so would be what is said to be detectable."""
    r = np.random.default_rng(0)
    moved = r.normal(size=(4000, units))
    errors = moved.std(1, ddof=1) / np.sqrt(units)
    said = [Difference(metric="a", value=0, other=0, difference=0, error=e, freedom=units - 1) for e in errors]
    truth = np.median([each.detectable(0.95) for each in said])
    found = zip(moved.mean(1) + truth, errors, strict=True)
    blocked = np.mean([tail(-difference, error, units - 1) < 0.025 for difference, error in found])
    assert 0.8 <= blocked <= 0.97


def test_what_is_undefined_stays_so_and_too_few_rows_say_so():
    found = compare_arrays("binary", [1.0, 1.0], [0.1, 0.2], [0.2, 0.1], metrics=("auc", "loss"))
    assert found["auc"].difference is None and found["loss"].difference is not None
    assert found["loss"].few == "under 20 rows" and found["loss"].interval(0.95) is None
    empty = compare_arrays("binary", [], [], [], metrics=("auc", "loss"))
    assert empty["loss"].value is None and empty["auc"].error is None
    label, a, b = models(400)
    label[np.flatnonzero(label)[12:]] = 0
    found = compare_arrays("binary", label, a, b, metrics=("auc", "loss"))
    assert found["auc"].few == "under 20 rows of one class" and found["loss"].few is None
    assert compare_arrays("binary", label, a, b, metrics=("auc",), class_rows=10)["auc"].interval(0.95) is not None


def test_a_model_is_held_against_nothing():
    label, a, _ = models(400)
    rows = task_of("binary").rows(label, a)
    auc = task_of("binary").metric("auc")
    found = compare(rows, None, metrics=(auc,))["auc"]
    assert found.difference == found.value == auc.cached_value(rows) and found.other is None
    low, high = intervals(rows, (auc,))["auc"]
    assert np.ptp(found.interval(0.95)) == pytest.approx(high - low, rel=0.05)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("task", ["binary", "regression"])
def test_the_standard_error_is_what_a_bootstrap_comes_to(task, grouped):
    label, a, b = models(2_000)
    group = np.arange(2_000) // 4 if grouped else None
    label = label + a if task == "regression" else label
    metrics = [metric for metric in task_of(task).metrics if metric.higher_is_better is not None]
    rows = task_of(task).rows(label, a, groups=group)
    found, drawn, r = compare(rows, rows.predicted(b), metrics=metrics), [], np.random.default_rng(0)
    unit = np.arange(2_000) if group is None else group
    of_unit = [np.flatnonzero(unit == each) for each in range(unit.max() + 1)]
    for _ in range(300):
        at = np.concatenate([of_unit[each] for each in r.integers(0, len(of_unit), len(of_unit))])
        ours, theirs = rows.at(at), rows.predicted(b).at(at)
        drawn.append([metric.cached_value(ours) - metric.cached_value(theirs) for metric in metrics])
    for metric, error in zip(metrics, np.std(drawn, 0), strict=True):
        expected = pytest.approx(error, rel=0.4 if metric.name == "ece" else 0.15)  # its bins are drawn anew
        assert found[metric.name].error == expected, metric.name


def test_equal_models_have_no_spread_and_a_seed_gives_the_same_numbers():
    label, a, b = models(600)
    names = ("auc", "loss", "bias")
    assert all(each.error == 0 for each in compare_arrays("binary", label, a, a.copy(), metrics=names).values())
    one = compare_arrays("binary", label, a, b, metrics=names, seed=7)
    assert compare_arrays("binary", label, a, b, metrics=names, seed=7) == one
    assert compare_arrays("binary", label, a, b, metrics=names, seed=8)["bias"] != one["bias"], "its parts are drawn"


def test_a_sum_of_very_many_parts_is_compared_too():
    r = np.random.default_rng(0)
    label, a, b = r.integers(0, 80, 4_000), *(r.dirichlet(np.ones(80), 4_000) for _ in range(2))
    found = compare_arrays("multiclass", label, a, b, metrics=("bias",))["bias"]
    assert found.error > 0 and found.interval(0.95)[0] < found.difference
