"""The slices on which a model is worst, found without being named.

    found = find_worst_slices(table, rows, losses, ["carrier", "distance: 5"], min_rows=100)
    found["tried"], found["slices"][0]       # 214, {"slice": "carrier", "value": "EV", "rows": 1203, "loss": 0.61, ...}

A slice is worse when its mean loss is above the mean loss of all other rows, beyond chance (a one-sided test of the
difference by Student's t, as in Chung et al., "Slice Finder", 2019). Rows that are resampled together are one unit.
The slice and the other rows need five units each; the smaller number, less one, is the degrees of freedom. Units of
unequal weight count as fewer. Columns of few values, quantile bins of numbers, and pairs of the strongest columns are
searched. All p values are corrected together (`holm`): the chance that any named slice is not worse is at most 1 -
`confidence`. A pair is named only if it is worse, beyond chance, than both of its single slices. A high loss may also
mean that the slice is hard. So mean prediction and mean label are given too: on any slice they should agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.evaluation.intervals import holm, tail
from headway.evaluation.slices import parts_of, possible_slices, value_codes
from headway.evaluation.units import LEAST_GROUPS, resampling_units
from headway.metrics.base import Floats, Rows
from headway.process import in_threads
from headway.tabular.list_arrays import run_starts, stable_argsort

MOST_COLUMNS, MOST_PAIRED, BINS, MOST_SHOWN = 20, 6, 5, 10
"""The most columns searched, the most of them in pairs, the quantile bins of a number, and the most slices reported."""
_MORE = 1.645
"""Standard errors by which a pair must be worse than each of its single slices: once in twenty by chance."""


@dataclass(frozen=True, eq=False)
class Slicing:
    """A division of all rows into slices by one column, or by a pair of columns."""

    name: str
    values: Sequence[str]
    of_row: NDArray[Any] | None = None
    """The slice of each row, an integer; None for a pair, where it follows from `parts`."""
    parts: tuple[Slicing, ...] = ()
    """For a pair, the two slicings by one column each."""

    @classmethod
    def of_pair(cls, a: Slicing, b: Slicing) -> Slicing:
        values = [f"{left} x {right}" for left in a.values for right in b.values]
        return cls(f"{a.name} x {b.name}", values, parts=(a, b))

    @property
    def codes(self) -> NDArray[Any]:
        """The slice of each row, an integer of the smallest type."""
        if self.of_row is not None:
            return self.of_row
        a, b = self.parts
        return a.codes.astype(np.min_scalar_type(len(self.values))) * len(b.values) + b.codes


@dataclass(frozen=True, eq=False)
class Slice:
    """The mean loss of one slice of a `Slicing`, and the mean loss of all other rows."""

    cut: Slicing
    value: int
    rows: int
    loss: float
    others: float
    error: float
    """The standard error of loss - others; NaN where all losses are equal or there are too few units."""
    freedom: float
    """Degrees of freedom of the error."""

    @property
    def score(self) -> float:
        return (self.loss - self.others) / self.error

    @property
    def parts(self) -> list[tuple[str, int]]:
        """For a slice by two columns, the two slices by one that contain it, as (column, index of the value); else empty."""
        if not self.cut.parts:
            return []
        a, b = self.cut.parts
        left, right = divmod(self.value, len(b.values))
        return [(a.name, left), (b.name, right)]


def columns_to_search(
    statistics: Sequence[Mapping[str, Any]], strengths: Mapping[str, float], eligible: Sequence[str]
) -> tuple[str, ...]:
    """Returns the columns to search, or their quantile bins, written as slices in `headway.evaluation.slices`."""
    return tuple(possible_slices(statistics, strengths, eligible, bins=BINS)[:MOST_COLUMNS])


def find_worst_slices(
    table: pa.Table,
    rows: Rows,
    losses: Floats | None,
    names: Sequence[str],
    *,
    min_rows: int,
    metric: str = "loss",
    confidence: float = 0.95,
    threads: int = 1,
    check: Callable[[], None] = lambda: None,
) -> dict[str, Any] | None:
    """Returns the slices that are worse beyond chance, the greatest difference first, and the number of slices tried,
    as JSON. None without losses or names.

    Args:
        table: the rows' predictions, with the columns of `names`.
        losses: the loss of each row, [rows]; None: losses are not known.
        names: slices, as `columns_to_search` returns them.
        min_rows: smaller slices are not looked at.
        metric: the name of the metric that the mean of the losses is.
        threads: the number of threads.
        check: called now and then; may raise to stop.
    """
    if losses is None or not names:
        return None
    measure = LossBySlice(rows, losses)
    single = in_threads(lambda each: measure(_cut(table, each, measure.order)), names, most=threads, check=check)
    ends = {(each.cut.name, each.value): each for of in single for each in of}

    def is_tested(each: Slice) -> bool:
        """Returns whether a slice has enough rows, a finite score, and fewer rows than each slice that contains it."""
        whole = min((ends[part].rows for part in each.parts), default=len(rows))
        return bool(min_rows <= each.rows < whole and np.isfinite(each.score))

    strength = {of[0].cut: max((abs(each.score) for each in of if is_tested(each)), default=0.0) for of in single}
    strongest = sorted(strength, key=lambda cut: -strength[cut])[:MOST_PAIRED]
    pairs = [*combinations(strongest, 2)]
    paired = in_threads(lambda pair: measure(Slicing.of_pair(*pair)), pairs, most=threads, check=check)
    tested = [each for of in (*single, *paired) for each in of if is_tested(each)]
    adjusted = holm([tail(-each.score, 1.0, each.freedom) for each in tested])
    sure = [
        (each, p)
        for each, p in zip(tested, adjusted, strict=True)
        if p < 1 - confidence and all(each.loss - ends[part].loss > _MORE * each.error for part in each.parts)
    ]
    sure.sort(key=lambda found: found[0].others - found[0].loss)
    described = [_described(rows, each, p, measure.order) for each, p in sure[:MOST_SHOWN]]
    counts = {"tried": len(tested), "columns": len(single), "significant": len(sure)}
    return {"metric": metric, **counts, "slices": described}


def _cut(table: pa.Table, name: str, order: NDArray[np.int64]) -> Slicing:
    (part,) = parts_of(name)
    codes, values = value_codes(table, part)
    return Slicing(name, values, codes.astype(np.min_scalar_type(len(values)))[order])


def _described(rows: Rows, found: Slice, p: float, order: NDArray[np.int64]) -> dict[str, Any]:
    described = {
        "slice": found.cut.name,
        "value": found.cut.values[found.value],
        "rows": found.rows,
        "loss": found.loss,
        "loss_of_others": found.others,
        "p_adjusted": p,
    }
    if rows.prediction.ndim == 1:
        at = np.sort(order[found.cut.codes == found.value])
        share = rows.weight[at] / rows.weight[at].sum()
        described["prediction_mean"] = float(share @ rows.prediction[at])
        described["label_mean"] = float(share @ rows.label[at])
    return described


class LossBySlice:
    """Compares a slice's mean loss with the mean loss of all other rows. Slicings have the rows by unit, in the order `order`."""

    def __init__(self, rows: Rows, losses: Floats):
        unit, count = resampling_units(rows)
        self._common = float(rows.weight @ losses / rows.total)
        """The mean loss, which is subtracted from all losses to keep their digits."""
        mass, weight = rows.weight * (losses - self._common), rows.weight
        self.order, self._alike = np.arange(len(rows)), rows.unweighted
        masses = all_mass = mass
        weights = all_weight = weight
        if unit is not None:
            self.order = stable_argsort(unit)
            unit, mass, weight = unit[self.order], mass[self.order], weight[self.order]
            masses, weights = (np.asarray(np.bincount(unit, each, count), np.float64) for each in (mass, weight))
            all_mass, all_weight = masses[unit], weights[unit]
        self._unit = None if unit is None else unit.astype(np.min_scalar_type(count))
        self._of_units = float(masses @ masses), float(masses @ weights), float(weights @ weights)
        self._of_rows = mass, mass * all_mass, mass * all_weight, weight * all_mass, weight * all_weight
        self._weight = weight
        self._total = float(weights.sum())

    def __call__(self, cut: Slicing) -> list[Slice]:
        """Returns the slices of a slicing that have rows, each compared with all other rows."""
        codes, width, unit = cut.codes, len(cut.values), self._unit
        of_row = codes.astype(np.intp)  # once, where each count would
        rows = np.bincount(of_row, minlength=width)
        mass, with_mass, with_weight, weight_mass, weight_weight = (
            np.asarray(np.bincount(of_row, each, width), np.float64) for each in self._of_rows
        )
        weight = np.asarray(rows if self._alike else np.bincount(of_row, self._weight, width), np.float64)
        square, mixed, squared = with_mass, with_weight, weight_weight
        if unit is not None:
            order = np.argsort(codes, kind="stable")  # of few values: by radix, and units stay in order within a slice
            there, starts = rows > 0, run_starts(unit[order])
            begin = (np.cumsum(rows) - rows)[there]
            starts[begin] = True
            begins = np.flatnonzero(starts)
            m = np.add.reduceat(self._of_rows[0][order], begins)
            w = np.diff(begins, append=len(order)) if self._alike else np.add.reduceat(self._weight[order], begins)
            first = np.searchsorted(begins, begin)
            square, mixed, squared = (np.zeros(width) for _ in range(3))
            for into, each in ((square, m * m), (mixed, m * w), (squared, w * w)):
                into[there] = np.add.reduceat(each, first)
            del order, begins, m, w  # which take as much as all else
        rest, (masses, mixed_all, weights) = self._total - weight, self._of_units
        with np.errstate(invalid="ignore", divide="ignore"):
            inside, outside = mass / weight, (mass.sum() - mass) / rest
            # a unit moves the difference by its rows in the slice, and by its other rows
            by_mass, by_weight = 1 / weight + 1 / rest, inside / weight + outside / rest
            own = by_mass**2 * square - 2 * by_mass * by_weight * mixed + by_weight**2 * squared
            crossed = by_mass * (with_mass - outside * with_weight) - by_weight * (
                weight_mass - outside * weight_weight
            )
            others = (masses - 2 * outside * mixed_all + outside**2 * weights) / rest**2
            heaviest = squared, weights + squared - 2 * weight_weight
            units = np.minimum(weight**2 / heaviest[0], rest**2 / heaviest[1])
            error = np.sqrt(np.maximum(own - 2 * crossed / rest + others, 0.0) * units / (units - 1))
        error = np.where((units > LEAST_GROUPS - 1e-6) & (error > 0), error, np.nan)
        columns = inside + self._common, outside + self._common, error, units - 1
        facts = zip(rows.tolist(), *(each.tolist() for each in columns), strict=True)
        return [Slice(cut, value, *of) for value, of in enumerate(facts) if of[0]]
