"""How a run ended, in one sentence, and what it is based on.

headline = headline_of(record, verdict)
headline.word, headline.sentence        # "promoted", "Version 2 is the champion now: auc is 0.8944, and was 0.887 with ..."
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from flows.records import RunRecord
from flows.tell.parts import Finding, Part, Table
from headway.messages import number

Tone = Literal["good", "bad", "wait", "plain"]
_TONES: dict[str, Tone] = {
    "promoted": "good",
    "named": "good",
    "already champion": "good",
    "done": "plain",
    "running": "plain",
    "failed": "bad",
    "reject": "bad",
    "rolled back": "bad",
}
_WORDS = {"reject": "rejected", "keep champion": "champion kept"}
_BEYOND = re.compile(r", [\d.%]* ?interval |; ")
"""What comes after it in a reason is left to the list below the sentence."""
_STAGES = {
    "ingest": "ingest",
    "statistics": "the statistics",
    "validate": "the validation",
    "train": "the training",
    "evaluate": "the evaluation",
    "gate": "the gate's verdict",
    "replay": "the export",
}


@dataclass(frozen=True)
class Headline:
    word: str
    """The run's state."""
    tone: Tone
    sentence: str
    reasons: Sequence[str] = ()
    error: str = ""
    """The whole error of a run that failed."""


def headline_of(record: RunRecord, verdict: Mapping[str, Any]) -> Headline:
    """The headline of a run.

    Args:
        verdict: the gate's, with its metrics and comparisons; empty where the gate was not reached.
    """
    state = str(record.state)
    reasons = list(verdict.get("reasons") or ())
    error = record.error or ""
    sentence = _sentence(state, record, verdict, reasons)
    word = str(verdict["verdict"]) if state == "done" and verdict.get("verdict") else state
    # what the sentence says is not said again
    rest = [reason for reason in reasons if reason not in sentence]
    shown = error if error and error not in sentence else ""
    return Headline(_WORDS.get(word, word), _TONES.get(word, "wait"), sentence, rest, shown)


def _sentence(state: str, record: RunRecord, verdict: Mapping[str, Any], reasons: Sequence[str]) -> str:
    first = _BEYOND.split(reasons[0])[0] if reasons else ""
    match state:
        case "promoted":
            return f"Version {record.version} is the champion now{_why(verdict)}."
        case "named":
            return f"{record.alias} is version {record.version} now; the champion is as before."
        case "already champion":
            return f"Nothing to promote: this model is the champion already, version {record.version}."
        case "keep champion":
            return f"The champion stays: {first}."
        case "reject":
            return f"The candidate is rejected: {first}."
        case "failed" | "overtaken":
            return f"The run {'failed' if state == 'failed' else 'was overtaken'}: {_first_line(record)}"
        case "cancelled":
            return "The run was stopped; what was done is kept, and the next run goes on from there."
        case "killed":
            return "The process of this run died; what was done is kept, and the next run goes on from there."
        case "running":
            return "The run is going on."
        case "done" if verdict.get("verdict"):
            passed = "would be promoted" if verdict.get("promote") else f"would not be promoted: {first}"
            return f"The candidate {passed}; this run ended before a promotion."
        case "done":
            last = _STAGES.get(str(record.last), str(record.last))
            return f"The run ended with {last}, as it was asked to; nothing was judged."
    return f"The candidate is not promoted, {state}: {first}." if first else f"The run ended: {state}."


def _why(verdict: Mapping[str, Any]) -> str:
    """Why a candidate was promoted, after the words that say that it was."""
    kind, primary = verdict.get("verdict"), verdict.get("primary")
    metrics = verdict.get("metrics") or {}
    value = (metrics.get("candidate") or {}).get(primary)
    if kind == "forced":
        return ", promoted by force"
    if value is None:
        return ""
    is_value = f"{primary} is {number(value)}"
    if ":" in str(primary) and verdict.get("better") in ("higher", "lower"):  # nobody else can know
        is_value += f" ({'more' if verdict['better'] == 'higher' else 'less'} is better)"
    if kind == "first model":
        others = {
            what: (metrics.get("baselines") or {}).get(name) or {}
            for name, what in (("constant", "a constant prediction"), ("linear", "the linear baseline"))
        }
        known = [f"{what} has {number(its[primary])}" for what, its in others.items() if its.get(primary) is not None]
        return f", the first one: {is_value}{'; ' if known else ''}{', '.join(known)}"
    before = (metrics.get("champion") or {}).get(primary)
    if before is None:
        return f": {is_value}"
    was = f"{is_value}, and was {number(before)} with version {(verdict.get('champion') or {}).get('version')}"
    return f": {was}" if verdict.get("outcome") == "better" else f": {was}; its data are newer, and nothing blocks it"


def _first_line(record: RunRecord) -> str:
    lines = [line for line in (record.error or "").splitlines() if line.strip()]
    return (lines[0] if lines else "no reason is known").rstrip(":") + ("" if len(lines) == 1 else ".")


def verdict_part(verdict: Mapping[str, Any]) -> Part:
    """The gate's decision, its reasons, and candidate and champion side by side."""
    said = "The gate lets the candidate through. Export, replay and promotion follow."
    if not verdict.get("promote"):
        said = "The candidate is not promoted."
    metrics = verdict.get("metrics") or {}
    sides = {name: metrics.get(name) for name in ("candidate", "champion", "reference")} | (
        metrics.get("baselines") or {}
    )
    known = {name: values for name, values in sides.items() if values}
    rows = [
        {"metric": name} | {side: number(values.get(name)) for side, values in known.items()}
        for name, value in (known.get("candidate") or {}).items()
        if value is None or isinstance(value, int | float)
    ]
    warnings = [Finding("warning", alarm) for alarm in verdict.get("alarms") or ()]
    tables = [Table("Metrics", rows)] if rows else []
    return Part(
        f"Verdict: {verdict['verdict']}", [said], tables=tables, findings=warnings, points=list(verdict["reasons"])
    )
