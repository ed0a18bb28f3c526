"""The result of an evaluation as tables of rows, for the terminal and for Prefect's UI.

for title, rows in evaluation_tables(output.get()):     # metrics, threshold, worst slices, reliability, confusion, ...
    print(title, text_table(rows), sep="\\n")
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from headway.evaluation.further_labels import split_name
from headway.evaluation.results.threshold import AS_CONFIGURED
from headway.messages import counted, number, some
from headway.metrics.tables import CURVES

Rows = list[dict[str, Any]]
MOST_VALUES = 12
"""Values of a slice that are shown with intervals; metrics.json has those of all."""


def evaluation_tables(result: Mapping[str, Any]) -> Iterator[tuple[str, Rows]]:
    """Yield (title, rows) of each table that has rows; curves of many points are left to the JSON."""
    percent = f"{100 * result['confidence']:.4g}"
    said = "".join(f"; {result[key]}" for key in ("drawn_by", "few_rows") if result.get(key))
    yield f"metrics on {counted(result['rows'], 'row')}, with {percent}% intervals{said}", metric_rows(result)
    if (threshold := result.get("threshold")) is not None:
        yield threshold_table(threshold)
    for column, values in result.get("by_slice", {}).items():
        if values:
            rows = [_slice(metrics) for metrics in values.values()]
            head = slice_head(column, {name for row in rows for name in row})
            yield f"by {column}", [{head: value, **row} for value, row in zip(values, rows, strict=True)]
            yield from _slice_intervals(result, column, values, percent)
        else:
            yield f"by {column}: no value has as many rows as evaluation.slice_min_rows asks for", []
    if (worst := result.get("worst_slices")) is not None:
        looked = f"{counted(worst['tried'], 'slice')} of {counted(worst['columns'], 'column')} looked at"
        loss = worst.get("metric", "loss")
        if worst["slices"]:
            title = (
                f"slices with a {loss} above that of all other rows, beyond chance: {worst['significant']} ({looked})"
            )
            yield title, [{name: _cell(value) for name, value in each.items()} for each in worst["slices"]]
        else:
            yield f"no slice has a {loss} above that of all other rows beyond chance ({looked})", []
    titles = result.get("titles", {})
    for name, columns in result.get("tables", {}).items():
        if columns and split_name(name)[1] not in CURVES:
            lines = zip(*columns.values(), strict=True)
            yield titles.get(name, name), [dict(zip(columns, map(_cell, line), strict=True)) for line in lines]
    if curves := [name for name in result.get("tables", {}) if split_name(name)[1] in CURVES]:
        yield f"--json also has the points of {some(curves, 5)}", []


def _slice_intervals(
    result: Mapping[str, Any], column: str, values: Mapping[str, Any], percent: str
) -> Iterator[tuple[str, Rows]]:
    """Yield the intervals of what the gate compares, on the largest values, beside the champion's."""
    largest = sorted(values, key=lambda value: -values[value]["rows"])[:MOST_VALUES]
    beside = " beside the champion's" if result.get("champion") else ""
    some_of = f", the {len(largest)} values with most rows" if len(largest) < len(values) else ""
    rows = []
    for value in values:
        for name in result.get("compared", ()) if value in largest else ():
            facts, champion = values[value], values[value].get("champion") or {}
            figures = {"value": number(facts[name]), "interval": interval_text(facts["intervals"][name])}
            if champion:
                figures |= {
                    "champion": number(champion[name]),
                    "champion_interval": interval_text(champion["intervals"][name]),
                }
            row = {"rows": facts["rows"], "metric": name, **figures}
            rows.append({slice_head(column, row): value, **row})
    if rows:
        yield f"by {column}, with {percent}% intervals{beside}{some_of}", rows


def slice_head(column: str, others: Collection[str]) -> str:
    """The heading of a slice's values: the column's name, unless one of the other headings has it."""
    while column in others:
        column += " (column)"
    return column


def threshold_table(threshold: Mapping[str, Any]) -> tuple[str, Rows]:
    """Return (title, rows) of the metrics at the threshold."""
    chosen = f"{number(threshold['value'])}, chosen on {threshold['chosen_on']}"
    none = threshold["value"] is None
    rule = threshold["rule"] if threshold["rule"] == AS_CONFIGURED else f"for {threshold['rule']}"
    return f"threshold {rule}: {threshold['chosen_on'] if none else chosen}", metric_rows(threshold)


def importance_table(result: Mapping[str, Any]) -> tuple[str, Rows]:
    """Return (title, rows) of how much each column matters, the most important first."""
    title = f"how much worse {result['metric']} ({number(result['value'])}) is without a column, "
    title += f"on {counted(result['rows'], 'row')}"
    if any(each["interval"] is not None for each in result["columns"]):  # a metric of the user's own has none
        title += ", with 95% intervals"
    rows = [
        {
            "column": each["column"],
            "permuted": number(each["permuted"]),
            "interval": interval_text(each["interval"]),
            "missing": _cell(each["missing"]),
        }
        for each in result["columns"]
    ]
    return title, rows


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


def _slice(metrics: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"rows": metrics.get("rows")}
    for name, value in metrics.items():
        if name not in ("rows", "intervals", "champion"):
            found[name] = _cell(value)
    return found


def _cell(value: Any) -> Any:
    return "" if value is None else number(value) if isinstance(value, float) else value
