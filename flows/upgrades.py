"""Reads what earlier versions wrote: each function takes the JSON of any version and returns it as this one writes it."""

import ast
import re
from collections.abc import Mapping
from typing import Any

from headway.evaluation import verdict
from headway.storage.fingerprint import NEVER_RUN, Difference

FORMAT = 3
"""Of a run's record."""
_ON_COLUMN = re.compile(r"""column ('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")( is left out)?:? (.*)""", re.DOTALL)


def upgraded(value: object) -> object:
    """The JSON of a run's record; what is none is returned as it is, for the model to refuse.

    Before format 2 metrics could hold tables, and what a run had not come to yet was null; before format 3 notes and the
    reasons of a verdict were sentences.
    """
    if not isinstance(value, Mapping):
        return value
    if isinstance(notes := value.get("notes"), list):
        value = {**value, "notes": [_note(note) for note in notes]}
    if isinstance(steps := value.get("stages"), list):
        value = {**value, "stages": [upgraded_step(step) for step in steps]}
    if value.get("format", 1) >= FORMAT:
        return value
    record = {name: each for name, each in value.items() if each is not None}
    if isinstance(metrics := record.get("metrics"), Mapping):
        record["metrics"] = _numbers(metrics)
    if isinstance(baselines := record.get("baselines"), Mapping):
        record["baselines"] = {who: _numbers(of) for who, of in baselines.items() if isinstance(of, Mapping)}
    if isinstance(decided := record.get("verdict"), Mapping):
        record["verdict"] = _verdict(decided)
    return record


def upgraded_result(stage: str, result: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer of a stage, in which metrics could hold tables, and notes and reasons were sentences."""
    if stage == "gate":
        return _verdict(result)
    if stage == "transform":
        return {**result, "notes": [_note(note) for note in result["notes"]]}
    if stage not in ("measure", "evaluate") or not isinstance(metrics := result.get("metrics"), Mapping):
        return result
    files = {k: v for k, v in (result.get("baselines") or {}).items() if stage == "measure" or isinstance(v, str)}
    return {**result, "metrics": _numbers(metrics), "baselines": files}


def _note(note: object) -> object:
    """A note, of a sentence that begins with a column's name."""
    if not isinstance(note, str):
        return note
    found = _ON_COLUMN.fullmatch(note)
    if found is None:
        return {"text": note}
    return {"column": ast.literal_eval(found[1]), "left_out": bool(found[2]), "text": found[3]}


def upgraded_step(step: object) -> object:
    """A step of a run or of a lineage, whose reason was a sentence, which is shown as it was, and whose title alone had the
    span."""
    if not isinstance(step, Mapping):
        return step
    if isinstance(why := step.get("why"), str):
        step = {**step, "why": NEVER_RUN if why == "never run" else Difference(kind="damaged", new=why)}
    if step.get("stage") == "ingest" and step.get("span") is None:
        step = {**step, "span": str(step.get("title")).removeprefix("ingest ")}
    return step


def _numbers(metrics: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in metrics.items() if value is None or isinstance(value, int | float)}


def _verdict(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Before format 2 reasons were sentences; the numbers behind them, of which each kind had a form of its own, are left out."""
    if value.get("format", 1) >= verdict.FORMAT:
        return value
    found = {name: each for name, each in value.items() if each is not None}
    said = [{"summary": text} for text in found.get("reasons") or ()]
    blocked = said[:1] if not found.get("promote") or found.get("verdict") == "forced" else []
    found["reasons"] = [reason | {"verdict": found.get("verdict")} for reason in blocked]
    found["notes"] = said[len(blocked) :]
    found["alarms"] = [{"summary": text, "concern": True} for text in found.get("alarms") or ()]
    found["left_out"] = (found.get("comparisons") or {}).get("left_out") or []
    if isinstance(champion := found.get("champion"), int):
        found["champion"] = {"version": champion}
    return found | {"format": verdict.FORMAT}
