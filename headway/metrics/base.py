"""A metric: its value on some rows, and how much it moves with the weight of each.

    auc = Auc()
    auc.value(rows)                              # 0.71, or None where it is undefined
    auc.influence(rows)                          # float64 [rows]; its standard error follows from them in one pass

A metric that is a function of weighted means needs no class of its own:

    MomentMetric("rmse", lambda rows: (rows.prediction - rows.label)[:, None] ** 2, lambda means: np.sqrt(means[..., 0]))
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Made = TypeVar("Made")
OF_THE_MODEL = ("retrieval_rank", "retrieval_best", "retrieval_items")
"""Columns of a predictions table that say something of the model: `headway.metrics.retrieval`."""
_STEP = 1e-5
"""Of a numeric derivative, in standard deviations of what is averaged."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Evaluation rows as arrays."""

    label: Floats
    """[rows]: the number, or the index of the class."""
    prediction: Floats
    """[rows] or [rows, width]; not a number where a model gave none."""
    weight: Floats
    """[rows]"""
    groups: NDArray[np.int64] | None = None
    """[rows]: equal for the rows of a group, whose order is judged."""
    columns: Mapping[str, NDArray[Any]] | None = None
    """Other columns, for metrics of the user's own; each [rows]."""
    units: NDArray[np.int64] | None = None
    """[rows]: equal for rows that are drawn together, whole groups among them; None: the groups, if there are any."""
    memo: dict[Any, Any] = field(default_factory=dict, repr=False)
    """What several metrics of the same rows need, computed once."""
    shared: dict[Any, Any] = field(default_factory=dict, repr=False)
    """The same, of what holds whoever predicts the rows."""

    def __len__(self) -> int:
        return len(self.label)

    @cached_property
    def total(self) -> float:
        """The summed weight."""
        return float(self.weight.sum())

    @property
    def drawn(self) -> NDArray[np.int64] | None:
        """What is drawn together, [rows]; None: rows are drawn one by one."""
        return self.groups if self.units is None else self.units

    @cached_property
    def known(self) -> bool:
        """Whether every prediction is a number."""
        return not np.isnan(self.prediction).any()

    @property
    def alike(self) -> bool:
        """Whether each row weighs 1."""
        return self.once_for_all("alike", lambda: bool((self.weight == 1.0).all()))

    def once(self, key: object, make: Callable[[], Made]) -> Made:
        """Returns what `make` returns, computed once for these rows."""
        return _once(self.memo, key, make)

    def once_for_all(self, key: object, make: Callable[[], Made]) -> Made:
        """Returns what `make` returns, computed once for these rows, whoever predicts them."""
        return _once(self.shared, key, make)

    def at(self, rows: Any) -> Rows:
        """Returns some of the rows: indices, a slice or a mask."""
        columns = None if self.columns is None else {name: values[rows] for name, values in self.columns.items()}
        groups = None if self.groups is None else self.groups[rows]
        units = None if self.units is None else self.units[rows]
        label, shared = self.label[rows], {"alike": True} if self.alike else {}
        weight = self.weight[: len(label)] if self.alike and len(label) <= len(self) else self.weight[rows]
        return Rows(label, self.prediction[rows], weight, groups, columns, units, shared=shared)

    def predicted(self, prediction: Floats) -> Rows:
        """Returns the same rows with the predictions of another model, without the columns that this one's brought."""
        columns = self.columns and {name: values for name, values in self.columns.items() if name not in OF_THE_MODEL}
        return replace(self, prediction=prediction, columns=columns, memo={})

    def keeping(self, *keys: object) -> Rows:
        """Returns the same rows without what was computed of their predictions, but what has these keys."""
        return replace(self, memo={key: self.memo[key] for key in keys if key in self.memo})


def _once(kept: dict[Any, Any], key: object, make: Callable[[], Made]) -> Made:
    if key not in kept:
        kept[key] = make()
    found: Made = kept[key]
    return found


Better = Literal["higher", "lower", "neither"]


@dataclass(frozen=True, eq=False)
class OfOnePart:
    """A derivative [rows, parts]: a row moves one part by a number of its own, and each part as every other row does."""

    part: NDArray[Any]
    """[rows], integers."""
    own: Floats
    """[rows]"""
    common: Floats
    """[parts]"""


def by_unit(derivative: Floats | OfOnePart, rows: Rows, codes: NDArray[np.int64] | None, units: int) -> Floats:
    """Returns how much each unit moves something, [units] or [units, parts], by the derivative by the weight of each
    row.

    Args:
        codes: the unit of each row, [rows]; None: each row is one.
    """

    def moved(of: Floats) -> Floats:
        return of if rows.alike else of * rows.weight

    if isinstance(derivative, OfOnePart):
        parts = len(derivative.common)
        cells = (np.arange(units) if codes is None else codes) * parts + derivative.part
        own = np.asarray(np.bincount(cells, moved(derivative.own), units * parts), np.float64).reshape(units, parts)
        return own + np.multiply.outer(unit_weights(rows, codes, units), derivative.common)
    if codes is None:
        return moved(derivative) if derivative.ndim == 1 else moved(derivative.T).T
    if derivative.ndim == 1:
        return np.asarray(np.bincount(codes, moved(derivative), units), np.float64)
    found = np.empty((units, derivative.shape[1]))
    for column, of in zip(found.T, derivative.T, strict=True):
        column[:] = np.bincount(codes, moved(of), units)
    return found


def unit_weights(rows: Rows, codes: NDArray[np.int64] | None, units: int) -> Floats:
    """Returns the summed weight of each unit, [units]; `codes` as in `by_unit`."""
    kept = rows.memo.get("unit weights")
    if kept is None or kept[0] is not codes:
        weight = None if rows.alike else rows.weight
        weights = rows.weight if codes is None else np.asarray(np.bincount(codes, weight, units), np.float64)
        kept = rows.memo["unit weights"] = codes, weights
    found: Floats = kept[1]
    return found


class Metric(ABC):
    """One number that judges predictions."""

    name: str
    higher_is_better: bool | None = False
    """None: neither is, as of the mean prediction; models are not compared by it."""
    of_the_mean: bool = False
    """It judges nothing but the mean prediction, or the share of labels below one, which a constant gets right too."""
    reads_columns: bool = False
    """Whether it looks at `Rows.columns`; a metric of the user's own may."""
    unit: Literal["rows", "classes", "groups"] = "rows"
    """What its spread rests on: all rows, the rows of the rarer class, or the groups."""
    within: tuple[float, float] = (-np.inf, np.inf)
    """The least and the most that it can be."""
    heavy: bool = False
    """What is averaged has no bound: a row that rarely comes may carry most of its spread."""
    smooth: bool = True
    """A small change of the rows changes it little; a choice among them, such as the best threshold, is another thing."""
    ratio: bool = False
    """A quotient, which chance moves by factors; where it has an upper end, 1 - it is one."""

    @property
    def better(self) -> Better:
        """Which values are better, in the word that configs and results have for it."""
        return "neither" if self.higher_is_better is None else "higher" if self.higher_is_better else "lower"

    @abstractmethod
    def value(self, rows: Rows) -> float | None:
        """Returns the metric on these rows; None where it is undefined. Rows have a positive total weight."""

    def on(self, rows: Rows) -> float | None:
        """Returns `value`, computed once for these rows; None for rows without any weight."""
        return rows.once(self, lambda: self.value(rows) if rows.total > 0 else None)

    def influence(self, rows: Rows) -> Floats | None:
        """Returns the derivative of the metric by the weight of each row, [rows]; None where it has no value, or no
        derivative.

        The sum over the rows of (weight * influence)^2 is the variance of the metric (the infinitesimal jackknife: Efron,
        "The jackknife, the bootstrap and other resampling plans", 1982; of an AUC it is that of DeLong et al., 1988).
        """
        return None

    def moved(self, rows: Rows, codes: NDArray[np.int64] | None, units: int) -> Floats | None:
        """Returns how much each unit moves the metric, [units]: `influence` times weight, summed over the unit's rows.

        Args:
            codes: the unit of each row, [rows]; None: each row is one.
        """
        influence = self.influence(rows)
        return None if influence is None else by_unit(influence, rows, codes, units)

    def parts(self, rows: Rows) -> Floats | None:
        """Returns the parts of a metric that is the sum of |parts|, [parts]; None of others, and where it has no
        value."""
        return None

    def moved_parts(self, rows: Rows, codes: NDArray[np.int64] | None, units: int) -> Floats | None:
        """Returns how much each unit moves each of `parts`, [units, parts]; None where that is not finite."""
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class MomentMetric(Metric):
    """A function of weighted means over the rows.

    Args:
        moments: what is averaged; float64 [rows, moments].
        combine: the metric of those means; [..., moments] -> [...]. Of one moment it rises with it. Left out: the first of
            them, or the sum of |parts|.
        parts: of a metric that is the sum of |parts|; [..., moments] -> [..., parts].
    """

    def __init__(
        self,
        name: str,
        moments: Callable[[Rows], Floats],
        combine: Callable[[Floats], Floats] | None = None,
        *,
        higher_is_better: bool | None = False,
        unit: Literal["rows", "classes"] = "rows",
        of_the_mean: bool = False,
        within: tuple[float, float] = (-np.inf, np.inf),
        ratio: bool = False,
        heavy: bool = False,
        parts: Callable[[Floats], Floats] | None = None,
    ):
        self.name, self.higher_is_better, self.unit, self.of_the_mean = name, higher_is_better, unit, of_the_mean
        self.within, self.ratio, self.heavy = within, ratio, heavy
        if combine is None:
            combine = (lambda means: means[..., 0]) if parts is None else (lambda means: np.abs(parts(means)).sum(-1))
        self.moments, self._combine, self._parts = moments, combine, parts

    def _kept(self, rows: Rows, name: str, compute: Callable[[], Any], of: Any = None) -> Any:
        """Returns what is computed of these rows' moments, and of `of`, kept until those of other moments are asked
        for."""
        kept = rows.memo.get(name)
        if kept is None or kept[0] is not self.moments or kept[1] is not of:
            kept = rows.memo[name] = self.moments, of, compute()
        return kept[2]

    def _moments_of(self, rows: Rows) -> Floats:
        found: Floats = self._kept(rows, "moments", lambda: self.moments(rows))
        return found

    def value(self, rows: Rows) -> float | None:
        means = rows.weight @ self._moments_of(rows) / rows.total
        with np.errstate(invalid="ignore", divide="ignore"):
            return finite(float(self._combine(means)))

    def influence(self, rows: Rows) -> Floats | None:
        """Returns the influence by the chain rule."""
        means, slope = self._slope(rows, self._of_means)
        found: Floats = self._moments_of(rows) @ slope
        found -= means @ slope
        found /= rows.total
        return found[:, 0] if np.isfinite(found[:1]).all() else None

    def moved(self, rows: Rows, codes: NDArray[np.int64] | None, units: int) -> Floats | None:
        """Returns the same by unit: its moments are summed first."""
        found = self._moved(rows, codes, units, *self._slope(rows, self._of_means))
        return None if found is None else found[:, 0]

    def _of_means(self, means: Floats) -> Floats:
        return self._combine(means)[..., None]

    def _slope(self, rows: Rows, of: Callable[[Floats], Floats]) -> tuple[Floats, Floats]:
        """Returns (the means of the moments, the numeric derivative of each `of` them by each, [moments, width])"""

        def spread() -> tuple[Floats, Floats]:
            moments, share = self._moments_of(rows), rows.weight / rows.total
            means = share @ moments
            return means, np.sqrt(np.maximum(share @ moments**2 - means**2, 0.0))

        means, spreads = self._kept(rows, "moments' spread", spread)
        step = _STEP * np.where(spreads > 0, spreads, 1.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            return means, (of(means + np.diag(step)) - of(means - np.diag(step))) / (2 * step[:, None])

    def _moved(
        self, rows: Rows, codes: NDArray[np.int64] | None, units: int, means: Floats, slope: Floats
    ) -> Floats | None:
        """Returns how much each unit moves what has this slope, [units, width]; None where that is not finite."""
        if not (np.isfinite(means).all() and np.isfinite(slope).all()):
            return None
        sums, weights = self._kept(
            rows,
            "moments by unit",
            lambda: (by_unit(self._moments_of(rows), rows, codes, units), unit_weights(rows, codes, units)),
            codes,
        )
        found: Floats = sums @ slope
        found -= np.multiply.outer(weights, means @ slope)
        found /= rows.total
        return found

    def parts(self, rows: Rows) -> Floats | None:
        if self._parts is None or self.on(rows) is None:
            return None
        return self._parts(rows.weight @ self._moments_of(rows) / rows.total)

    def moved_parts(self, rows: Rows, codes: NDArray[np.int64] | None, units: int) -> Floats | None:
        return None if self._parts is None else self._moved(rows, codes, units, *self._slope(rows, self._parts))


def per_row(of_row: Callable[[Floats, Floats], Floats]) -> Callable[[Rows], Floats]:
    """Returns the moments of a metric that is the mean of one number per row, computed from (label, prediction)."""
    return lambda rows: of_row(rows.label, rows.prediction)[:, None]


def finite(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else value
