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
from headway.process import in_threads
from headway.tabular.list_arrays import order_of, run_starts

MOST_COLUMNS, MOST_PAIRED, BINS = 20, 6, 5
"""So many columns are looked at, so many of them in pairs, and numbers in so many bins."""
MOST_SHOWN = 10
_MORE = 1.645
"""Standard errors by which a pair is worse than each slice that it is in: once in twenty by chance."""


@dataclass(frozen=True, eq=False)
class Cut:
    """The rows cut by one column, or by two."""

    name: str
    of_row: NDArray[Any] | None
    """The slice of each row, an integer; None of a pair, whose slices follow from its parts'."""
    values: Sequence[str]
    parts: tuple[Cut, ...] = ()
    """Of a pair."""

    @property
    def codes(self) -> NDArray[Any]:
        """The slice of each row, an integer of the least type."""
        if self.of_row is not None:
            return self.of_row
        a, b = self.parts
        return a.codes.astype(np.min_scalar_type(len(self.values))) * len(b.values) + b.codes

    def part_values(self, value: int) -> tuple[int, ...]:
        """The value of each part of a pair's value."""
        return divmod(value, len(self.parts[1].values))


@dataclass(frozen=True, eq=False)
class Means:
    """The mean loss of each slice of a cut, [values]."""

    rows: NDArray[np.int64]
    loss: Floats
    others: Floats
    """The mean loss of all other rows."""
    score: Floats
    """loss - others, in standard errors; NaN where all losses are equal, or units are too few."""
    freedom: Floats
    """Degrees of freedom of the score."""


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
    threads: int = 1,
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
        threads: so many work at once.
        check: called now and then; may raise to stop.
    """
    name = loss.name if losses is None and loss is not None else "loss"
    losses = row_losses(rows, loss, losses)
    if losses is None or not names:
        return None
    measure = LossBySlice(rows, losses)

    def of_column(name: str) -> tuple[Cut, Means]:
        cut = _cut(table, name, measure.order)
        return cut, measure(cut)

    def of_pair(pair: tuple[Cut, Cut]) -> tuple[Cut, Means]:
        a, b = pair
        cut = Cut(f"{a.name} x {b.name}", None, _crossed(a, b), pair)
        return cut, measure(cut)

    found: list[tuple[Cut, int, Means]] = []
    strength: list[tuple[float, Cut]] = []
    means: dict[str, Means] = {}
    for cut, of in in_threads(of_column, names, most=threads, check=check):
        means[cut.name] = of
        tested = np.flatnonzero((of.rows >= min_rows) & (of.rows < len(rows)) & np.isfinite(of.score))
        found += [(cut, int(value), of) for value in tested]
        strength.append((float(np.abs(of.score[tested]).max(initial=0.0)), cut))
    paired = [cut for _, cut in sorted(strength, key=lambda each: -each[0])[:MOST_PAIRED]]
    for cut, of in in_threads(of_pair, [*combinations(paired, 2)], most=threads, check=check):
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
    shown = ((np.sort(measure.order[found[i][0].codes == found[i][1]]), i) for i in sure[:MOST_SHOWN])
    described = [_described(name, rows, at, *found[i], float(adjusted[i]), by_loss) for at, i in shown]
    sizes = {"tried": len(found), "columns": len(means), "significant": len(sure)}
    return {"metric": name, **sizes, "slices": described}


def row_losses(rows: Rows, loss: Metric | None, losses: Floats | None = None) -> Floats | None:
    """The loss of each row, [rows]: those given, or by a metric; None where a row has none."""
    if losses is not None:
        return losses if rows.total > 0 and np.isfinite(losses).all() else None
    if not isinstance(loss, MomentMetric) or not rows.total > 0 or not rows.known:
        return None
    moments = loss.moments(rows)
    return moments[:, 0] if moments.shape[1] == 1 and np.isfinite(moments).all() else None


def _cut(table: pa.Table, name: str, order: NDArray[np.int64]) -> Cut:
    (part,) = parts_of(name)
    codes, values = value_codes(table, part)
    return Cut(name, codes.astype(np.min_scalar_type(len(values)))[order], values)


def _crossed(a: Cut, b: Cut) -> list[str]:
    return [f"{left} x {right}" for left in a.values for right in b.values]


def _is_new(cut: Cut, value: int, of: Means, means: Mapping[str, Means]) -> bool:
    """Whether a pair's slice has other rows than the slices that it is in."""
    ends = zip(cut.parts, cut.part_values(value), strict=True)
    return all(of.rows[value] < means[part.name].rows[at] for part, at in ends)


def _worse(cut: Cut, value: int, of: Means, means: Mapping[str, Means]) -> bool:
    """Whether a pair's slice is worse, beyond chance, than both slices that it is in; true of a single column's."""
    error = (of.loss[value] - of.others[value]) / of.score[value]
    ends = zip(cut.parts, cut.part_values(value) if cut.parts else (), strict=True)
    return all(of.loss[value] - means[part.name].loss[at] > _MORE * error for part, at in ends)


def _described(
    name: str, rows: Rows, at: NDArray[np.int64], cut: Cut, value: int, of: Means, p: float, by_loss: RowsByLoss | None
) -> dict[str, Any]:
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


# --- the mean loss of slices, against that of all other rows, and how sure their difference is


class LossBySlice:
    """The mean loss of slices, against that of all other rows. Cuts have the rows in the order of `order`."""

    def __init__(self, rows: Rows, losses: Floats):
        # what all losses have in common would cost digits
        self._common = float(rows.weight @ losses / rows.total)
        losses = losses - self._common
        self._alike, self._units = rows.alike, None if rows.drawn is None else _Units(rows, losses)
        if self._units is None:
            self.order, self._weight, square = np.arange(len(rows)), rows.weight, rows.weight**2
            self._summed = rows.weight * losses, square * losses**2, square * losses, square, rows.weight > 0
        else:
            self.order, self._weight = self._units.order, self._units.weight
            self._summed = self._units.mass, *self._units.products

    def __call__(self, cut: Cut) -> Means:
        width, of_row = len(cut.values), cut.codes
        codes = of_row.astype(np.intp)  # once, where each count would
        rows = np.bincount(codes, minlength=width)
        weight = rows.astype(np.float64) if self._alike else _totals(codes, self._weight, width)
        mass, *sums = (_totals(codes, each, width) for each in self._summed)
        del codes
        with np.errstate(invalid="ignore", divide="ignore"):
            inside = mass / weight
            outside = (mass.sum() - mass) / (weight.sum() - weight)
            means = inside, outside, weight
            of_rows = self._units is None
            variance, sides = _of_rows(*means, *sums) if of_rows else self._of_units(of_row, rows, *means, *sums)
            counts, heaviest = sides  # [inside or outside, slices]
            totals = np.stack([weight, weight.sum() - weight])
            units = (totals**2 / heaviest).min(0)  # of unequal weight they count as fewer
            score = (inside - outside) / np.sqrt(np.maximum(variance, 0.0) * units / (units - 1))
        enough = (counts.min(0) >= LEAST_GROUPS) & (units > 1)
        inside, outside = inside + self._common, outside + self._common
        return Means(rows, inside, outside, np.where(enough, score, np.nan), np.where(enough, units - 1, 1.0))

    def _of_units(
        self,
        of_row: NDArray[Any],
        rows: NDArray[np.int64],
        inside: Floats,
        outside: Floats,
        weight: Floats,
        *products: Floats,
    ) -> tuple[Floats, tuple[Floats, Floats]]:
        """As `_of_rows`, where rows of one unit count together: sums over the units of a slice, and of all units without them.

        Args:
            products: the sums of `_Units.products` over each slice.
        """
        assert self._units is not None
        units, width = self._units, len(rows)
        order = np.argsort(of_row, kind="stable")  # of few values: by radix, and units stay in order within a slice
        there = np.flatnonzero(rows)
        ends = np.cumsum(rows[there])
        starts = run_starts(units.unit[order])
        starts[ends[:-1]] = True
        begins = np.flatnonzero(starts)  # of the rows of one unit in one slice
        sizes = np.diff(begins, append=len(order))
        bounds = np.searchsorted(begins, np.append(0, ends))

        def of_parts(values: NDArray[Any]) -> Floats:
            """The sum over the units of each slice of what their rows in it amount to."""
            found = np.zeros(width)
            found[there] = np.add.reduceat(values, bounds[:-1], dtype=np.float64)
            return found

        def counted(truths: NDArray[np.bool_]) -> Floats:
            """The number of units of each slice for which it is true."""
            found = np.zeros(width)
            found[there] = np.diff(np.searchsorted(np.flatnonzero(truths), bounds))
            return found

        mass, all_of_unit = _sums(units.mass[order], begins, sizes), units.all_of_row[order[begins]]
        some = sizes
        if not self._alike:
            each = units.weight[order]
            weigh, some = (_sums(of, begins, sizes) for of in (each, (each > 0).astype(np.int64)))
        counts = np.stack([counted(some > 0), units.count - counted((some > 0) & (some == all_of_unit))])
        del order, begins  # which take as much as all else
        weigh = sizes.astype(np.float64) if self._alike else weigh
        square, mixed, squared = of_parts(mass * mass), of_parts(mass * weigh), of_parts(weigh * weigh)
        mass_mass, mass_weight, weight_mass, weight_weight = products
        own, others = 1 / weight, 1 / (weight.sum() - weight)
        # how far the unit moves the difference: by its rows in the slice, and by its other rows
        by_mass, by_weight = own + others, own * inside + others * outside
        inner = by_mass**2 * square - 2 * by_mass * by_weight * mixed + by_weight**2 * squared
        crossed = by_mass * (mass_mass - outside * mass_weight) - by_weight * (weight_mass - outside * weight_weight)
        every = units.masses @ units.masses - 2 * outside * (units.masses @ units.weights)
        every += outside**2 * (units.weights @ units.weights)
        variance = others**2 * every + inner - 2 * others * crossed
        return variance, (counts, np.stack([squared, units.weights @ units.weights + squared - 2 * weight_weight]))


def _of_rows(inside: Floats, outside: Floats, weight: Floats, *sums: Floats) -> tuple[Floats, tuple[Floats, Floats]]:
    """(the variance of inside - outside; of each side how many units it has, and the sum of their squared weights)

    Args:
        sums: over each slice: squared weights times squared losses, times losses, alone; rows that count.
    """
    second, first, squares, weighty = sums
    own = second - 2 * inside * first + inside**2 * squares
    rest = squares.sum() - squares
    others = second.sum() - second - 2 * outside * (first.sum() - first) + outside**2 * rest
    sides = np.stack([weighty, weighty.sum() - weighty]), np.stack([squares, rest])
    return own / weight**2 + others / (weight.sum() - weight) ** 2, sides


def _totals(codes: NDArray[np.intp], values: NDArray[Any], width: int) -> Floats:
    return np.asarray(np.bincount(codes, values, width), np.float64)


def _sums(values: NDArray[Any], begins: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[Any]:
    """The sum of so many values from each beginning on; most are of one value, which stays as it is."""
    found, several = values[begins], np.flatnonzero(sizes > 1)
    if len(several):
        ends = np.stack([begins[several], begins[several] + sizes[several]], 1).ravel()
        found[several] = np.add.reduceat(values, ends[: -1 if ends[-1] == len(values) else None])[::2]
    return found


class _Units:
    """Rows in the order of what they are drawn by, and sums over it."""

    def __init__(self, rows: Rows, losses: Floats):
        unit, count = drawn_units(rows)
        assert unit is not None
        self.order = order_of(unit)
        self.unit, self.weight = unit[self.order].astype(np.min_scalar_type(count)), rows.weight
        """[rows]"""
        if not rows.alike:
            self.weight = rows.weight[self.order]
        self.mass = self.weight * losses[self.order]
        self.weights, self.masses, of_unit = (
            _totals(self.unit, each, count) for each in (self.weight, self.mass, self.weight > 0)
        )
        """[units]"""
        self.count = np.count_nonzero(of_unit)
        self.all_of_row = of_unit.astype(np.min_scalar_type(int(of_unit.max())))[self.unit]
        """The rows of its unit that count; [rows]."""
        mass, weight = self.masses[self.unit], self.weights[self.unit]
        weighed = (mass, self.all_of_row) if rows.alike else (self.weight * mass, self.weight * weight)
        self.products = self.mass * mass, self.mass * weight, *weighed
        """Of each row, mass or weight, and of its unit, mass or weight; each [rows]."""
