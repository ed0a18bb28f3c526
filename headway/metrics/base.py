"""Metrics: a metric's value on rows, and its influence, which is how much each row's weight changes the value.

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
"""Columns of a predictions table that hold for one retrieval model only (`headway.metrics.retrieval`)."""
_STEP = 1e-5
"""The step of a numeric derivative, in standard deviations of the averaged values."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Evaluation rows as arrays."""

    label: Floats
    """[rows]: the number, or the index of the class."""
    prediction: Floats
    """[rows] or [rows, width]; NaN where the model gave no finite number."""
    weight: Floats
    """[rows]"""
    groups: NDArray[np.int64] | None = None
    """[rows]: the same number for the rows of one group, within which ranking metrics judge the order."""
    columns: Mapping[str, NDArray[Any]] | None = None
    """Other columns of the predictions table, for the metrics that read them; each [rows]."""
    units: NDArray[np.int64] | None = None
    """[rows]: the same number for rows that are resampled together, with a group never divided; None: groups are the units."""
    memo: dict[Any, Any] = field(default_factory=dict, repr=False)
    """The cache of intermediate results that several metrics of these rows share."""
    shared_memo: dict[Any, Any] = field(default_factory=dict, repr=False)
    """The cache of results that do not depend on the predictions."""

    def __len__(self) -> int:
        return len(self.label)

    @cached_property
    def total(self) -> float:
        """The sum of the rows' weights."""
        return float(self.weight.sum())

    @property
    def resample_unit(self) -> NDArray[np.int64] | None:
        """The resampling unit of each row, [rows]: `units`, else `groups`; None: rows are resampled one by one."""
        return self.groups if self.units is None else self.units

    @cached_property
    def known(self) -> bool:
        """Whether every prediction is a number."""
        return not np.isnan(self.prediction).any()

    @property
    def unweighted(self) -> bool:
        """Whether every row has weight 1."""
        return self.cached_for_all_models("unweighted", lambda: bool((self.weight == 1.0).all()))

    def cached(self, key: object, make: Callable[[], Made]) -> Made:
        """Returns the result of `make()`, which is computed once for these rows and kept under `key`."""
        return _once(self.memo, key, make)

    def cached_for_all_models(self, key: object, make: Callable[[], Made]) -> Made:
        """Returns the result of `make()`, computed once for these rows whichever model predicts them."""
        return _once(self.shared_memo, key, make)

    def at(self, rows: Any) -> Rows:
        """Returns the rows at `rows`: indices, a slice or a boolean mask."""
        columns = None if self.columns is None else {name: values[rows] for name, values in self.columns.items()}
        groups = None if self.groups is None else self.groups[rows]
        units = None if self.units is None else self.units[rows]
        label, shared = self.label[rows], {"unweighted": True} if self.unweighted else {}
        weight = self.weight[: len(label)] if self.unweighted and len(label) <= len(self) else self.weight[rows]
        return Rows(label, self.prediction[rows], weight, groups, columns, units, shared_memo=shared)

    def predicted(self, prediction: Floats) -> Rows:
        """Returns the same rows with another model's predictions, without the columns in `OF_THE_MODEL`."""
        columns = self.columns and {name: values for name, values in self.columns.items() if name not in OF_THE_MODEL}
        return replace(self, prediction=prediction, columns=columns, memo={})

    def keeping(self, *keys: object) -> Rows:
        """Returns the same rows with an empty cache `memo`, except for the entries with these keys."""
        return replace(self, memo={key: self.memo[key] for key in keys if key in self.memo})


def _once(kept: dict[Any, Any], key: object, make: Callable[[], Made]) -> Made:
    if key not in kept:
        kept[key] = make()
    found: Made = kept[key]
    return found


Better = Literal["higher", "lower", "neither"]


@dataclass(frozen=True, eq=False)
class OnePartDerivative:
    """A derivative [rows, parts] in compact form: `common` for every row, plus the row's number `own` in one of the parts."""

    part: NDArray[Any]
    """[rows], integers: the part to which the row's number in `own` is added."""
    own: Floats
    """[rows]"""
    common: Floats
    """[parts]"""


def unit_sums(
    derivative: Floats | OnePartDerivative, rows: Rows, codes: NDArray[np.int64] | None, units: int
) -> Floats:
    """Returns each unit's sum of weight * derivative, [units] or [units, parts]: how much a unit moves the quantity.

    Args:
        codes: the unit of each row, [rows]; None: each row is a unit.
    """

    def moved(of: Floats) -> Floats:
        return of if rows.unweighted else of * rows.weight

    if isinstance(derivative, OnePartDerivative):
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
    """Returns the summed weight of each unit, [units]; `codes` as in `unit_sums`."""
    kept = rows.memo.get("unit weights")
    if kept is None or kept[0] is not codes:
        weight = None if rows.unweighted else rows.weight
        weights = rows.weight if codes is None else np.asarray(np.bincount(codes, weight, units), np.float64)
        kept = rows.memo["unit weights"] = codes, weights
    found: Floats = kept[1]
    return found


class Metric(ABC):
    """One number that judges predictions."""

    name: str
    higher_is_better: bool | None = False
    """None: no direction is better, as for the mean prediction; models are not compared by it."""
    of_the_mean: bool = False
    """Whether it judges only the mean prediction, or shares of labels below quantiles. A constant does well by such a metric."""
    reads_columns: bool = False
    """Whether it reads `Rows.columns`, as metrics of the user's own may."""
    unit: Literal["rows", "classes", "groups"] = "rows"
    """What its standard error rests on: all rows, the rows of the rarer class, or the groups."""
    within: tuple[float, float] = (-np.inf, np.inf)
    """Its least and its greatest possible value."""
    heavy: bool = False
    """Whether the averaged values have no bound, so that a few rare rows may carry most of the variance."""
    smooth: bool = True
    """Whether a small change of the rows changes it little; False for a metric at a chosen point, such as the best threshold."""
    ratio: bool = False
    """Whether it is a quotient, or 1 minus a quotient if its upper end is 1: chance multiplies the quotient by a factor."""

    @property
    def better(self) -> Better:
        """Which values are better, as configs and results write it: "higher", "lower" or "neither"."""
        return "neither" if self.higher_is_better is None else "higher" if self.higher_is_better else "lower"

    @abstractmethod
    def value(self, rows: Rows) -> float | None:
        """Returns the metric on these rows, whose total weight must be positive; None where it is undefined."""

    def cached_value(self, rows: Rows) -> float | None:
        """Returns `value`, computed once for these rows; None also for rows without any weight."""
        return rows.cached(self, lambda: self.value(rows) if rows.total > 0 else None)

    def influence(self, rows: Rows) -> Floats | None:
        """Returns the derivative of the metric with respect to the weight of each row, [rows]; None where the metric
        has no value, or no derivative.

        The sum over the rows of (weight * influence)^2 is the variance of the metric (the infinitesimal jackknife:
        Efron, "The jackknife, the bootstrap and other resampling plans", 1982; for an AUC it is that of DeLong et al.,
        1988)."""
        return None

    def influence_by_unit(self, rows: Rows, codes: NDArray[np.int64] | None, units: int) -> Floats | None:
        """Returns the sum of weight * `influence` over each unit's rows, [units]; None where the metric has no influence.

        Args:
            codes: the unit of each row, [rows]; None: each row is a unit.
        """
        influence = self.influence(rows)
        return None if influence is None else unit_sums(influence, rows, codes, units)

    def parts(self, rows: Rows) -> Floats | None:
        """Returns the signed parts of a metric that is the sum of |parts|, [parts]; None for other metrics, or
        without a value."""
        return None

    def influence_on_parts_by_unit(self, rows: Rows, codes: NDArray[np.int64] | None, units: int) -> Floats | None:
        """Returns how much each unit moves each of `parts`, [units, parts]; None without parts, or if a number is not finite."""
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class MomentMetric(Metric):
    """A metric that is a function of moments, which are weighted means over the rows.

    Args:
        moments: returns the values to be averaged, float64 [rows, moments].
        combine: returns the metric from the means, [..., moments] -> [...]; with a single moment it must be increasing.
            Left out: the metric is the first mean, or the sum of |parts|.
        parts: returns the parts of a metric that is the sum of |parts|, [..., moments] -> [..., parts].
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
        """Returns the result of `compute()`, cached under `name` until another moment function, or another `of`, asks for it."""
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
        """Returns the influence, computed by the chain rule; None where it is not finite."""
        means, slope = self._slope(rows, self._of_means)
        found: Floats = self._moments_of(rows) @ slope
        found -= means @ slope
        found /= rows.total
        return found[:, 0] if np.isfinite(found[:1]).all() else None

    def influence_by_unit(self, rows: Rows, codes: NDArray[np.int64] | None, units: int) -> Floats | None:
        """Returns the sum of weight * influence over each unit's rows, [units], from summed moments; None if not finite."""
        found = self._moved(rows, codes, units, *self._slope(rows, self._of_means))
        return None if found is None else found[:, 0]

    def _of_means(self, means: Floats) -> Floats:
        return self._combine(means)[..., None]

    def _slope(self, rows: Rows, of: Callable[[Floats], Floats]) -> tuple[Floats, Floats]:
        """Returns the means of the moments, and the numeric derivative of `of` by each mean, [moments, width]."""

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
        """Returns how much each unit moves a function of the means with this `slope`, [units, width]; None if not finite."""
        if not (np.isfinite(means).all() and np.isfinite(slope).all()):
            return None
        sums, weights = self._kept(
            rows,
            "moments by unit",
            lambda: (unit_sums(self._moments_of(rows), rows, codes, units), unit_weights(rows, codes, units)),
            codes,
        )
        found: Floats = sums @ slope
        found -= np.multiply.outer(weights, means @ slope)
        found /= rows.total
        return found

    def parts(self, rows: Rows) -> Floats | None:
        if self._parts is None or self.cached_value(rows) is None:
            return None
        return self._parts(rows.weight @ self._moments_of(rows) / rows.total)

    def influence_on_parts_by_unit(self, rows: Rows, codes: NDArray[np.int64] | None, units: int) -> Floats | None:
        return None if self._parts is None else self._moved(rows, codes, units, *self._slope(rows, self._parts))


def moment_of(of_row: Callable[[Floats, Floats], Floats]) -> Callable[[Rows], Floats]:
    """Returns a moment function for `MomentMetric`: it computes `of_row(label, prediction)` for all rows, [rows, 1]."""
    return lambda rows: of_row(rows.label, rows.prediction)[:, None]


def finite(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else value
