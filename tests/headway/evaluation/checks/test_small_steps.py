"""Falls that add up from promotion to promotion, and how lucky one champion's seed was."""

import numpy as np
import pytest

from headway.evaluation.checks.small_steps import Levels, Measured, allowed
from headway.tasks.table import task_of

AUC, LOSS = task_of("binary").metric("auc"), task_of("binary").metric("loss")


def chain(values, *, error=0.001, name="auc", apart=True):
    """Models after the reference, each measured once; on rows of its own, or all on the same."""
    return [
        Measured(place=i, eval=((f"{i if apart else 0}", "eval"),), differences={name: (value, error)})
        for i, value in enumerate(values, 1)
    ]


def falling(models, step, *, scatter=0.0005, seed=0):
    return -step * np.arange(1, models + 1) + scatter * np.random.default_rng(seed).normal(size=models)


def test_a_fall_that_adds_up_is_told_and_a_rise_or_a_level_is_not():
    found = Levels.of(chain(falling(20, 0.001)), AUC).decline(0.01, 1.0)
    assert found.models == 21 and found.change == pytest.approx(-0.02, abs=0.002)
    assert found.interval[0] < found.change < found.interval[1] < 0 and found.p < found.allowed
    assert "auc has become worse step by step since version 3: by -0.0" in found.summary(3)
    assert Levels.of(chain(falling(20, 0.0)), AUC).decline(0.0, 1.0) is None
    assert Levels.of(chain(-falling(20, 0.001)), AUC).decline(0.0, 1.0) is None


def test_a_metric_that_is_better_when_low_falls_by_rising():
    found = Levels.of(chain(-falling(20, 0.001), name="loss"), LOSS).decline(0.01, 1.0)
    assert found.change == pytest.approx(0.02, abs=0.002) and 0 < found.interval[0] < found.change < found.interval[1]
    assert Levels.of(chain(falling(20, 0.001), name="loss"), LOSS).decline(0.0, 1.0) is None


def test_a_fall_within_the_tolerance_stops_nothing():
    assert Levels.of(chain(falling(20, 0.001)), AUC).decline(0.03, 1.0) is None


def test_few_models_say_nothing():
    assert Levels.of(chain([-0.1, -0.2]), AUC).decline(0.0, 1.0) is None
    assert Levels.of([], AUC).luck(0) == 0.0


def test_models_on_the_same_rows_share_their_error():
    """Rows that are hard for all of them are one accident, not many."""
    values, wide = falling(8, 0.002, scatter=0.0), 0.006
    apart = Levels.of(chain(values, error=wide), AUC)
    together = Levels.of(chain(values, error=wide, apart=False), AUC)
    at = np.ones(9)
    assert together.rows[1:, 1:] == pytest.approx(np.full((8, 8), wide**2))
    assert at @ together.rows @ at > 7 * (at @ apart.rows @ at)


def test_a_model_measured_twice_is_one_model():
    twice = [
        *chain([-0.001, -0.002, -0.003]),
        Measured(place=3, eval=(("9", "eval"),), differences={"auc": (-0.005, 0.001)}),
    ]
    levels = Levels.of(twice, AUC)
    assert levels.places.tolist() == [0, 1, 2, 3] and levels.values[3] == pytest.approx(-0.004)
    assert levels.rows[3, 3] == pytest.approx(0.001**2 / 2)


def test_a_lucky_seed_is_told_from_lucky_rows():
    """The share of the seed in a deviation is that of its variance."""
    seeds = 0.004 * np.random.default_rng(1).normal(size=30)
    lucky = np.argmax(seeds)
    by_seed = Levels.of(chain(seeds - seeds[-10:].mean(), error=0.0002), AUC)
    assert by_seed.luck(int(lucky) + 1) == pytest.approx(seeds[lucky] - seeds[-10:].mean(), rel=0.05)
    assert by_seed.luck(int(np.argmin(seeds)) + 1) == 0.0
    by_rows = Levels.of(chain(seeds, error=0.008), AUC)
    assert by_rows.luck(int(lucky) + 1) < 0.1 * seeds[lucky]


def test_the_errors_of_all_tests_together_stay_bounded():
    doublings = 2.0 ** np.arange(2, 40)
    assert sum(allowed(int(k), 1.0) for k in doublings) < 0.05
    assert all(np.diff([allowed(k, 1.0) for k in range(4, 400)]) < 0)


def _stopped(step, chains=150, retrains=40, seed=0.004, error=0.004):
    """The share of chains that were ever stopped, and the loss by then of each."""
    told = []
    for i in range(chains):
        r = np.random.default_rng(i)
        values = -step * np.arange(1, retrains + 1) + seed * (r.normal(size=retrains) - r.normal())
        measured = chain(values + error * r.normal(size=retrains), error=error)
        at = next((k for k in range(4, retrains) if Levels.of(measured[:k], AUC).decline(0.006, 1.0)), np.inf)
        told.append(at * step if step else at)
    return np.isfinite(told).mean(), told


def test_equal_recipes_are_hardly_ever_stopped_and_small_steps_are_before_they_are_large():
    assert _stopped(0.0)[0] <= 0.05
    share, lost = _stopped(0.001)
    assert share == 1.0 and np.quantile(lost, 0.9) <= 0.03 and np.median(lost) <= 0.02
