"""Two versions of a model, or two runs, compared.

found = compare(registry, "4", "champion")
found.value                              # what `headway compare --json` prints
found.path                               # where its page is kept: <store>/runs/compare-flights-4-5.html
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flows.tell.comparison.outcome import compared_ending, why_none
from flows.tell.comparison.same_rows import SameRows, on_the_same_rows
from flows.tell.comparison.sides import Columns, Side, named_side
from flows.tell.ending import Ending
from headway.errors import ConfigError
from headway.registry.gc import COMPARED
from headway.registry.registry import Registry
from headway.storage.store import Store

_ABSENT = object()


@dataclass(frozen=True)
class Compared:
    """What differs between A and B, and what they are worth."""

    pipeline: str
    store: Store
    a: Side
    b: Side
    same: SameRows | None
    """None: no rows that both scored."""
    value: dict[str, Any]
    """What --json has of it."""
    ending: Ending
    changed_columns: Mapping[str, str]
    """By column of both what of it differs."""

    @property
    def path(self) -> Path:
        """Where its page is kept, written or not; the same two have the same page."""
        return self.store.runs_folder / f"{COMPARED}{self.pipeline}-{self.a.name}-{self.b.name}.html"


def compare(registry: Registry, first: str, second: str) -> Compared:
    """Compare two versions, named by number, champion, previous or an alias, or two runs.

    Raises:
        StoreError: no version or run has this name.
        ConfigError: both are the same one.
    """
    a, b = (replace(named_side(registry, name), letter=each) for name, each in ((first, "A"), (second, "B")))
    if a.name == b.name:
        same = f"version, {a.name}" if a.facts["version"] else f"run, {a.name}"
        problem = f"{first} and {second} are the same {same}"
        raise ConfigError(problem, fix="headway models lists the versions, and headway runs the runs")
    found, changed = on_the_same_rows(registry.store, a, b), _changed(a, b)
    value: dict[str, Any] = {
        "a": a.facts,
        "b": b.facts,
        "difference": None if found is None else found.facts,
        "no_difference": why_none(a, b) if found is None else None,
        "config": _differences(a.config, b.config),
        "code": _differences(_code(a), _code(b)) if a.code and b.code else None,
        "columns": _columns(a, b, changed),
        "data": _data(a, b),
    }
    ending = compared_ending(a, b, value)
    value = {"summary": ending.headline, **value}
    return Compared(registry.name, registry.store, a, b, found, value, ending, changed)


def _code(side: Side) -> dict[str, Any]:
    """The commit, files that differ from it, the user's modules and the tools' versions."""
    git = side.code.get("git") or {}
    told = {"commit": git.get("commit"), "not committed": ", ".join(git.get("changed") or []) or None}
    return told | dict(side.code.get("modules") or {}) | dict(side.code.get("tools") or {})


def _differences(a: Any, b: Any, at: str = "") -> list[dict[str, Any]]:
    """Return [{key, a, b}] for each leaf of two configs that differs; None stands for a key that one lacks."""
    if a is None and b is None and not at:
        return []
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        names = [*a, *(name for name in b if name not in a)]
        below = (_differences(a.get(n, _ABSENT), b.get(n, _ABSENT), f"{at}.{n}".lstrip(".")) for n in names)
        return [difference for found in below for difference in found]
    if a == b:
        return []
    return [{"key": at, "a": None if a is _ABSENT else a, "b": None if b is _ABSENT else b}]


def _both_columns(a: Side, b: Side) -> tuple[Columns, Columns] | None:
    """The columns of the models of two versions, else those that were stored; None where they are not known."""
    if a.inputs is not None and b.inputs is not None:
        return a.inputs, b.inputs
    stored_a, stored_b = a.stored_columns(), b.stored_columns()
    return None if stored_a is None or stored_b is None else (stored_a, stored_b)


def _changed(a: Side, b: Side) -> dict[str, str]:
    mine, theirs = _both_columns(a, b) or ({}, {})
    both = [name for name in mine if name in theirs and mine[name] != theirs[name]]
    return {name: _change(mine[name], theirs[name]) for name in both}


def _columns(a: Side, b: Side, changed: Mapping[str, str]) -> dict[str, list[str]] | None:
    if (known := _both_columns(a, b)) is None:
        return None
    mine, theirs = known
    return {"only_a": sorted(mine.keys() - theirs.keys()), "only_b": sorted(theirs.keys() - mine.keys())} | {
        "changed": [f"{name}: {change}" for name, change in changed.items()]
    }


def _change(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """The types of a column, else what of it differs."""
    if mine["type"] != theirs["type"]:
        return f"{mine['type']} -> {theirs['type']}"
    pairs = [(key, mine.get(key), theirs.get(key)) for key in {**mine, **theirs}]
    return ", ".join(
        f"{key} changed" if isinstance(a, Mapping) or isinstance(b, Mapping) else f"{key} {a} -> {b}"
        for key, a, b in pairs
        if a != b
    )


def _data(a: Side, b: Side) -> dict[str, list[str]]:
    """Return the training spans that only one side has, and those whose raw files changed in between."""
    mine, theirs = a.facts["spans"]["train"], b.facts["spans"]["train"]
    known = a.files and b.files
    both = [span for span in mine if span in theirs] if known else []
    return {
        "only_a": [span for span in mine if span not in theirs],
        "only_b": [span for span in theirs if span not in mine],
        "files_changed": [span for span in both if a.files.get(span) != b.files.get(span)],
    }
