"""Confidence intervals of the difference between two models: a paired bootstrap over the rows that both predicted.

    found = paired("binary", label, candidate, champion, weight, metrics=("auc", "loss"), samples=200)
    found["auc"].difference, found["auc"].standard_error         # candidate - champion

Each replicate draws every row (or, given groups, every group with all its rows) Poisson(1) times, the same draw for
both models, so what makes the rows easy or hard cancels. Scores are sorted once; a replicate only adds up weights.
Draws come from Philox's raw bits through a table, so the same seed gives the same numbers on every machine and NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headway.evaluation.metrics import Floats, arrays, auc, row_correct, row_loss
from headway.evaluation.ranking_metrics import NO_GROUP, ranked
from headway.evaluation.tasks import COMPARED, RANKED, Task

CELLS = 1 << 20
"""Replicates are worked on together up to this many drawn rows at a time."""

Draws = NDArray[np.uint8]  # [replicates, rows]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """candidate - champion of one metric on the same rows; None where the metric is undefined on them."""

    metric: str
    candidate: float | None
    champion: float | None
    difference: float | None
    standard_error: float | None

    def interval(self, confidence: float) -> tuple[float, float] | None:
        """The two-sided normal interval around the difference."""
        if self.difference is None or self.standard_error is None:
            return None
        reach = NormalDist().inv_cdf(0.5 + confidence / 2) * self.standard_error
        return self.difference - reach, self.difference + reach

    def detectable(self, confidence: float, tolerance: float = 0.0, power: float = 0.8) -> float | None:
        """The smallest true loss that a comparison with this spread would call beyond the tolerance in `power` of all cases.

        It is tolerance + (z(0.5 + confidence / 2) + z(power)) * standard_error, z being the quantile of the normal
        distribution: at 95% and 80%, tolerance + 2.80 standard errors.
        """
        if self.standard_error is None:
            return None
        normal = NormalDist()
        return tolerance + (normal.inv_cdf(0.5 + confidence / 2) + normal.inv_cdf(power)) * self.standard_error

    def probability_below(self, bound: float) -> float | None:
        """The one-sided p value of "the true difference is at least `bound`": small when it is clearly below."""
        if self.difference is None or self.standard_error is None:
            return None
        return _tail(self.difference - bound, self.standard_error)

    def probability_above(self, bound: float) -> float | None:
        """The one-sided p value of "the true difference is at most `bound`": small when it is clearly above."""
        if self.difference is None or self.standard_error is None:
            return None
        return _tail(bound - self.difference, self.standard_error)


def _tail(distance: float, error: float) -> float:
    if error == 0:
        return 0.0 if distance < 0 else 1.0
    # erfc, not 1 - cdf: it keeps its precision in the far tail
    return 0.5 * math.erfc(-distance / error / math.sqrt(2))


def paired(
    task: Task,
    label: ArrayLike,
    candidate: ArrayLike,
    champion: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    metrics: Sequence[str],
    samples: int = 200,
    seed: int = 0,
    group: NDArray[Any] | None = None,
    ndcg_at: int | None = None,
    check: Callable[[], None] = lambda: None,
) -> dict[str, Difference]:
    """The difference of each of `metrics` and its bootstrap standard error.

    Args:
        label, candidate, champion, weight: as in `headway.evaluation.metrics.measure`, row by row the same rows.
        group: int64 codes that say which rows belong together and are drawn together, as
        `headway.evaluation.ranking_metrics.codes_of` has them;
            [rows]. Of a single group there is no standard error.
        ndcg_at: for the metrics of `headway.evaluation.ranking_metrics`, of which `group` are the codes.
        check: called now and then; may raise to stop.
    """
    label, candidate, weight = arrays(task, label, candidate, weight)
    _, champion, _ = arrays(task, label, champion, weight)
    within = None if group is None or ndcg_at is None else (group, ndcg_at)
    rows: list[_Replicated | _RankedGroups] = [
        _RankedGroups(name, label, candidate, champion, weight, within)
        if name in RANKED
        else _Replicated(name, task, label, candidate, champion, weight)
        for name in metrics
    ]
    codes, units = (None, len(label)) if group is None else resampling_units(group)
    equal = len(weight) > 0 and bool((weight == weight[0]).all())
    stream = np.random.Philox(key=seed)
    together = max(1, CELLS // max(1, len(label)))
    differences: list[list[Floats]] = [[] for _ in rows]
    for start in range(0, samples if len(label) else 0, together):
        check()
        draws = _poisson(stream, min(together, samples - start), units)
        if codes is not None:
            draws = draws[:, codes]
        weights = draws if equal else draws * weight
        for metric, replicates in zip(rows, differences, strict=True):
            replicates.append(metric.replicate(weights))
    return {
        metric.name: _difference(metric, np.concatenate(replicates) if replicates and units > 1 else np.zeros(0))
        for metric, replicates in zip(rows, differences, strict=True)
    }


def _difference(metric: _Replicated | _RankedGroups, replicates: Floats) -> Difference:
    a, b = metric.values
    finite = replicates[np.isfinite(replicates)]  # a replicate may have drawn one class only
    enough = a is not None and b is not None and len(finite) >= max(2, len(replicates) // 2)
    return Difference(
        metric=metric.name,
        candidate=a,
        champion=b,
        difference=a - b if a is not None and b is not None else None,
        standard_error=float(finite.std(ddof=1)) if enough else None,
    )


class _Replicated:
    """One metric, prepared so that a replicate costs a few passes over its weights."""

    def __init__(self, name: str, task: Task, label: Floats, candidate: Floats, champion: Floats, weight: Floats):
        if name not in COMPARED[task]:
            raise ValueError(f"{name} of {task} cannot be compared; compared are {', '.join(COMPARED[task])}")
        self.name = name
        both = (candidate, champion)
        if name == "auc":
            self._ranked = [_Ranked(label, score) for score in both]
            self.values: tuple[float | None, ...] = tuple(auc(label, score, weight) for score in both)
            return
        per_row = {"loss": row_loss, "rmse": row_loss, "accuracy": row_correct, "mae": _row_distance}[name]
        self._columns = np.stack([per_row(task, label, score) for score in both], axis=1)
        self._root = np.sqrt if name == "rmse" else np.positive
        total = weight.sum()
        means = self._root(weight @ self._columns / total) if total > 0 else np.full(2, np.nan)
        self.values = tuple(float(value) if np.isfinite(value) else None for value in means)

    def replicate(self, weights: NDArray[Any]) -> Floats:
        """candidate - champion under each replicate's weights [replicates, rows] -> [replicates]."""
        with np.errstate(invalid="ignore", divide="ignore"):
            if self.name == "auc":
                return self._ranked[0].auc(weights) - self._ranked[1].auc(weights)
            as_floats = weights.astype(np.float64, copy=False)
            means = self._root(as_floats @ self._columns / as_floats.sum(1, keepdims=True))
            return means[:, 0] - means[:, 1]


class _RankedGroups:
    """One metric of the order within groups: each has its value, and a replicate weighs them anew."""

    def __init__(
        self,
        name: str,
        label: Floats,
        candidate: Floats,
        champion: Floats,
        weight: Floats,
        within: tuple[NDArray[Any], int] | None,
    ):
        if within is None:
            raise ValueError(f"{name} needs groups, and the rows have none")
        self.name = name
        both = [ranked(label, score, weight, within[0], k=within[1]) for score in (candidate, champion)]
        self.values: tuple[float | None, ...] = tuple(ranking.mean()[name] for ranking in both)
        self._columns = np.stack([ranking.values[name] for ranking in both], axis=1)
        # of a group's rows each is drawn as often, so that one stands for all; by its own weight, or all by the same
        self._row, self._factor = both[0].row, both[0].weight
        if len(weight) and not (weight == weight[0]).all():
            self._factor = self._factor / weight[self._row]

    def replicate(self, weights: NDArray[Any]) -> Floats:
        """As of `_Replicated`."""
        drawn = weights.take(self._row, axis=1) * self._factor
        with np.errstate(invalid="ignore", divide="ignore"):
            means = drawn @ self._columns / drawn.sum(1, keepdims=True)
        return means[:, 0] - means[:, 1]


def _row_distance(task: Task, label: Floats, prediction: Floats) -> Floats:
    return np.abs(prediction - label)


class _Ranked:
    """Where each positive stands among the negatives by score: all that AUC needs to know of the scores."""

    def __init__(self, label: Floats, score: Floats):
        order = np.argsort(score, kind="stable")
        positive = label[order] > 0.5
        self._positives, self._negatives = order[positive], order[~positive]
        ranked = score[self._negatives]
        self._below = np.searchsorted(ranked, score[self._positives], side="left")
        self._up_to = np.searchsorted(ranked, score[self._positives], side="right")
        self._ties = not np.array_equal(self._below, self._up_to)

    def auc(self, weights: NDArray[Any]) -> Floats:
        """[replicates, rows] -> [replicates]; NaN where a class has no weight."""
        whole = weights.dtype == np.uint8  # plain counts: integer sums are exact and six times as fast
        mass: NDArray[Any] = np.zeros((len(weights), len(self._negatives) + 1), np.int64 if whole else np.float64)
        np.cumsum(weights.take(self._negatives, axis=1), axis=1, out=mass[:, 1:])
        positive = weights.take(self._positives, axis=1)
        below: NDArray[Any] = mass.take(self._below, axis=1)
        if self._ties:
            below = 0.5 * (below + mass.take(self._up_to, axis=1))
        right = np.einsum("ij,ij->i", positive.astype(np.float64, copy=False), below)
        return right / (positive.sum(1, dtype=np.float64) * mass[:, -1])


def resampling_units(group: NDArray[Any]) -> tuple[NDArray[np.int64], int]:
    """(which unit each row is drawn with; how many there are). A row without a group
    (`headway.evaluation.ranking_metrics.NO_GROUP`) is one by itself."""
    values, codes = np.unique(group, return_inverse=True)
    codes, units = codes.reshape(-1), len(values)
    alone = np.flatnonzero(group == NO_GROUP)
    if len(alone):  # it is the greatest of the values
        codes[alone] = units - 1 + np.arange(len(alone))
        units += len(alone) - 1
    return codes, units


def _poisson_table() -> NDArray[np.uint8]:
    """Poisson(1) by inversion of a 16-bit uniform number: exact to 2**-17 in every probability."""
    uniform = (np.arange(1 << 16) + 0.5) / (1 << 16)
    cumulative = np.cumsum([math.exp(-1) / math.factorial(k) for k in range(12)])
    return np.searchsorted(cumulative, uniform).astype(np.uint8)


_POISSON = _poisson_table()


def _poisson(stream: np.random.Philox, replicates: int, units: int) -> Draws:
    """Poisson(1) counts [replicates, units]; the stream goes on where the last call left it."""
    words = -(-units // 4)
    bits = stream.random_raw(replicates * words).astype("<u8", copy=False)
    return _POISSON.take(bits.view("<u2")).reshape(replicates, 4 * words)[:, :units]
