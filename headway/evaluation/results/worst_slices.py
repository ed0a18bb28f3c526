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
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.evaluation.bootstrap import tail
from headway.evaluation.results.slice_losses import Cut, LossBySlice, Means
from headway.evaluation.results.worst_rows import RowsByLoss
from headway.evaluation.slices import FEW_VALUES, can_slice, parts_of, value_codes
from headway.metrics.base import Floats, Metric, MomentMetric, Rows
from headway.process import in_threads

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
