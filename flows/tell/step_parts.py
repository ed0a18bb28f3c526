"""What a step that has just ended came to, as a part: `headway stats` prints it, and Prefect keeps it as an artifact.

told = part_of(output)                # of statistics, validation, training, evaluation, importance and verdict
text(told), markdown(told)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from flows.dag.step import Output
from flows.tell.ending import verdict_part
from flows.tell.parts import Part, Table
from flows.tell.sections.column_rows import cell, column_rows
from flows.tell.sections.evaluation_tables import importance_table, metric_table
from flows.tell.sections.scores import measured_part
from flows.tell.sections.window_data import findings_of
from flows.upgrades import upgraded_result
from headway.evaluation.verdict import Verdict
from headway.messages import counted, sentence

_BARS = "▁▂▃▄▅▆▇█"
_POINTS = 20
"""Of a training, in a table."""


def part_of(output: Output) -> Part | None:
    """What a finished step came to; None of a stage without more to say than its line."""
    result = output.result or {}
    match output.stage:
        case "statistics":
            return statistics(result)
        case "validate":
            return validation(result)
        case "train":
            return curves(output, result)
        case "evaluate" if result.get("incompatible"):
            return Part(output.title, [f"It cannot score these rows: {result['incompatible']}"])
        case "evaluate" if output.title not in ("evaluate", "evaluate test"):  # of those the predictions are measured
            said = f"On {counted(result['rows'], 'row')} of the eval split."
            return Part(output.title, [said], tables=[metric_table(result)])
        case "importance":
            return Part("Importance", tables=[importance_table(result)])
        case "measure":
            return measured_part(result, split="test" if output.title == "measure test" else "eval")
        case "gate":
            return verdict_part(Verdict.model_validate(upgraded_result(output.stage, result)))
    return None


def key_of(output: Output) -> str:
    """The name under which what later runs say of the step follows: evaluation, evaluation-champion, curves-seed-1, ..."""
    words = [word for word in output.title.split() if output.stage == "train" or not word.isdigit()]
    name = {"evaluate": "evaluation", "measure": "evaluation", "train": "curves", "gate": "verdict"}
    return "-".join([name.get(output.stage, "validation" if output.stage == "validate" else output.stage), *words[1:]])


def report_part(place: str) -> Part:
    """Where the report of a run is: a path, or a bucket's URL. Neither is made a link, as no browser follows one from a
    server's page."""
    shown = f"headway report {PurePosixPath(place).stem} --open"
    said = [
        "The report of this run is one page, with figures. Where the store is seen, in the pipeline's folder, this shows it:"
    ]
    return Part("Report", said, commands=[place, shown])


def statistics(result: Mapping[str, Any]) -> Part:
    splits = [
        {"split": split, "rows": rows, "columns": len(result["columns"].get(split, []))}
        for split, rows in result["rows"].items()
    ]
    tables = [
        Table(f"columns of the {split} split, {counted(rows, 'row')}", column_rows(result, split))
        for split, rows in result["rows"].items()
        if result["columns"].get(split)
    ]
    return Part("Statistics", tables=[Table("splits", splits), *tables])


def validation(result: Mapping[str, Any]) -> Part | None:
    """What validation found, and the proof of the splits; None where it has nothing to say."""
    if not result["anomalies"] and not result.get("splits"):
        return None
    said = f"{counted(result['errors'], 'error')}, {counted(result['warnings'], 'warning')}"
    proof = "; ".join(result.get("proof", []))
    tables = [Table("splits and their labels", result["splits"], sentence(proof))] if result.get("splits") else []
    return Part("Validation", [said], tables=tables, findings=findings_of(result))


def _history(output: Output) -> list[dict[str, Any]]:
    """The points of a training, each {"step", "loss", "holdout_loss", ...}; [] where its file is not on this machine."""
    try:
        return list(json.loads((output.path / "history.json").read_text(encoding="utf-8"))["history"])
    except (OSError, ValueError, KeyError):
        return []


def curves(output: Output, result: Mapping[str, Any]) -> Part | None:
    """The curves of a training as a row of bars each, and as a table of about twenty steps."""
    points = _history(output)
    if not points:
        return None
    names = ["loss", "holdout_loss", "learning_rate"]
    names = [name for name in names if any(isinstance(point.get(name), int | float) for point in points)]
    chosen = [points[round(i * (len(points) - 1) / (_POINTS - 1))] for i in range(_POINTS)]
    chosen = [point for i, point in enumerate(chosen) if point not in chosen[:i]]
    best = f", best on the holdout at step {result['best_step']:,}" if result.get("best_step") is not None else ""
    steps = f"steps {points[0]['step']:,} to {points[-1]['step']:,}"
    drawn = [
        {"curve": name.replace("_", " "), steps: f"`{_bars([p.get(name) for p in points])}`"}
        for name in names
        if "loss" in name
    ]
    rows = [
        {"step": f"{point['step']:,}"} | {name.replace("_", " "): cell(point.get(name)) for name in names}
        for point in chosen
    ]
    said = f"{counted(result['steps'], 'step')}{best}"
    return Part(output.title.capitalize(), [said], tables=[Table("curves", drawn), Table("steps", rows)])


def _bars(values: Sequence[Any], most: int = 40) -> str:
    """Numbers as bars of text, the largest the highest; a blank where there is none."""
    if len(values) > most:
        values = [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]
    known = [value for value in values if isinstance(value, int | float)]
    least, most_of = min(known), max(known)
    scale = (len(_BARS) - 1) / ((most_of - least) or 1.0)
    return "".join(_BARS[round((v - least) * scale)] if isinstance(v, int | float) else " " for v in values)
