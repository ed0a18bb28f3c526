"""Explains in `headway plan` why a step is not cached: the differences from the most similar stored output.

in_words("config.training.batch_size: 256 -> 64", "train")      # "training.batch_size is 64, before 256"
"""

from __future__ import annotations

import re

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
        return "Headway's code of this stage is newer"
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
