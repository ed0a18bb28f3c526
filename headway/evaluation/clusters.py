"""Rows that come in clusters: which rows a bootstrap has to draw together.

    rows, sentence = drawn_together(sources, table, rows, champion, loss)

What the split keeps together, or a column with the role group, is drawn together always. Where neither is known it is looked for:
rows of one day or of one user are alike in ways that no column holds. Drawn one by one they look like more evidence than they
are: in simulation 95% intervals covered the truth in 11% to 30% of all cases, and equal models were blocked in 31% to 46%. So
the paired loss differences are looked at: where those of one day, span or repeated key are more alike than chance explains
(intraclass correlation, by an F test), rows are drawn by it. Otherwise equal rows are drawn together, where a split by a hash of
the rows had many to keep together.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.config import Frozen
from headway.evaluation.bootstrap import drawn_units, resampling_units
from headway.evaluation.sample_size import LEAST_GROUPS
from headway.evaluation.slices import FEW_VALUES
from headway.messages import number
from headway.metrics.base import Floats, Metric, MomentMetric, Rows
from headway.metrics.ranking import NO_GROUP, codes_of
from headway.schema.calendar_days import PER_DAY, Temporal

MOST_KEYS = 2
"""So many columns are looked at."""
_TOLD_APART = 0.9
"""Of the distinct rows of a split, by the columns that are stored."""
MANY_DAYS = 20
"""From so many on, rows are drawn by day whether their losses are alike or not: it costs next to nothing."""
_BEYOND_CHANCE = 2.0
"""Standard deviations of the F test. Chance does it once in 44 looks, which costs little: drawn by groups of rows that have
nothing in common, intervals are as wide as before."""


class ClusterSources(Frozen):
    """Where clusters may come from."""

    unit: str | None = None
    """What the split keeps together, by its name: `headway.evaluation.metrics.UNIT` has each row's."""
    equal: tuple[str, ...] = ()
    """Columns of the predictions: rows with the same values in all of them are in one split."""
    distinct: int = 0
    """How many rows they have to tell apart, nearly, where the split hashes further columns that are not stored."""
    columns: tuple[str, ...] = ()
    """Columns of the predictions whose values repeat, such as a user's id."""
    time: tuple[str, Temporal] | None = None
    """A column of the predictions that holds dates or times."""
    by_day: bool = False
    """Draw by its day anyway, where there are many: it is the rows' time."""
    spans: tuple[tuple[str, int], ...] = ()
    """(span, rows) in the order of the rows."""

    @property
    def stored(self) -> tuple[str, ...]:
        """The columns that the predictions need."""
        time = [self.time[0]] if self.time else []
        return tuple(dict.fromkeys((*self.equal, *self.columns, *time)))


NOWHERE = ClusterSources()


def repeating(statistics: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """The columns of many values that repeat, by the statistics of the train rows."""
    many = (row for row in statistics if row["distinct"] > FEW_VALUES)
    return frozenset(row["column"] for row in many if 2 * row["distinct"] <= row.get("rows", 0) - row.get("missing", 0))


@dataclass(frozen=True)
class Clusters:
    """The clusters that rows are drawn by."""

    codes: NDArray[np.int64]
    sentence: str


@dataclass(frozen=True)
class Alike:
    """How alike the values of one cluster are."""

    correlation: float
    """Of two rows of a cluster."""
    widening: float
    """By how much the standard error of a mean is greater than that of single rows."""
    score: float
    """Standard deviations beyond chance."""


def alike(values: Floats, codes: NDArray[np.int64]) -> Alike | None:
    """The intraclass correlation by analysis of variance (Donner, "A review of inference procedures for the intraclass
    correlation coefficient in the one-way random effects model", 1986); None where there is nothing to compare."""
    _, codes, size = np.unique(codes, return_inverse=True, return_counts=True)
    rows, groups = len(values), len(size)
    if groups < 2 or rows - groups < 2:
        return None
    means = np.bincount(codes, values, groups) / size
    within = float(((values - means[codes]) ** 2).sum()) / (rows - groups)
    between = float((size * (means - values.mean()) ** 2).sum()) / (groups - 1)
    if not (within > 0 and math.isfinite(within) and math.isfinite(between)):
        return None
    usual = (rows - (size.astype(np.float64) ** 2).sum() / rows) / (groups - 1)
    correlation = (between - within) / (between + (usual - 1) * within)
    heaviest = float((size.astype(np.float64) ** 2).sum()) / rows
    widening = math.sqrt(max(1 + (heaviest - 1) * correlation, 0.0))
    return Alike(correlation, widening, _normal_score(between / within, groups - 1, rows - groups))


def _normal_score(f: float, above: int, below: int) -> float:
    """An F ratio as a standard normal (Wilson and Hilferty, "The distribution of chi-square", 1931; Paulson, 1942)."""
    a, b, root = 2 / (9 * above), 2 / (9 * below), f ** (1 / 3)
    return ((1 - b) * root - (1 - a)) / math.sqrt(b * root * root + a)


def drawn_together(
    sources: ClusterSources,
    table: pa.Table,
    rows: Rows,
    champion: Floats | None,
    loss: Metric | None,
    *,
    group: str | None = None,
) -> tuple[Rows, str | None]:
    """(the rows with the units that they are to be drawn by; a sentence about these, None where rows are drawn one by one)

    The arguments are those of `find`; `group` is the name of the column that the rows' groups come from.
    """
    if rows.drawn is not None:
        known = group if rows.units is None else sources.unit
        count = drawn_units(rows)[1]
        return rows, f"rows of one {known or 'unit of the split'} are drawn together ({count:,} of them)"
    if (found := find(sources, table, rows, champion, loss)) is None and sources.equal:
        found = _equal_rows(table, sources.equal, _TOLD_APART * sources.distinct)
    return (rows, None) if found is None else (replace(rows, units=found.codes, memo={}, shared={}), found.sentence)


def _equal_rows(table: pa.Table, columns: Sequence[str], least: float) -> Clusters | None:
    codes = np.zeros(len(table), np.int64)
    for name in columns:
        _, values = np.unique(codes_of(table.column(name)), return_inverse=True)
        codes = np.unique(codes * (int(values.max()) + 1) + values, return_inverse=True)[1]
    if (count := int(codes.max()) + 1) < least:
        return None
    return Clusters(
        codes, f"equal rows, which are in one split, are drawn together ({count:,} distinct of {len(table):,})"
    )


def find(
    sources: ClusterSources, table: pa.Table, rows: Rows, champion: Floats | None, loss: Metric | None
) -> Clusters | None:
    """The clusters to draw by where none are known: of those that are alike beyond chance the ones that widen intervals most;
    else the days, where there are many; else None.

    Args:
        table: of the rows' predictions; it has the sources' columns.
        rows: with the candidate's predictions.
        champion: predictions of the model that it is compared with; None: the losses themselves are looked at.
        loss: whose differences per row are looked at; None: only days are taken.
    """
    differences = _differences(rows, champion, loss)
    what = "losses" if champion is None else "loss differences"
    best, fallback = None, None
    for name, by_day, codes in _candidates(sources, table):
        codes, groups = resampling_units(codes)
        found = None if differences is None or groups < LEAST_GROUPS else alike(differences, codes)
        if found is not None and found.score > _BEYOND_CHANCE and (best is None or found.widening > best[0].widening):
            words = f"rows are drawn by {name} ({groups:,} of them), not one by one: the {what} of rows of one "
            words += (
                f"are more alike than chance gives (intraclass correlation {number(found.correlation)}), which makes "
            )
            words += f"intervals {found.widening:.1f} times as wide; a column with role: group says so beforehand"
            best = (found, Clusters(codes, words))
        if by_day and groups >= MANY_DAYS:
            fallback = Clusters(codes, f"rows are drawn by {name} ({groups:,} of them), not one by one")
    return fallback if best is None else best[1]


def _differences(rows: Rows, champion: Floats | None, loss: Metric | None) -> Floats | None:
    if not isinstance(loss, MomentMetric) or not rows.total > 0:
        return None
    ours = loss.moments(rows)
    if ours.shape[1] != 1:
        return None
    differences = ours if champion is None else ours - loss.moments(rows.predicted(champion))
    values = differences[:, 0] * (rows.weight * len(rows) / rows.total)
    return values if np.isfinite(values).all() else None


def _candidates(sources: ClusterSources, table: pa.Table) -> Iterator[tuple[str, bool, NDArray[np.int64]]]:
    """(its name, whether it is the day, the cluster of each row)"""
    if sources.time is not None:
        name, temporal = sources.time
        time = table.column(name).cast(pa.int64()).combine_chunks()
        days = time.fill_null(0).to_numpy() // PER_DAY[temporal]
        yield f"day of {name}", sources.by_day, _alone(days, time)
    elif sum(count for _, count in sources.spans) == len(table):
        yield "span", False, np.repeat(np.arange(len(sources.spans)), [count for _, count in sources.spans])
    for name in sources.columns:
        codes = codes_of(table.column(name))
        yield name, False, _alone(codes, table.column(name).combine_chunks())


def _alone(codes: NDArray[np.int64], values: pa.Array) -> NDArray[np.int64]:
    """Rows without a value belong to no other."""
    missing = values.is_null().to_numpy(zero_copy_only=False)
    return np.where(missing, NO_GROUP, codes)
