"""Slices, those first that do most harm: many rows on which the model is worse than elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flows.tell.figures.drawing import FIRST, MUTED, short
from flows.tell.figures.strips import Strips
from flows.tell.parts import Table
from flows.tell.sections.evaluation_tables import interval_text
from headway.evaluation.verdict import Verdict
from headway.messages import number, signed
from headway.tasks.table import direction

_MOST = 60


def slices(measured: Mapping[str, Any], verdict: Verdict | None, whose: str) -> Iterator[Table]:
    """The tables on slices: the named or chosen ones, and the worst that were found."""
    metric = _metric(measured, verdict)
    if metric is not None and (rows := _rows(measured, metric, verdict)):
        yield _table(measured, verdict, whose, metric, rows)
    found = measured.get("worst_slices") or {}
    if found.get("slices"):
        yield _worst(found)


def _metric(measured: Mapping[str, Any], verdict: Verdict | None) -> str | None:
    """The metric that harm is counted in: the mean of a loss, else the one that decides."""
    names = [(measured.get("worst_slices") or {}).get("metric"), "loss", verdict.primary if verdict else None]
    return next((name for name in names if (measured.get("metrics") or {}).get(name) is not None), None)


def _rows(measured: Mapping[str, Any], metric: str, verdict: Verdict | None) -> list[dict[str, Any]]:
    better = verdict.better if verdict and metric == verdict.primary else None
    whole, sign = measured["metrics"][metric], -direction(metric, better)
    found = []
    for column, values in measured.get("by_slice", {}).items():
        for value, metrics in values.items():
            if metrics.get(metric) is not None:
                share = metrics["rows"] / max(measured["rows"], 1)
                harm = share * sign * (metrics[metric] - whole)
                found.append({"column": column, "value": value, "harm": harm, "metrics": metrics})
    return sorted(found, key=lambda row: -row["harm"])


def _table(
    measured: Mapping[str, Any], verdict: Verdict | None, whose: str, metric: str, rows: list[dict[str, Any]]
) -> Table:
    pictures = _intervals(rows[:_MOST], metric, measured["metrics"][metric])
    primary = str(verdict.primary if verdict else None)
    checks = verdict.compared(slices=True) if verdict else []
    against = {(check.slice, check.slice_value): check for check in checks if check.metric == primary}
    shown = []
    for row, picture in zip(rows[:_MOST], pictures, strict=True):
        metrics, compared = row["metrics"], against.get((row["column"], row["value"]))
        cells = {"slice": f"{row['column']}: {short(row['value'], 40)}", "rows": f"{metrics['rows']:,}"}
        cells |= {"harm": _harm(row["harm"], rows), metric: number(metrics[metric])}
        cells |= {"interval": interval_text((metrics.get("intervals") or {}).get(metric)), "beside the others": picture}
        if primary in metrics and primary != metric:
            cells[primary] = number(metrics[primary])
        if compared is not None:
            cells[f"{primary} − {whose}'s"] = f"{signed(compared.change)}, {compared.outcome}"
        shown.append(cells)
    note = f"Harm is a slice's share of the rows times how much worse its {metric} is than that of all rows "
    note += (
        f"({number(measured['metrics'][metric])}, the line): what the whole would gain if the slice were like the rest."
    )
    note += f" {len(rows) - _MOST} more: headway evaluate." if len(rows) > _MOST else ""
    return Table("Slices, the most harmful first", shown, note)


def _harm(harm: float, rows: list[dict[str, Any]]) -> str:
    """Two digits; nothing is said of less than a thousandth of the largest."""
    largest = max(abs(row["harm"]) for row in rows)
    return signed(float(f"{harm:.2g}")) if abs(harm) > largest / 1000 else "0"


def _intervals(rows: list[dict[str, Any]], metric: str, whole: float) -> list[Any]:
    """A picture of each slice's value and interval, all on one axis."""
    spans = [(row["metrics"].get("intervals") or {}).get(metric) or [row["metrics"][metric]] * 2 for row in rows]
    low, high = min([whole, *(s[0] for s in spans)]), max([whole, *(s[1] for s in spans)])
    width = (high - low) or 1.0
    strips = Strips(len(rows), limits=(low - 0.03 * width, high + 0.03 * width), height=14)
    for row, (left, right) in enumerate(spans):
        strips.box(row, whole - 0.003 * width, whole + 0.003 * width, MUTED, low=0, high=1, alpha=0.5)
        strips.box(row, left, right, FIRST, low=0.42, high=0.58, alpha=0.6)
        value = rows[row]["metrics"][metric]
        strips.box(row, value - 0.012 * width, value + 0.012 * width, FIRST, low=0.25, high=0.75)
    return strips.svgs()


def _worst(found: Mapping[str, Any]) -> Table:
    metric = found.get("metric", "loss")
    highest = max(each[metric] for each in found["slices"]) or 1.0
    strips = Strips(len(found["slices"]), limits=(0, highest), height=14)
    rows = []
    for row, each in enumerate(found["slices"]):
        strips.box(row, 0, each[metric], FIRST)
        strips.box(row, 0, each[f"{metric}_of_others"], MUTED, low=0.38, high=0.62)
    for each, picture in zip(found["slices"], strips.svgs(), strict=True):
        rows.append(
            {
                "slice": short(each["slice"], 60),
                "value": short(each["value"], 60),
                "rows": f"{each['rows']:,}",
                metric: number(each[metric]),
                "of others": number(each[f"{metric}_of_others"]),
                "beside others": picture,
                "predicted": number(each.get("prediction_mean")) if each.get("prediction_mean") is not None else "",
                "observed": number(each.get("label_mean")) if each.get("label_mean") is not None else "",
            }
        )
    note = f"{found['significant']} of {found['tried']:,} slices of {found['columns']} columns have a {metric} above that of all "
    note += "other rows beyond chance. Where predicted and observed agree, the slice is hard; where not, the model is wrong."
    return Table("The worst slices that were found", rows, note)
