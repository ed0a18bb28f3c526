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
from headway.tabular.list_arrays import run_starts


@dataclass(frozen=True, eq=False)
class Cut:
    """The rows cut by one column, or by two."""

    name: str
    codes: NDArray[Any]
    """The slice of each row, an integer."""
    values: Sequence[str]
    parts: tuple[Cut, ...] = ()
    """Of a pair."""

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
        self._weight, self._losses = rows.weight, losses - self._common
        self._units = None if rows.drawn is None else _Units(rows, self._losses)
        self.order = np.arange(len(rows)) if self._units is None else self._units.order
        self._mass = self._weight * self._losses if self._units is None else self._units.mass
        if self._units is not None:
            self._weight = self._units.weight

    def __call__(self, cut: Cut) -> Means:
        codes, width = cut.codes, len(cut.values)
        values = self._weight, self._mass
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
        return Means(rows, inside, outside, np.where(enough, score, np.nan), np.where(enough, units - 1, 1.0))

    def _of_rows(
        self, cut: Cut, inside: Floats, outside: Floats, weight: Floats
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
        self, cut: Cut, inside: Floats, outside: Floats, weight: Floats
    ) -> tuple[Floats, tuple[Floats, Floats]]:
        """The same where rows of one unit count together: sums over the units of a slice, and of all units without them."""
        assert self._units is not None
        units, width = self._units, len(cut.values)
        codes = cut.codes.astype(np.min_scalar_type(width), copy=False)
        # of few values: sorted by radix, and units stay in order within a slice
        order = np.argsort(codes, kind="stable")
        sizes = np.bincount(codes, minlength=width)
        there = np.flatnonzero(sizes)
        ends = np.cumsum(sizes[there])
        starts = run_starts(units.unit[order])
        starts[ends[:-1]] = True
        begins = np.flatnonzero(starts)  # of the rows of one unit in one slice
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

        mass = np.add.reduceat(units.mass[order], begins)
        if units.alike is None:
            weigh, some = (np.add.reduceat(each[order], begins) for each in (units.weight, units.positive))
        else:
            some = np.diff(begins, append=len(order))
            weigh = some.astype(np.float64)
        square, mixed, squared = of_parts(mass * mass), of_parts(mass * weigh), of_parts(weigh * weigh)
        inside_only = (some > 0) & (some == units.all_of_row[order[begins]])
        counts = np.stack([counted(some > 0), np.count_nonzero(units.all) - counted(inside_only)])
        # the rows of a slice times all of their unit, which needs no sum by unit
        mass_mass, mass_weight, weight_mass, weight_weight = (
            np.asarray(np.bincount(cut.codes, each, width), np.float64) for each in units.products
        )
        own, others = 1 / weight, 1 / (weight.sum() - weight)
        # how far the unit moves the difference: by its rows in the slice, and by its other rows
        by_mass, by_weight = own + others, own * inside + others * outside
        inner = by_mass**2 * square - 2 * by_mass * by_weight * mixed + by_weight**2 * squared
        crossed = by_mass * (mass_mass - outside * mass_weight) - by_weight * (weight_mass - outside * weight_weight)
        every = units.masses @ units.masses - 2 * outside * (units.masses @ units.weights)
        every += outside**2 * (units.weights @ units.weights)
        variance = others**2 * every + inner - 2 * others * crossed
        return variance, (counts, np.stack([squared, units.weights @ units.weights + squared - 2 * weight_weight]))


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
        self.all_of_row = self.all.astype(np.min_scalar_type(int(self.all.max())))[self.unit]
        mass, weight = self.masses[self.unit], self.weights[self.unit]
        self.products = self.mass * mass, self.mass * weight, self.weight * mass, self.weight * weight
        """Of each row, mass or weight, and of its unit, mass or weight; each [rows]."""
