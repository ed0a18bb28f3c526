"""How far a candidate's predictions are from the champion's on the same rows, as distributions.

    drift = prediction_drift(task, rows, champion)
    drift.divergence                # 0.012 bits: 0 for equal distributions, 1 for two that do not overlap

It is the Jensen-Shannon divergence, as validation has it for columns. Numbers are binned by the quantiles of both sides
together, twenty of each; quantiles are judged by the level nearest the median; of several classes the shares predicted are
compared. Two models may agree in every metric and still send other rows beyond a threshold: that is what it shows.
"""

from dataclasses import dataclass

import numpy as np

from headway.evaluation.verdict import BEYOND, DRIFT, NO_LIMIT, WITHIN, Check
from headway.messages import number
from headway.metrics.base import Floats, Rows
from headway.tasks.base import Task
from headway.tasks.builtin import Quantiles

BINS = 20


@dataclass(frozen=True, kw_only=True)
class PredictionDrift:
    """The distance of two models' predictions, with the means that a person looks at first."""

    divergence: float
    """Jensen-Shannon, bits."""
    candidate: float | None
    champion: float | None
    label: float | None
    """The weighted means; None for several classes."""

    def check(self, against: str, limit: float | None, rows: int) -> Check:
        """What the verdict keeps of it.

        Args:
            limit: the most bits that are allowed; None: as many as they are.
        """
        passed = limit is None or self.divergence <= limit
        return Check(
            name=DRIFT,
            against=against,
            value=self.divergence,
            better="lower",
            allowed=limit,
            limit="" if limit is None else "at most",
            outcome=BEYOND if not passed else WITHIN if limit is not None else NO_LIMIT,
            passed=passed,
            rows=rows,
        )

    def summary(self, against: str, limit: float | None) -> str:
        """The distance in a clause."""
        by = number(self.divergence)
        text = f"the predictions drifted from {against}'s by {by} {'bit' if by == '1' else 'bits'}"
        if limit is None:
            return text
        return f"{text}, {'within' if self.divergence <= limit else 'beyond'} the limit of {number(limit)}"

    @property
    def detail(self) -> str:
        if self.candidate is None:
            return "Jensen-Shannon"
        mean = f"their mean went from {number(self.champion)} to {number(self.candidate)}"
        return f"Jensen-Shannon; {mean}, and the label's is {number(self.label)}"


def prediction_drift(task: Task, rows: Rows, champion: Floats) -> PredictionDrift:
    """Compare the candidate's predictions with the champion's.

    Args:
        rows: with the candidate's predictions, all finite.
        champion: of the same rows, [rows] or [rows, width].
    """
    weight = rows.weight if rows.total > 0 else np.ones(len(rows))
    if task.per_class:
        shares = [np.average(side, axis=0, weights=weight) for side in (rows.prediction, champion)]
        divergence = jensen_shannon(*(share / share.sum() for share in shares))
        return PredictionDrift(divergence=divergence, candidate=None, champion=None, label=None)
    ours, theirs = (_number(task, side) for side in (rows.prediction, champion))
    edges = np.unique(np.concatenate([_edges(ours, weight), _edges(theirs, weight)]))
    means = [float(np.average(side, weights=weight)) for side in (ours, theirs, rows.label)]
    return PredictionDrift(
        divergence=jensen_shannon(*(_shares(side, weight, edges) for side in (ours, theirs))),
        candidate=means[0],
        champion=means[1],
        label=means[2],
    )


def _number(task: Task, prediction: Floats) -> Floats:
    """One number per row."""
    if prediction.ndim == 1:
        return prediction
    return prediction[:, task.middle if isinstance(task, Quantiles) else 0]


def _edges(values: Floats, weight: Floats) -> Floats:
    """The upper ends of bins that each hold a twentieth of the weight, the last one included."""
    order = np.argsort(values, kind="stable")
    upto = np.cumsum(weight[order])
    at = np.searchsorted(upto, np.linspace(0, 1, BINS + 1)[1:] * upto[-1] * (1 - 1e-12))
    return values[order[np.minimum(at, len(values) - 1)]]


def _shares(values: Floats, weight: Floats, edges: Floats) -> Floats:
    counts = np.bincount(np.searchsorted(edges, values, "left"), weight, len(edges) + 1)
    return counts / counts.sum()


def jensen_shannon(p: Floats, q: Floats) -> float:
    """The divergence of two distributions over the same bins, in bits (Lin, "Divergence measures based on the Shannon
    entropy", 1991)."""
    middle = (p + q) / 2

    def relative(side: Floats) -> float:
        some = side > 0
        return float((side[some] * np.log2(side[some] / middle[some])).sum())

    return float(np.clip((relative(p) + relative(q)) / 2, 0.0, 1.0))
