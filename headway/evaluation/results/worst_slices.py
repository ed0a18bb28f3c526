"""The slices on which a model is worst, found without being named.

    found = worst(table, rows, loss, ["carrier", "distance: 5"], min_rows=100)
    found["tried"], found["slices"][0]       # 214, {"slice": "carrier", "value": "EV", "rows": 1203, "loss": 0.61, ...}

A slice is worse when its mean loss is above that of all other rows beyond chance (a one-sided test of the difference of two
means by Student's t, as in Chung et al., "Slice Finder", 2019). Rows that are drawn together are one unit: a slice, and what is
left beside it, need five, and the smaller of the two has as many degrees of freedom as units, less one. Looked at are values of
columns of few values, quantile bins of numbers, and pairs of the columns that tell most.
The p values are corrected for everything that was looked at
(Holm, 1979), so that the chance of naming any slice that is not worse is what `confidence` leaves. A pair is named only where it
is worse, beyond chance, than both slices that it is in. A high loss may also mean that the slice is hard: beside it stand the
mean prediction and the mean label, which should agree whatever the slice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.evaluation.bootstrap import drawn_units, tail
from headway.evaluation.results.worst_rows import RowsByLoss
from headway.evaluation.sample_size import LEAST_GROUPS
from headway.evaluation.slices import FEW_VALUES, can_slice, parts_of, value_codes
from headway.metrics.base import Floats, Metric, MomentMetric, Rows
from headway.tabular.list_arrays import run_starts

MOST_COLUMNS, MOST_PAIRED, BINS = 20, 6, 5
"""So many columns are looked at, so many of them in pairs, and numbers in so many bins."""
MOST_SHOWN = 10
_MORE = 1.645
"""Standard errors by which a pair is worse than each slice that it is in: once in twenty by chance."""


def searched(
    statistics: Sequence[Mapping[str, Any]], strengths: Mapping[str, float], eligible: Sequence[str]
) -> tuple[str, ...]:
    """The slices to look at, as `headway.evaluation.slices` writes them: columns of few values, and numbers in bins; those
    first that alone tell most of the label."""
    known = {row["column"]: row for row in statistics if row["column"] in set(eligible) and can_slice(row["column"])}
    names = []
    for name in sorted(known, key=lambda name: (-strengths.get(name, 0.0), name)):
        if 2 <= known[name]["distinct"] <= FEW_VALUES:
            names.append(name)
        elif known[name]["distinct"] > FEW_VALUES and known[name]["type"] != "bytes":
            names.append(f"{name}: {BINS}")
    return tuple(names[:MOST_COLUMNS])


@dataclass(frozen=True, eq=False)
class _Cut:
    """The rows cut by one column, or by two."""

    name: str
    codes: NDArray[np.int64]
    """The slice of each row."""
    values: Sequence[str]
    parts: tuple[_Cut, ...] = ()
    """Of a pair."""

    def part_values(self, value: int) -> tuple[int, ...]:
        """The value of each part of a pair's value."""
        return divmod(value, len(self.parts[1].values))


@dataclass(frozen=True, eq=False)
class _Means:
    """The mean loss of each slice of a cut, [values]."""

    rows: NDArray[np.int64]
    loss: Floats
    others: Floats
    """The mean loss of all other rows."""
    score: Floats
    """loss - others, in standard errors; NaN where all losses are equal, or units are too few."""
    freedom: Floats
    """Degrees of freedom of the score."""


def worst(
    table: pa.Table,
    rows: Rows,
    loss: Metric | None,
    names: Sequence[str],
    *,
    min_rows: int,
    confidence: float = 0.95,
    losses: Floats | None = None,
    by_loss: RowsByLoss | None = None,
    check: Callable[[], None] = lambda: None,
) -> dict[str, Any] | None:
    """The slices on which the loss is worst, the greatest difference first; None where there is nothing to look at.

    Args:
        table: of the rows' predictions, with the columns of `names`.
        loss: the mean of one number per row.
        names: as `searched` gives them.
        min_rows: smaller slices are not looked at.
        losses: of each row, [rows], in the place of `loss`.
        by_loss: what finds the worst rows of each slice.
        check: called now and then; may raise to stop.
    """
    name = loss.name if losses is None and loss is not None else "loss"
    losses = row_losses(rows, loss, losses)
    if losses is None or not names:
        return None
    measure = _Measure(rows, losses)
    cuts = [_cut(table, name) for name in names]
    found: list[tuple[_Cut, int, _Means]] = []
    strength: list[tuple[float, _Cut]] = []
    means: dict[str, _Means] = {}
    for cut in cuts:
        check()
        means[cut.name] = of = measure(cut)
        tested = np.flatnonzero((of.rows >= min_rows) & (of.rows < len(rows)) & np.isfinite(of.score))
        found += [(cut, int(value), of) for value in tested]
        strength.append((float(np.abs(of.score[tested]).max(initial=0.0)), cut))
    paired = [cut for _, cut in sorted(strength, key=lambda each: -each[0])[:MOST_PAIRED]]
    for pair in combinations(paired, 2):
        check()
        a, b = pair
        cut = _Cut(f"{a.name} x {b.name}", a.codes * len(b.values) + b.codes, _crossed(a, b), pair)
        of = measure(cut)
        tested = np.flatnonzero((of.rows >= min_rows) & np.isfinite(of.score))
        found += [(cut, int(value), of) for value in tested if _is_new(cut, int(value), of, means)]
    chances = np.array([tail(-float(of.score[value]), 1.0, float(of.freedom[value])) for _, value, of in found])
    order = np.argsort(chances, kind="stable")
    adjusted, highest = np.ones(len(found)), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * float(chances[place])))
        adjusted[place] = highest
    sure = [
        i for i, (cut, value, of) in enumerate(found) if adjusted[i] < 1 - confidence and _worse(cut, value, of, means)
    ]
    sure.sort(key=lambda i: float(found[i][2].others[found[i][1]] - found[i][2].loss[found[i][1]]))
    described = [_described(name, rows, *found[i], float(adjusted[i]), by_loss) for i in sure[:MOST_SHOWN]]
    sizes = {"tried": len(found), "columns": len(cuts), "significant": len(sure)}
    return {"metric": name, **sizes, "slices": described}


class _Measure:
    """The mean loss of slices, against that of all other rows."""

    def __init__(self, rows: Rows, losses: Floats):
        # what all losses have in common would cost digits
        self._common = float(rows.weight @ losses / rows.total)
        self._weight, self._losses = rows.weight, losses - self._common
        self._units = None if rows.drawn is None else _Units(rows, self._losses)

    def __call__(self, cut: _Cut) -> _Means:
        codes, width = cut.codes, len(cut.values)
        values = self._weight, self._weight * self._losses
        weight, mass = (np.asarray(np.bincount(codes, each, width), np.float64) for each in values)
        with np.errstate(invalid="ignore", divide="ignore"):
            inside = mass / weight
            outside = (mass.sum() - mass) / (weight.sum() - weight)
            spread = self._of_rows if self._units is None else self._of_units
            variance, sides = spread(cut, inside, outside, weight)
            counts, heaviest = sides  # [inside or outside, slices]
            totals = np.stack([weight, weight.sum() - weight])
            units = (totals**2 / heaviest).min(0)  # of unequal weight they count as fewer
            score = (inside - outside) / np.sqrt(np.maximum(variance, 0.0) * units / (units - 1))
        enough = (counts.min(0) >= LEAST_GROUPS) & (units > 1)
        rows = np.bincount(codes, minlength=width)
        inside, outside = inside + self._common, outside + self._common
        return _Means(rows, inside, outside, np.where(enough, score, np.nan), np.where(enough, units - 1, 1.0))

    def _of_rows(
        self, cut: _Cut, inside: Floats, outside: Floats, weight: Floats
    ) -> tuple[Floats, tuple[Floats, Floats]]:
        """(the variance of inside - outside; of each side how many units it has, and the sum of their squared weights)"""

        def total(values: Floats) -> Floats:
            return np.asarray(np.bincount(cut.codes, values, len(cut.values)), np.float64)

        square = self._weight**2
        parts = total(square * self._losses**2), total(square * self._losses), total(square)
        second, first, squares = parts
        own = second - 2 * inside * first + inside**2 * squares
        second, first, rest = (each.sum() - each for each in parts)
        others = second - 2 * outside * first + outside**2 * rest
        weighty = total((self._weight > 0).astype(np.float64))
        sides = np.stack([weighty, weighty.sum() - weighty]), np.stack([squares, rest])
        return own / weight**2 + others / (weight.sum() - weight) ** 2, sides

    def _of_units(
        self, cut: _Cut, inside: Floats, outside: Floats, weight: Floats
    ) -> tuple[Floats, tuple[Floats, Floats]]:
        """The same where rows of one unit count together: sums over the units of a slice, and of all units without them."""
        assert self._units is not None
        units = self._units
        codes = cut.codes.astype(np.min_scalar_type(len(cut.values)))[units.order]
        # of few values: sorted by radix, and units stay in order within a slice
        order = np.argsort(codes, kind="stable")
        unit, code = units.unit[order], codes[order]
        begins = np.flatnonzero(run_starts(unit) | run_starts(code))
        mass = np.add.reduceat(units.mass[order], begins)
        if units.alike is None:
            weigh, some = (np.add.reduceat(each[order], begins) for each in (units.weight, units.positive))
        else:
            some = np.diff(begins, append=len(order))
            weigh = units.alike * some
        unit, code = (each[begins].astype(np.intp) for each in (unit, code))

        def total(values: NDArray[Any]) -> Floats:
            return np.asarray(np.bincount(code, values, len(cut.values)), np.float64)

        rest = units.weights[unit] - weigh
        own, others = 1 / weight, 1 / (weight.sum() - weight)
        # how far the unit moves the difference: by its rows in the slice, and by its other rows
        inner = (own + others)[code] * mass - (own * inside + others * outside)[code] * weigh
        outer = -others[code] * (units.masses[unit] - outside[code] * units.weights[unit])
        every = units.masses @ units.masses - 2 * outside * (units.masses @ units.weights)
        every += outside**2 * (units.weights @ units.weights)
        variance = others**2 * every + total(inner**2 + 2 * inner * outer)
        inside_only = (some > 0) & (some == units.all[unit])
        counts = np.stack([total(1.0 * (some > 0)), np.count_nonzero(units.all) - total(1.0 * inside_only)])
        squares = units.weights @ units.weights + total(rest**2 - units.weights[unit] ** 2)
        return variance, (counts, np.stack([total(weigh**2), squares]))


class _Units:
    """Rows in the order of what they are drawn by, and sums over it."""

    def __init__(self, rows: Rows, losses: Floats):
        unit, count = drawn_units(rows)
        assert unit is not None
        self.order = np.argsort(unit, kind="stable")
        self.unit, self.weight = unit[self.order].astype(np.min_scalar_type(count)), rows.weight[self.order]
        """[rows]"""
        self.alike = 1.0 if (rows.weight == 1.0).all() else None
        """The weight of each row, where that is 1 of all: their sums are counts."""
        self.mass, self.positive = self.weight * losses[self.order], (self.weight > 0).astype(np.int64)
        self.weights, self.masses, self.all = (
            np.asarray(np.bincount(self.unit, each, count), np.float64)
            for each in (self.weight, self.mass, self.positive)
        )
        """[units]; `all`: rows that count."""


def row_losses(rows: Rows, loss: Metric | None, losses: Floats | None = None) -> Floats | None:
    """The loss of each row, [rows]: those given, or by a metric; None where a row has none."""
    if losses is not None:
        return losses if rows.total > 0 and np.isfinite(losses).all() else None
    if not isinstance(loss, MomentMetric) or not rows.total > 0 or not rows.known:
        return None
    moments = loss.moments(rows)
    return moments[:, 0] if moments.shape[1] == 1 and np.isfinite(moments).all() else None


def _cut(table: pa.Table, name: str) -> _Cut:
    (part,) = parts_of(name)
    codes, values = value_codes(table, part)
    return _Cut(name, codes, values)


def _crossed(a: _Cut, b: _Cut) -> list[str]:
    return [f"{left} x {right}" for left in a.values for right in b.values]


def _is_new(cut: _Cut, value: int, of: _Means, means: Mapping[str, _Means]) -> bool:
    """Whether a pair's slice has other rows than the slices that it is in."""
    ends = zip(cut.parts, cut.part_values(value), strict=True)
    return all(of.rows[value] < means[part.name].rows[at] for part, at in ends)


def _worse(cut: _Cut, value: int, of: _Means, means: Mapping[str, _Means]) -> bool:
    """Whether a pair's slice is worse, beyond chance, than both slices that it is in; true of a single column's."""
    error = (of.loss[value] - of.others[value]) / of.score[value]
    ends = zip(cut.parts, cut.part_values(value) if cut.parts else (), strict=True)
    return all(of.loss[value] - means[part.name].loss[at] > _MORE * error for part, at in ends)


def _described(
    name: str, rows: Rows, cut: _Cut, value: int, of: _Means, p: float, by_loss: RowsByLoss | None
) -> dict[str, Any]:
    at = np.flatnonzero(cut.codes == value)
    described = {
        "slice": cut.name,
        "value": cut.values[value],
        "rows": int(of.rows[value]),
        name: float(of.loss[value]),
        f"{name}_of_others": float(of.others[value]),
        "p_adjusted": p,
        "worst_rows": [] if by_loss is None else by_loss.numbers(at),
    }
    if rows.prediction.ndim == 1:
        share = rows.weight[at] / rows.weight[at].sum()
        described["prediction_mean"] = float(share @ rows.prediction[at])
        described["label_mean"] = float(share @ rows.label[at])
    return described
