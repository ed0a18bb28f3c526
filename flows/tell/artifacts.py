"""Artifacts for the Prefect UI: plain functions from a step's result to a table or to Markdown.

    for artifact in artifacts_of(output):                # of statistics, anomalies, evaluation and verdict
        artifact.key, artifact.table or artifact.markdown, artifact.description

Nothing here talks to a server; `flows.orchestration.run_log` publishes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from flows.dag.step import Output
from flows.tell.evaluation_tables import evaluation_tables, importance_table
from headway.messages import counted, duration, number
from headway.schema.calendar_days import PER_DAY, moment
from headway.validation.anomaly import summary_table

Rows = list[dict[str, Any]]
_BARS = "▁▂▃▄▅▆▇█"
_POINTS = 20
"""Of a training, in a table."""


@dataclass(frozen=True)
class Artifact:
    """A table, or Markdown when `table` is None."""

    key: str
    description: str
    table: Rows | None = None
    markdown: str = ""


def artifacts_of(output: Output) -> list[Artifact]:
    """The artifacts of a finished step."""
    result = output.result or {}
    match output.stage:
        case "statistics":
            return [
                Artifact("statistics", "splits and their rows", markdown=splits_markdown(result)),
                Artifact("statistics-train", "columns of the train split", table=column_rows(result)),
            ]
        case "validate":
            summary = f"{counted(result['errors'], 'error')}, {counted(result['warnings'], 'warning')}"
            artifacts = [Artifact("validation", summary, table=summary_table(result))] if result["anomalies"] else []
            if result.get("splits"):
                description = "; ".join(["splits and their labels", *result.get("proof", [])])
                artifacts.append(Artifact("splits", description, table=result["splits"]))
            return artifacts
        case "train":
            points = history_of(output)
            about = f"{output.title}: {counted(result['steps'], 'step')}"
            key = "-".join(["curves", *output.title.removeprefix("train").split()])
            return [Artifact(key, about, markdown=curves_markdown(output.title, result, points))] if points else []
        case "evaluate":
            # champion, reference, test or seed
            role = [word for word in output.title.removeprefix("evaluate").split() if not word.isdigit()]
            key = "-".join(["evaluation", *role])
            if role in ([], ["test"]):  # what its predictions amount to is measured
                return []
            if result.get("incompatible"):
                text = f"# {output.title}\n\nIt cannot score these rows: {result['incompatible']}\n"
                return [Artifact(key, output.title, markdown=text)]
            return [Artifact(key, f"{output.title}: metrics", markdown=metrics_markdown(output.title, result))]
        case "importance":
            title, rows = importance_table(result)
            return [Artifact("importance", title, table=rows)]
        case "measure":
            key = "-".join(["evaluation", *output.title.removeprefix("measure").split()[:1]])
            title = output.title.replace("measure", "evaluate")
            artifacts = [Artifact(key, f"{title}: metrics", markdown=evaluation_markdown(output.title, result))]
            if rows := slice_rows(result):
                artifacts.append(Artifact(f"{key}-slices", f"{title}: metrics by slice", table=rows))
            return artifacts
        case "gate":
            return [Artifact("verdict", str(result["verdict"]), markdown=verdict_markdown(result))]
    return []


def report_artifact(place: str) -> Artifact:
    """Where the report of a run is: a path, or a bucket's URL. Neither is made a link, as no browser follows one from a
    server's page."""
    run = PurePosixPath(place).stem
    text = (
        f"# Report\n\nThe report of this run is one page, with figures:\n\n    {place}\n\n"
        f"Where the store is seen, in the pipeline's folder, this shows it:\n\n    headway report {run} --open\n"
    )
    return Artifact("report", "the run's report", markdown=text)


def key_of(pipeline: str, key: str) -> str:
    """Return an artifact key as Prefect accepts it: lower-case letters, digits and dashes; one history per pipeline."""
    return re.sub(r"[^a-z0-9]+", "-", f"{pipeline}-{key}".lower()).strip("-")


def splits_markdown(result: Mapping[str, Any]) -> str:
    rows = [[split, f"{n:,}", len(result["columns"].get(split, []))] for split, n in result["rows"].items()]
    return "# Statistics\n\n" + _table(["split", "rows", "columns"], rows)


def column_rows(result: Mapping[str, Any], split: str = "train") -> Rows:
    """One row per column; what a type does not have stays empty."""
    figures = ("mean", "std", "min", "p25", "median", "p75", "max", "shortest", "longest")
    return [
        {
            "column": column["column"],
            "type": column.get("temporal") or column["type"],
            "rows": column["rows"],
            "missing": f"{column['missing_share']:.2%}",
            # of the columns that have some: missing they are not, and no figure behind counts them
            **{name: f"{column[name]:,}" if column.get(name) else "" for name in ("nan", "infinite")},
            "distinct": _distinct(column),
            **{name: figure(column, name) for name in figures},
            "quantiles": f"rank ±{column['rank_error']:.1%}" if column.get("rank_error") else "",
            "most frequent": ", ".join(
                f"{_value(value, column)} ({count:,})" for value, count in column.get("top", [])[:3]
            ),
        }
        for column in result["columns"].get(split, [])
    ]


def figure(column: Mapping[str, Any], name: str) -> str:
    """The text of a figure of a column's summary, such as its median; of dates and times a date or a time, and their
    standard deviation is a duration."""
    value, unit = column.get(name), column.get("temporal")
    if value is None or unit is None or not isinstance(value, int | float):
        return _cell(value)
    if name == "std":
        return duration(value * PER_DAY["epoch_seconds"] / PER_DAY[unit])
    # a mean and the quantiles lie between the values: a fraction of a second says nothing
    second = max(1, PER_DAY[unit] // PER_DAY["epoch_seconds"])
    return moment(value if name in ("min", "max") else value // second * second, unit)


def _value(value: Any, column: Mapping[str, Any]) -> str:
    """The text of a value; of a float32 no more digits than it has."""
    if (unit := column.get("temporal")) is not None:
        return moment(value, unit)
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def _distinct(column: Mapping[str, Any]) -> int | str:
    """The number of different values; an estimate with its standard error."""
    error = column.get("distinct_error")
    return f"{column['distinct']:,} ±{error:.0%}" if error else column["distinct"]


def history_of(output: Output) -> Rows:
    """The points of a training, each {"step", "loss", "holdout_loss", ...}; [] where its file is not on this machine."""
    try:
        return list(json.loads((output.path / "history.json").read_text(encoding="utf-8"))["history"])
    except (OSError, ValueError, KeyError):
        return []


def curves_markdown(title: str, result: Mapping[str, Any], points: Rows) -> str:
    """The curves of a training as a row of bars each, and as a table of about twenty steps."""
    names = ["loss", "holdout_loss", "learning_rate"]
    names = [name for name in names if any(isinstance(point.get(name), int | float) for point in points)]
    chosen = [points[round(i * (len(points) - 1) / (_POINTS - 1))] for i in range(_POINTS)]
    chosen = [point for i, point in enumerate(chosen) if point not in chosen[:i]]
    best = f", best on the holdout at step {result['best_step']:,}" if result.get("best_step") is not None else ""
    parts = [f"# {title.capitalize()}\n\n{counted(result['steps'], 'step')}{best}\n"]
    drawn = [[name.replace("_", " "), f"`{_bars([p.get(name) for p in points])}`"] for name in names if "loss" in name]
    parts.append(_table(["curve", f"steps {points[0]['step']:,} to {points[-1]['step']:,}"], drawn))
    rows = [[f"{point['step']:,}", *(_cell(point.get(name)) for name in names)] for point in chosen]
    parts.append(_table(["step", *(name.replace("_", " ") for name in names)], rows))
    return "\n".join(parts)


def _bars(values: Sequence[Any], most: int = 40) -> str:
    """Numbers as bars of text, the largest the highest; a blank where there is none."""
    if len(values) > most:
        values = [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]
    known = [value for value in values if isinstance(value, int | float)]
    least, most_of = min(known), max(known)
    scale = (len(_BARS) - 1) / ((most_of - least) or 1.0)
    return "".join(_BARS[round((v - least) * scale)] if isinstance(v, int | float) else " " for v in values)


def metrics_markdown(title: str, result: Mapping[str, Any]) -> str:
    rows = [[name, number(value)] for name, value in _numbers(result["metrics"]).items()]
    head = f"# {title.capitalize()}\n\n{counted(result['rows'], 'row')} of the eval split\n\n"
    return head + _table(["metric", "value"], rows)


def evaluation_markdown(title: str, result: Mapping[str, Any]) -> str:
    """Every table of an evaluation but its slices."""
    split = "test" if title == "measure test" else "eval"
    parts = [
        f"# {title.replace('measure', 'evaluate').capitalize()}\n\n{counted(result['rows'], 'row')} of the {split} split\n"
    ]
    for name, rows in evaluation_tables({**result, "by_slice": {}}):
        head = list(rows[0]) if rows else []
        parts.append(
            f"### {name[:1].upper()}{name[1:]}\n\n"
            + (_table(head, [[row.get(column, "") for column in head] for row in rows]) if rows else "")
        )
    return "\n".join(parts)


def slice_rows(result: Mapping[str, Any]) -> Rows:
    return [
        {"slice": column, "value": str(value), "rows": metrics.get("rows")}
        | {name: _cell(number) for name, number in _numbers(metrics).items() if name != "rows"}
        for column, values in result.get("by_slice", {}).items()
        for value, metrics in values.items()
    ]


def verdict_markdown(result: Mapping[str, Any], ending: str | None = None) -> str:
    """The gate's decision, its reasons, and candidate and champion side by side.

    Args:
        ending: what became of the candidate; None as long as export, replay and promotion are still to come.
    """
    parts = [f"# Verdict: {result['verdict']}\n"]
    if not result.get("promote"):
        ending = "The candidate is **not** promoted."
    parts.append((ending or "The gate lets the candidate through. Export, replay and promotion follow.") + "\n")
    parts.append("\n".join(f"- {reason}" for reason in result["reasons"]) + "\n")
    if alarms := result.get("alarms"):
        parts.append("\n".join(f"- warning: {alarm}" for alarm in alarms) + "\n")
    metrics = result.get("metrics") or {}
    sides = {name: metrics.get(name) for name in ("candidate", "champion", "reference")} | (
        metrics.get("baselines") or {}
    )
    numbers = {name: _numbers(values) for name, values in sides.items() if values}
    if "candidate" in numbers:
        rows = [[name, *(number(side.get(name)) for side in numbers.values())] for name in numbers["candidate"]]
        parts.append(_table(["metric", *numbers], rows))
    return "\n".join(parts)


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float | None]:
    """The metrics that are one number; None is undefined, as the AUC of a single class."""
    return {name: value for name, value in metrics.items() if value is None or isinstance(value, int | float)}


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return number(value) if isinstance(value, int | float) else str(value)


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [list(head), ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(map(_in_a_row, line)) + " |\n" for line in lines)


def _in_a_row(cell: Any) -> str:
    """A cell's text as Markdown keeps it in its column and on its line."""
    return " ".join(str(cell).replace("|", "\\|").splitlines())
