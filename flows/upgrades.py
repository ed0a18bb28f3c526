"""Reads what earlier versions wrote: each function takes the JSON of any version and returns it as this one writes it."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

FORMAT = 2
"""Of a run's record."""
_ON_COLUMN = re.compile(r"""column ('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")( is left out)?:? (.*)""", re.DOTALL)


def upgraded(value: object) -> object:
    """The JSON of a run's record; what is none is returned as it is, for the model to refuse.

    Before format 2 metrics could hold tables, what a run had not come to yet was null, and notes were sentences.
    """
    if not isinstance(value, Mapping):
        return value
    if isinstance(notes := value.get("notes"), list):
        value = {**value, "notes": [_note(note) for note in notes]}
    if value.get("format", 1) >= FORMAT:
        return value
    record = {name: each for name, each in value.items() if each is not None}
    if isinstance(metrics := record.get("metrics"), Mapping):
        record["metrics"] = _numbers(metrics)
    if isinstance(baselines := record.get("baselines"), Mapping):
        record["baselines"] = {who: _numbers(of) for who, of in baselines.items() if isinstance(of, Mapping)}
    return record


def upgraded_result(stage: str, result: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer of a stage, in which metrics could hold tables and notes were sentences."""
    if stage == "transform":
        return {**result, "notes": [_note(note) for note in result["notes"]]}
    if stage not in ("measure", "evaluate") or not isinstance(metrics := result.get("metrics"), Mapping):
        return result
    return {**result, "metrics": _numbers(metrics)}


def _note(note: object) -> object:
    """A note, of a sentence that begins with a column's name."""
    if not isinstance(note, str):
        return note
    found = _ON_COLUMN.fullmatch(note)
    if found is None:
        return {"text": note}
    return {"column": ast.literal_eval(found[1]), "left_out": bool(found[2]), "text": found[3]}


def _numbers(metrics: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in metrics.items() if value is None or isinstance(value, int | float)}
