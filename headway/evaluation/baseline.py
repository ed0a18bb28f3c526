"""The constant baseline: the predictions of a model that ignores every column, scored on the candidate's rows; and how other
baselines compare.

    facts = LabelFacts(counts=(880, 120))                        # of the train rows
    constant(task, facts, rows, task.metrics)                    # {"auc": 0.5, "loss": 0.367, "accuracy": 0.88, ...}

The constant is the best one for each metric that the train labels allow: the classes' shares for log loss, calibration and
AUC (0.5: every row ties), the most frequent class for accuracy, the mean for squared errors, the median for absolute
errors, one score for all rows for ndcg (the mean over all orders), and a random order for mrr. The facts of train labels
count rows by their weights.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from headway.evaluation.bootstrap import Difference, paired
from headway.evaluation.sample_size import FIRST_CLASS_ROWS, counted_units, uncompared, units, upward
from headway.evaluation.verdict import Check
from headway.messages import between, number, signed
from headway.metrics.base import Floats, Metric, Rows
from headway.tasks.base import LabelFacts, Task

ENOUGH_ROWS = 1000
"""From so many rows (or groups, or twice the rows of the rarer class for auc) on, a gain has to be beyond chance."""


def constant(task: Task, facts: LabelFacts, rows: Rows, metrics: Sequence[Metric]) -> dict[str, float | None] | None:
    """Every metric of the constant on these rows; None when the train labels are not known."""
    if task.constant(facts, len(rows)) is None:
        return None
    values: dict[str, float | None] = {}
    for metric in metrics:
        predicted = constant_predictions(task, facts, metric, len(rows))
        values[metric.name] = None if predicted is None else metric.on(rows.predicted(predicted))
    return values


def constant_predictions(
    task: Task, facts: LabelFacts, metric: Metric, rows: int, best_by: str | None = None
) -> Floats | None:
    """The predictions of the best constant by `metric`, or by the one named; None if the labels' facts do not give one."""
    return _order(metric.name, rows) if metric.unit == "groups" else task.constant(facts, rows, best_by or metric.name)


@dataclass(frozen=True, kw_only=True)
class Beaten:
    """How the candidate stands to a baseline on one metric, in words too."""

    outcome: Literal["better", "worse", "cannot tell", "too few rows"]
    """Of the candidate."""
    passed: bool
    """It beats the baseline, or need not."""
    summary: str
    detail: str
    test: Against | None
    """None: the rows are too few for any."""

    @property
    def few(self) -> bool:
        """There are too few rows to say."""
        return self.outcome == "too few rows"

    def check(self, name: str, rows: int) -> Check:
        """What the verdict keeps of it.

        Args:
            name: of the baseline.
        """
        kind = f"{name} baseline"
        if self.test is None:
            return Check(name=kind, against=name, outcome=self.outcome, passed=self.passed, rows=rows)
        test = self.test
        return Check(
            name=kind,
            metric=test.metric.name,
            against=name,
            value=test.paired.candidate,
            before=test.paired.champion,
            change=test.paired.difference,
            interval=upward(test.metric, test.interval),  # turned back: the sign is that of the change
            confidence=test.confidence,
            error=test.paired.standard_error,
            better=test.metric.better,
            outcome=self.outcome,
            passed=self.passed,
            rows=rows,
        )


def _beaten(name: str, test: Against, also: Against | None = None) -> Beaten:
    also_said = [] if also is None else [also.values]
    return Beaten(
        outcome="better",
        passed=True,
        summary=f"the candidate beats the {name} baseline: {test.values}",
        detail="; ".join([*filter(None, [test.numbers]), *also_said]),
        test=test,
    )


def _not_beaten(name: str, test: Against) -> Beaten:
    verb = "is worse than" if test.worse else "does not beat"
    return Beaten(
        outcome="worse" if test.worse else "cannot tell",
        passed=False,
        summary=f"the candidate {verb} the {name} baseline: {test.values}",
        detail=test.numbers,
        test=test,
    )


def first_model(
    task: Task,
    facts: LabelFacts,
    rows: Rows,
    *,
    metrics: Sequence[Metric],
    trained_for: Collection[str],
    confidence: float,
    seed: int = 0,
    check: Callable[[], None] = lambda: None,
) -> Beaten | None:
    """Whether a model that replaces none is better than the constant; None when nothing can be said of many rows.

    It is when its primary metric is better beyond chance, or is not worse and another metric is better. It is not when it is
    worse beyond chance by a metric that it was trained for, or when many rows (`ENOUGH_ROWS`) show no gain. On fewer rows
    chance may hide a gain, and below the least numbers of `uncompared` no interval tells anything: these are too few to
    say. The metrics share the error of `confidence` (Bonferroni), with Student's t for few rows.

    Args:
        metrics: the first is the primary one.
        trained_for: names of those by which it must not be worse than the best constant by the loss. (The mean of skewed
            labels never has as small an absolute error as their median.)
    """
    shared = 1 - (1 - confidence) / len(metrics)

    def against(metric: Metric, best_by: str) -> Against | None:
        predicted = constant_predictions(task, facts, metric, len(rows), best_by)
        if predicted is None:
            return None
        settings: dict[str, Any] = {"confidence": shared, "seed": seed, "check": check}
        return _against(rows, predicted, metric, name="constant", first=True, **settings)

    found = [each for metric in metrics if (each := against(metric, metric.name)) is not None]
    for each in found:
        if each.metric.name in trained_for and each.worse:
            by_loss = against(each.metric, "loss")
            if by_loss is not None and by_loss.worse:
                return _not_beaten("constant", by_loss)

    def few(test: Against | None, detail: str) -> Beaten:
        said = f"{counted_units(metrics[0], rows)} too few to say whether the candidate beats the constant baseline"
        return Beaten(outcome="too few rows", passed=False, summary=said, detail=detail, test=test)

    if uncompared(metrics[0], rows, FIRST_CLASS_ROWS):
        return few(found[0], found[0].values) if found else few(None, "")
    if not found:
        return None
    better = [each for each in found if each.interval is not None and each.interval[0] > 0]
    if better and not found[0].worse:
        return _beaten("constant", better[0], None if better[0] is found[0] else found[0])
    shown = next((each for each in found if not each.worse), found[0])  # what chance can explain
    if units(found[0].metric, rows) < ENOUGH_ROWS:
        return few(shown, ", ".join(filter(None, [shown.values, shown.numbers])))
    return _not_beaten("constant", shown)


def beats(
    task: Task,
    facts: LabelFacts,
    rows: Rows,
    *,
    metrics: Sequence[Metric],
    confidence: float,
    seed: int = 0,
    check: Callable[[], None] = lambda: None,
    others: Floats | None = None,
    name: str = "constant",
) -> Beaten | None:
    """Whether a candidate with a champion beats the constant; None when nothing can be said. (`first_model`: without one.)

    It does when its primary metric, the first of `metrics`, is better than the constant's: by its value alone on few rows,
    which reject no good model by chance, and beyond chance (the interval of the gain is wholly above 0) from 1,000 rows on,
    where a model that learned nothing would pass in half of all cases by its value. For auc the rows of the rarer class
    count twice, with groups the groups. It also does when the primary metric is not worse beyond chance and another of
    `metrics` is better beyond chance: a class of 95% leaves accuracy no room, and one outlier can decide an RMSE. Where a
    metric cannot be compared (`uncompared`: fewer than 20 rows, groups, or rows of a class) its value alone counts. A
    metric without a value on these rows is passed over; the next one that has a value stands in for the primary one.

    Args:
        others: the predictions of another baseline, in the constant's place.
        name: of the baseline, for the sentence.
    """

    def against(metric: Metric) -> Against | None:
        predicted = constant_predictions(task, facts, metric, len(rows)) if others is None else others
        if predicted is None:
            return None
        return _against(rows, predicted, metric, confidence=confidence, seed=seed, check=check, name=name)

    comparable = filter(None, map(against, metrics))  # each only where needed
    first = next(comparable, None)
    if first is None:
        return None
    if first.gain > 0 and (first.interval is None or first.units < ENOUGH_ROWS or first.interval[0] > 0):
        return _beaten(name, first)
    if first.interval is None or first.interval[1] >= 0:
        for other in comparable:
            if (other.gain if other.interval is None else other.interval[0]) > 0:
                return _beaten(name, other, first)
    return _not_beaten(name, first)


def beside(
    rows: Rows,
    others: Floats,
    metric: Metric,
    *,
    name: str,
    confidence: float,
    seed: int = 0,
    check: Callable[[], None] = lambda: None,
) -> Beaten | None:
    """Which of the two is better by a metric, the candidate or another baseline; None when nothing can be said. The
    arguments are those of `beats`."""
    found = _against(rows, others, metric, confidence=confidence, seed=seed, check=check, name=name)
    if found is None:
        return None
    if found.interval is None:
        few = f"beside the {name} baseline: {found.values}"
        return Beaten(
            outcome="too few rows",
            passed=True,
            summary=few,
            detail="the rows are too few to tell which is better",
            test=found,
        )
    if found.interval[0] > 0:
        return _beaten(name, found)
    apart = f"the candidate and the {name} baseline cannot be told apart"
    return Beaten(
        outcome="worse" if found.worse else "cannot tell",
        passed=True,
        summary=f"{f'the {name} baseline beats the candidate' if found.worse else apart}: {found.values}",
        detail=found.numbers,
        test=found,
    )


def _against(
    rows: Rows,
    others: Floats,
    metric: Metric,
    *,
    confidence: float,
    seed: int,
    check: Callable[[], None],
    name: str,
    first: bool = False,
) -> Against | None:
    """
    Args:
        first: of a first model: Student's t, with one degree of freedom less than there are units.
    """
    difference = paired(rows, others, metrics=(metric,), seed=seed, check=check)[metric.name]
    if difference.difference is None:
        return None
    count = units(metric, rows)
    if first:
        difference = replace(difference, freedom=min(difference.freedom, max(count - 1, 1)))
    few = uncompared(metric, rows, FIRST_CLASS_ROWS) if first else uncompared(metric, rows)
    interval = None if few else difference.interval(confidence)
    return Against(metric, difference, upward(metric, interval), confidence, count, name)


@dataclass(frozen=True)
class Against:
    """One metric of the candidate against a baseline's."""

    metric: Metric
    paired: Difference
    interval: tuple[float, float] | None
    """Of the gain: with up for good."""
    confidence: float
    units: int
    name: str = "constant"
    """Of the baseline."""

    @property
    def worse(self) -> bool:
        """Beyond chance."""
        return self.interval is not None and self.interval[1] < 0

    @property
    def gain(self) -> float:
        assert self.paired.difference is not None
        return self.paired.difference if self.metric.higher_is_better else -self.paired.difference

    @property
    def values(self) -> str:
        return f"{self.paired.metric} is {number(self.paired.candidate)}, {self.name} {number(self.paired.champion)}"

    @property
    def numbers(self) -> str:
        """The gain with its interval; empty where there are too few rows for one."""
        if self.interval is None:
            return ""
        low, high = self.interval
        by_chance = ", which chance can explain" if low <= 0 <= high else ""
        return f"a gain of {signed(self.gain)}, {between(self.interval, self.confidence)}{by_chance}"


def _order(metric: str, rows: int) -> Floats:
    """Scores that know nothing: one for all rows; for mrr, which gives equal scores less than a random order has, a random
    order, always the same."""
    if metric != "mrr":
        return np.full(rows, 0.5)
    return np.random.Philox(key=0).random_raw(rows) / 2.0**64
