"""Explains why a step is not cached: the differences from the most similar stored output.

in_words("config.training.batch_size: 256 -> 64", "train")      # "training.batch_size is 64, before 256"
steps_explained(store, record)                                  # the steps of a run, each with its reason
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from flows.records import RunRecord, records
from headway.config import Frozen
from headway.storage.fingerprint import texts
from headway.storage.store import Store

_DIGEST = re.compile(r"\b[0-9a-f]{16,}\b")
_NAMES = {
    "statistics": "the statistics of the window",
    "analysed": "the statistics of the computed columns",
    "transform": "the transform",
    "train": "the trained model",
    "model": "the trained model",
    "candidate": "the candidate's predictions",
    "predictions": "the predictions",
    "beside": "the champion's predictions",
    "scored": "the champion's predictions",
    "champion": "the champion",
    "examples": "the examples",
    "spans": "the spans of the window",
    "parts": "the spans of the window",
    "eval": "the spans of eval",
    "splits": "the proof of the splits",
    "schema": "the schema",
    "columns": "the columns",
    "features": "the columns",
    "read": "the columns that are read",
    "stored": "the columns",
    "module": "your Python module",
    "file": "a file of the pipeline",
    "serving": "the file of logged requests",
    "rolled_back": "the list of rolled-back versions",
    "verdict": "the verdict",
    "evaluation": "the evaluation",
    "export": "the exported model",
    "split": "the split",
    "slices": "the list of slices",
    "searched": "the columns that are searched for the worst slices",
    "card": "the text of the model card",
}


def in_words(why: str | None, stage: str) -> str:
    """The reason as a short sentence; a place in a key, and digests, are left to --explain."""
    if not why:
        return ""
    if why in ("never run", "model.version is new"):
        return "has not run yet"
    place, _, change = why.partition(": ")
    old, arrow, new = change.partition(" -> ")
    parts = re.findall(r"[^.\[\]]+", place.removesuffix(" is new").removesuffix(" is gone"))
    counts = re.fullmatch(r"(\d+) entries -> (\d+)", change)
    if parts[:1] == ["span"] and arrow:
        return f"span {new} is new"
    if parts[:1] == ["files"]:
        return "a file of this span changed, came or went"
    if parts[:1] == ["version"]:
        back = old.isdecimal() and new.isdecimal() and int(new) < int(old)
        return f"Headway's code of this stage is {'older' if back else 'newer'}"
    if parts[:1] in (["config"], ["training"], ["source"], ["label"], ["records"]):
        key = ".".join(parts).removeprefix("config.")
        if arrow and not counts and not _DIGEST.search(change) and "{" not in change:
            return f"{key} is {new}, before {old}"
        return f"{key} changed"
    if counts and parts[:1] == ["inputs"]:
        return f"the window has {counts[2]} spans in {parts[-1]}, before {counts[1]}"
    if stage in ("statistics", "splits") and parts[:1] == ["inputs"]:
        return "the spans of the window changed"
    names = [_NAMES[part] for part in (parts[-1:] if stage == "evaluate" else []) + parts if part in _NAMES]
    if names:
        return f"{names[-1] if parts[:1] in (['inputs'], ['model']) else names[0]} changed"
    return f"{'.'.join(parts)} changed" if _DIGEST.search(change) or counts or not arrow else why


def why_it_ran(why: str | None, stage: str) -> str:
    """The reason of a step that has run by now."""
    return in_words(why, stage).replace("has not run yet", "for the first time")


class Explained(Frozen):
    """A step of a run, with the reason why it ran or was reused."""

    stage: str
    title: str
    fingerprint: str
    cached: bool
    seconds: float
    why: str | None
    reason: str
    """In words; empty for one that was reused."""
    output: str
    """Its path."""
    kept: bool
    """The store still has it."""
    reads: tuple[Read, ...]
    goes_in: tuple[str, ...]
    """What else its fingerprint is made of."""
    made_by: str | None = None
    """Of one that was reused: the run that made it, and in how many seconds."""
    made_in: float | None = None


class Read(Frozen):
    """A step of the run that another reads."""

    title: str
    cached: bool
    reason: str


def steps_explained(store: Store, record: RunRecord) -> list[Explained]:
    """The steps of a run."""
    steps: list[Explained] = []
    made: dict[str, tuple[str, float]] | None = None
    for step in record.stages:
        manifest = store.find(step.stage, step.fingerprint)
        key = dict(manifest.key) if manifest else {}
        inside = set(texts(key))
        made_by, made_in = None, None
        if step.cached:
            made = _makers(store) if made is None else made
            made_by, made_in = made.get(step.fingerprint, (None, None))
        steps.append(
            Explained(
                **step.model_dump(),
                reason="" if step.cached else why_it_ran(step.why, step.stage),
                output=str(store.output(step.stage, step.fingerprint)),
                kept=manifest is not None,
                reads=tuple(
                    Read(title=r.title, cached=r.cached, reason=r.reason) for r in steps if r.fingerprint in inside
                ),
                goes_in=tuple(_goes_in(key)),
                made_by=made_by,
                made_in=made_in,
            )
        )
    return steps


def _goes_in(key: Mapping[str, Any]) -> list[str]:
    """What a fingerprint is made of, but for the outputs of other steps."""
    config = key.get("config")
    own = [f"config ({', '.join(config)})" if isinstance(config, dict) and config else "config"] if config else []
    others = [name for name, value in key.items() if name not in ("stage", "version", "config", "inputs") and value]
    return [f"the stage's code (version {key['version']})", *own, *others] if key else []


def _makers(store: Store) -> dict[str, tuple[str, float]]:
    """Return {fingerprint: (run, seconds)} of the last run that made each output."""
    return {step.fingerprint: (run.run, step.seconds) for run in reversed(records(store)) for step in run.ran}
