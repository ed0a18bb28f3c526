"""The mean loss of slices of the rows, against that of all other rows, and how sure their difference is.

means = LossBySlice(rows, losses)
means(Cut("carrier", codes, ["AA", "BB"])).score       # (loss - others) / standard error, [values]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.evaluation.bootstrap import drawn_units
from headway.evaluation.sample_size import LEAST_GROUPS
from headway.metrics.base import Floats, Rows
from headway.tabular.list_arrays import order_of, run_starts


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
