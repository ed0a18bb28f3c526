"""Tables of metrics: with their intervals, at the threshold, and how much columns matter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flows.tell.parts import Table
from headway.evaluation.results.threshold import AS_CONFIGURED
from headway.messages import counted, number

Rows = list[dict[str, Any]]


def metric_table(result: Mapping[str, Any], title: str = "metrics") -> Table:
    """A row per metric that is one number."""
    return Table(title, metric_rows(result))


def threshold_table(threshold: Mapping[str, Any]) -> Table:
    """The metrics at the threshold."""
    chosen = f"{number(threshold['value'])}, chosen on {threshold['chosen_on']}"
    none = threshold["value"] is None
    rule = threshold["rule"] if threshold["rule"] == AS_CONFIGURED else f"for {threshold['rule']}"
    return Table(f"Threshold {rule}: {threshold['chosen_on'] if none else chosen}", metric_rows(threshold))


def importance_table(result: Mapping[str, Any]) -> Table:
    """How much each column matters, the most important first."""
    title = f"How much worse {result['metric']} ({number(result['value'])}) is without a column, "
    title += f"on {counted(result['rows'], 'row')}"
    if any(each["interval"] is not None for each in result["columns"]):  # a metric of the user's own has none
        title += ", with 95% intervals"
    rows = [
        {
            "column": each["column"],
            "permuted": number(each["permuted"]),
            "interval": interval_text(each["interval"]),
            "missing": number(each["missing"]) if each["missing"] is not None else "",
        }
        for each in result["columns"]
    ]
    return Table(title, rows)


def metric_rows(result: Mapping[str, Any]) -> Rows:
    """Return a row per metric: its value, its interval, and what other models have on the same rows."""
    others, intervals, champion = result.get("baselines") or {}, result.get("intervals") or {}, result.get("champion")
    return [
        {"metric": name, "value": number(value), "interval": interval_text(intervals.get(name))}
        | {other: number(values.get(name)) for other, values in others.items()}
        | ({"champion_interval": interval_text(champion["intervals"].get(name))} if champion else {})
        for name, value in (result.get("metrics") or {}).items()
        if value is None or isinstance(value, int | float)
    ]


def interval_text(interval: Any) -> str:
    """Return an interval in words, or an empty text where there is none."""
    return "" if interval is None else f"{number(interval[0])} to {number(interval[1])}"
