"""Slices, those first that do most harm: many rows on which the model is worse than elsewhere."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from flows.tell.ending import outcome_text
from flows.tell.figures.drawing import FIRST, MUTED, one_line
from flows.tell.figures.strips import Box, interval_strips, strip
from flows.tell.rendering.cells import Row
from flows.tell.rendering.tables import Table
from flows.tell.sections.worst_rows import links
from headway.evaluation.results.measured import Measured, SliceMetrics, WorstSlices
from headway.evaluation.slices import named
from headway.evaluation.verdict import Verdict
from headway.messages import counted, ends, number, signed
from headway.tasks.table import direction

_MOST = 60


def slices(measured: Measured, verdict: Verdict | None, split: str = "eval") -> Iterator[Table]:
    """The tables on slices: the named or chosen ones, and the worst that were found."""
    found = measured.worst_slices
    # harm is counted in the mean of a loss, else in the metric that decides
    names = [found.metric if found is not None else "loss", "loss", verdict.primary if verdict is not None else None]
    metric = next((str(name) for name in names if measured.metrics.get(str(name)) is not None), None)
    if metric is not None and (harmed := _harmed(measured, metric, verdict)):
        yield _table(measured, verdict, metric, harmed, split)
    if found is not None and found.slices:
        yield _worst(measured, found, split)


@dataclass(frozen=True)
class _Harmed:
    """A slice, and what the whole would gain if it were like the rest."""

    column: str
    value: str
    harm: float
    level: float
    metrics: SliceMetrics


def _harmed(measured: Measured, metric: str, verdict: Verdict | None) -> list[_Harmed]:
    better = verdict.better if verdict is not None and metric == verdict.primary else None
    whole, sign = measured.metrics[metric] or 0.0, -direction(metric, better)
    found = []
    for column, values in measured.by_slice.items():
        for value, of in values.items():
            if (level := of.metrics.get(metric)) is not None:
                harm = of.rows / max(measured.rows, 1) * sign * (level - whole)
                found.append(_Harmed(column, value, harm, level, of))
    return sorted(found, key=lambda each: -each.harm)


def _table(measured: Measured, verdict: Verdict | None, metric: str, harmed: Sequence[_Harmed], split: str) -> Table:
    whole, primary = measured.metrics[metric] or 0.0, str(verdict.primary if verdict is not None else None)
    checks = verdict.compared(slices=True) if verdict is not None else []
    against = {(check.slice, check.slice_value): check for check in checks if check.metric == primary}
    largest = max(abs(each.harm) for each in harmed)
    shown, rows = harmed[:_MOST], list[Row]()
    known = [each.metrics.intervals.get(metric) or (each.level, each.level) for each in shown]
    marks = [(low, each.level, high, FIRST) for each, (low, high) in zip(shown, known, strict=True)]
    for each, picture in zip(shown, interval_strips(marks, line=whole), strict=True):
        cells: dict[str, Any] = {
            "slice": one_line(named(each.column, each.value), 60),
            "rows": each.metrics.rows,
            # two digits; nothing is said of less than a thousandth of the largest
            "excess": signed(float(f"{each.harm:.2g}")) if abs(each.harm) > largest / 1000 else "0",
            metric: number(each.level),
            "interval": ends(each.metrics.intervals.get(metric)),
            "picture": picture,
        }
        if primary in each.metrics.metrics and primary != metric:
            cells[primary] = number(each.metrics.metrics[primary])
        if (check := against.get((each.column, each.value))) is not None:
            cells[f"{primary} against {check.against}"] = f"{signed(check.change)}, {outcome_text(check)}"
        cells["worst rows"] = links(measured, each.metrics.worst_rows, split)
        rows.append(cells)
    note = f"Excess: how much better {metric} of all rows ({number(whole)}, the line) would be if the slice were like the rest."
    note += f" {len(harmed) - _MOST} more: headway run --to evaluate." if len(harmed) > _MOST else ""
    return Table("Slices that cost most, first", rows, note)


def _worst(measured: Measured, found: WorstSlices, split: str) -> Table:
    limits = 0, max(each.loss for each in found.slices) or 1.0
    rows = [
        {
            "slice": one_line(named(each.slice, each.value), 80),
            "rows": each.rows,
            found.metric: each.loss,
            f"{found.metric} of the other rows": each.loss_of_others,
            "picture": strip([Box(0, each.loss, FIRST), Box(0, each.loss_of_others, MUTED, 0.38, 0.62)], limits),
            "predicted": each.prediction_mean,
            "observed": each.label_mean,
            "worst rows": links(measured, each.worst_rows, split),
        }
        for each in found.slices
    ]
    note = f"{found.significant} of {counted(found.tried, 'slice')} of {counted(found.columns, 'column')} "
    note += (
        f"{'has' if found.significant == 1 else 'have'} a {found.metric} above that of all other rows beyond chance."
    )
    if any(each.prediction_mean is not None for each in found.slices):
        note += " Where predicted and observed agree, the slice is hard; where not, the model is wrong."
    return Table("Where the model is worst", rows, note)
