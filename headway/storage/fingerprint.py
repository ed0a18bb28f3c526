"""Fingerprints: an output's name is the hash of everything that went into it.

    fingerprint({"stage": "train", "version": 1, "config": {...}, "inputs": {...}})      # 32 hex digits
    str(first_difference(old, new))          # "config.learning_rate: 0.001 -> 0.002"

Keys are plain JSON. They hold no pickles and no times, and instead of a path a checksum where possible.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from headway.config import Result
from headway.messages import short
from headway.redaction import redact

Key = dict[str, Any]


def canonical(key: Any) -> str:
    """Returns a value as JSON with sorted keys and no spaces. A value gives the same text on every machine; 1 and 1.0 differ."""
    return json.dumps(key, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def fingerprint(key: Key) -> str:
    """Returns the first 128 bits of the SHA-256 of the canonical JSON, as 32 hex digits."""
    return hashlib.sha256(canonical(key).encode()).hexdigest()[:32]


class Difference(Result):
    """The reason why a step must run: the first difference between its key and that of the most similar stored output."""

    kind: Literal["value", "entries", "new", "gone", "order", "never run", "damaged", "follows"]
    """value: a value differs. entries: a list's length differs. new, gone: only one key has the entry. order: files have another
    order. never run: no output yet. damaged: the output is damaged. follows: the step reads from steps that have not run yet."""
    place: tuple[str, ...] = ()
    """The path to the difference within the key, outermost name first. A list's entry is shown by its index, or by the
    path of its file, in brackets."""
    old: str = ""
    """The value in the old output's key, shortened; for the kind "entries", the number of entries."""
    new: str = ""
    """The value in the new key, shortened; for the kind "entries", the number of entries; for "damaged", the damage."""

    def __str__(self) -> str:
        at = "".join(name if name.startswith("[") else f".{name}" for name in self.place).removeprefix(".")
        match self.kind:
            case "value":
                return f"{at}: {self.old} -> {self.new}"
            case "entries":
                return f"{at}: {self.old} entries -> {self.new}"
            case "order":
                return f"{at}: another order"
            case "damaged":
                return self.new
            case "never run":
                return "never run"
            case "follows":
                return "it reads what the steps above write"
        return f"{at} is {self.kind}"


NEVER_RUN = Difference(kind="never run")
FOLLOWS = Difference(kind="follows")


def first_difference(old: Key, new: Key) -> Difference | None:
    """Returns the first difference of two keys; None exactly when their fingerprints are equal.

    Entries are compared in the order of `new`. In a list, files (entries with a "path") are matched and named by their path,
    and other entries by their index.
    """
    # through JSON, so that a key from a manifest (lists) equals the same key fresh from a config (tuples)
    return _difference(json.loads(json.dumps(old)), json.loads(json.dumps(new)), ())


def _difference(old: Any, new: Any, at: tuple[str, ...]) -> Difference | None:
    if canonical(old) == canonical(new):  # not ==, for which 1, 1.0 and true are one
        return None
    listed = isinstance(old, list) and isinstance(new, list)
    if listed:
        if (by_path := _by_path(old)) is not None and (other := _by_path(new)) is not None:
            old, new = by_path, other
        elif len(old) != len(new):
            return Difference(kind="entries", place=at, old=str(len(old)), new=str(len(new)))
        else:
            old, new = dict(enumerate(old)), dict(enumerate(new))
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*new, *(n for n in old if n not in new)]:
            where = (*at, f"[{name}]" if listed else name)
            if name not in old or name not in new:
                return Difference(kind="new" if name in new else "gone", place=where)
            if difference := _difference(old[name], new[name], where):
                return difference
        return Difference(kind="order", place=at)
    return Difference(kind="value", place=at, old=_short(old), new=_short(new))


def _by_path(entries: list[Any]) -> dict[str, Any] | None:
    """Returns a list's entries by their "path"; None when an entry has no path, or a path occurs twice."""
    if not all(isinstance(entry, dict) and isinstance(entry.get("path"), str) for entry in entries):
        return None
    by_path = {entry["path"]: entry for entry in entries}
    return by_path if len(by_path) == len(entries) else None


def _short(value: Any) -> str:
    return short(redact(json.dumps(value) if not isinstance(value, str) else value), 40)


def equal_leaves(old: Key, new: Key) -> int:
    """Returns the number of equal leaf values in two nested keys. `Store.nearest` takes this number as their similarity."""
    if isinstance(old, dict) and isinstance(new, dict):
        return sum(equal_leaves(old[name], new[name]) for name in old.keys() & new.keys())
    if isinstance(old, list | tuple) and isinstance(new, list | tuple):
        return sum(equal_leaves(a, b) for a, b in zip(old, new, strict=False))
    return int(old == new)


def texts(value: Any) -> Iterator[str]:
    """Yields every string value in nested dicts and lists, such as fingerprints. The names in dicts are left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from texts(part)
