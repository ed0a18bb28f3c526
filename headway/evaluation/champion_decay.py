"""Tests whether a champion has become worse since its promotion: its metrics at that time against those on today's rows.

    kept = worth(task, rows, metrics, label=facts, ...)          # with the version, at its promotion
    decayed(kept, worth(task, todays_rows, ...), tolerances, judging, confidence=0.95)

The two sets of rows differ, so the interval is that of two samples. Where a constant prediction has the metric too, the test
compares the gain over the constant on the same rows: a log loss rises for every model when a class becomes more frequent, and
the champion is not worse for it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headway.evaluation.baseline import constant_predictions
from headway.evaluation.bootstrap import Difference, paired, single
from headway.evaluation.margins import allowed
from headway.evaluation.sample_size import uncompared
from headway.evaluation.verdict import BEYOND, DECAY, Check, Worth
from headway.metrics.base import Metric, Rows
from headway.tasks.base import LabelFacts, Task


def worth(
    task: Task,
    rows: Rows,
    metrics: Sequence[Metric],
    *,
    label: LabelFacts | None,
    seed: int,
    check: Callable[[], None] = lambda: None,
) -> Worth:
    """What a model is worth on these rows, by each metric that can be compared on them.

    Args:
        rows: with its predictions, and the units that they are drawn by.
        label: of the train rows.
    """
    found: Worth = {}
    for metric in metrics:
        against = None if label is None or metric.of_the_mean else constant_predictions(task, label, metric, len(rows))
        if uncompared(metric, rows):
            continue
        if against is None:
            measured = single(rows, metric, seed=seed, check=check)
        else:
            measured = paired(rows, against, metrics=(metric,), seed=seed, check=check)[metric.name]
        if measured.difference is None or measured.standard_error is None:
            continue
        gain = None if against is None else measured.difference * (1 if metric.higher_is_better else -1)
        found[metric.name] = {
            "value": measured.candidate,
            "gain": gain,
            "error": measured.standard_error,
            "freedom": None if math.isinf(measured.freedom) else measured.freedom,
        }
    return found


@dataclass(frozen=True, kw_only=True)
class Decay:
    """A metric by which a model is worse today than it was."""

    metric: Metric
    name: str
    then: Mapping[str, float | None]
    today: Mapping[str, float | None]
    loss: float
    """By how much it is worse, in the metric's unit."""
    interval: tuple[float, float]
    confidence: float
    margin: float

    def check(self, version: int) -> Check:
        """What the verdict keeps of it; as in other checks, the sign of the change is the metric's."""
        low, high = self.interval
        down = self.metric.higher_is_better is not False
        then, today = self.then["gain"], self.today["gain"]
        return Check(
            name=DECAY,
            metric=self.name,
            against=f"version {version} at its promotion",
            value=self.today["value"],
            before=self.then["value"],
            change=-self.loss if down else self.loss,
            interval=(-high, -low) if down else (low, high),
            confidence=self.confidence,
            better=self.metric.better,
            allowed=self.margin,
            gains=None if then is None or today is None else (then, today),
            outcome=BEYOND,
        )


def decayed(
    then: Worth,
    today: Worth,
    tolerances: Mapping[str, float | str],
    judging: Mapping[str, Metric],
    *,
    confidence: float,
) -> list[Decay]:
    """The metrics by which a model has become worse by more than the tolerance, beyond chance.

    The confidence is that of all metrics together (Bonferroni).
    """
    both = [name for name in tolerances if name in then and name in today]
    shared = 1 - (1 - confidence) / max(len(both), 1)
    found = []
    for name in both:
        before, now, metric = then[name], today[name], judging[name]
        was, value, error, error_now = before["value"], now["value"], before["error"], now["error"]
        if was is None or value is None or error is None or error_now is None:
            continue
        if (before["gain"] is None) != (now["gain"] is None):
            continue  # the constant is known of one alone
        if before["gain"] is None or now["gain"] is None:
            fell = (was - value) * (1 if metric.higher_is_better else -1)
        else:
            fell = before["gain"] - now["gain"]
        measured = Difference(
            metric=name,
            candidate=value,
            champion=was,
            difference=fell,
            standard_error=math.hypot(error, error_now),
            freedom=min(math.inf if free is None else free for free in (before["freedom"], now["freedom"])),
        )
        interval = measured.interval(shared)
        margin = allowed(tolerances[name], was, before["gain"])
        if interval is not None and interval[0] > margin:
            found.append(
                Decay(
                    metric=metric,
                    name=name,
                    then=before,
                    today=now,
                    loss=fell,
                    interval=interval,
                    confidence=shared,
                    margin=margin,
                )
            )
    return found
