"""The slices of an evaluation: those that are named or chosen, beside the champion's, and those where the model is worst."""

from collections.abc import Iterator
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
    """The tables on slices; none where no slice was measured."""
    # by the metric that decides, else by the loss
    names = [verdict.primary if verdict is not None else None, "loss", *measured.metrics]
    metric = next((str(name) for name in names if measured.metrics.get(str(name)) is not None), None)
    if metric is not None and (table := _named(measured, verdict, metric, split)) is not None:
        yield table
    if measured.worst_slices is not None and measured.worst_slices.slices:
        yield _worst(measured, measured.worst_slices, split)


def _named(measured: Measured, verdict: Verdict | None, metric: str, split: str) -> Table | None:
    better = verdict.better if verdict is not None and metric == verdict.primary else None
    found: list[tuple[float, str, str, SliceMetrics]] = [
        (level, column, value, of)
        for column, values in measured.by_slice.items()
        for value, of in values.items()
        if (level := of.metrics.get(metric)) is not None
    ]
    if not found:
        return None
    found.sort(key=lambda each: each[0] * direction(metric, better))
    checks = verdict.compared(slices=True) if verdict is not None else []
    against = {(check.slice, check.slice_value): check for check in checks if check.metric == metric}
    whole, shown, rows = measured.metrics[metric] or 0.0, found[:_MOST], list[Row]()
    known = [(level, of.intervals.get(metric) or (level, level)) for level, _, _, of in shown]
    pictures = interval_strips([(low, level, high, FIRST) for level, (low, high) in known], line=whole)
    for (level, column, value, of), picture in zip(shown, pictures, strict=True):
        cells: dict[str, Any] = {
            "slice": one_line(named(column, value), 60),
            "rows": of.rows,
            metric: number(level),
            "interval": ends(of.intervals.get(metric)),
            "picture": picture,
        }
        if (check := against.get((column, value))) is not None:
            cells[f"against {check.against}"] = f"{signed(check.change)}, {outcome_text(check)}"
        cells["worst rows"] = links(measured, of.worst_rows, split)
        rows.append(cells)
    note = f"The worst {metric} first; the line is that of all rows, {number(whole)}."
    note += f" {len(found) - _MOST} more: headway run --to evaluate." if len(found) > _MOST else ""
    return Table("Slices", rows, note)


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
