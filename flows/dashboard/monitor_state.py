"""What `headway monitor` found and `headway watch` knows of a pipeline, from the store's folders monitor/ and watch/.

found = checked_spans(store, "flights")
found.rows[-1].span, found.rows[-1].alarms, found.problem
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError, field_validator

from flows.records import problem_of
from headway.storage.store import Store


class CheckedSpan(BaseModel):
    """A span as it was held against one champion."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    champion: int = 0
    span: str = ""
    rows: int | None = None
    drift: list[str] = []
    distances: dict[str, float] = {}
    scored: int | None = None
    """Rows with a label."""
    metrics: dict[str, float] = {}
    decay: list[str] = []
    checked: str = ""

    @field_validator("metrics", mode="before")
    @classmethod
    def _numbers(cls, value: object) -> object:
        return {k: v for k, v in value.items() if isinstance(v, int | float)} if isinstance(value, dict) else value

    @property
    def alarms(self) -> list[str]:
        return [*self.drift, *self.decay]


class _Kept(BaseModel):
    """What monitor keeps of a champion, and of those before it."""

    champion: int | None = None
    spans: dict[str, CheckedSpan] = {}
    earlier: list[_Kept] = []


@dataclass(frozen=True)
class Checked:
    rows: list[CheckedSpan] = field(default_factory=list)
    """By champion as they came, then by span."""
    problem: str | None = None
    """Why what monitor found cannot be shown."""


def checked_spans(store: Store, pipeline: str) -> Checked:
    """Everything that monitor found of a pipeline's champions."""
    value = _json(store, store.root / "monitor" / f"{pipeline}.json")
    if isinstance(value, str):
        return Checked(problem=f"monitor/{pipeline}.json {value}; headway monitor makes it anew")
    try:
        kept = _Kept.model_validate(value or {})
    except ValidationError as error:
        return Checked(problem=f"monitor/{pipeline}.json is not what monitor writes: {problem_of(error)}")
    return Checked(
        [
            found.model_copy(update={"champion": past.champion, "span": span})
            for past in (*kept.earlier, kept)
            if past.champion is not None
            for span, found in sorted(past.spans.items())
        ]
    )


def waiting_spans(store: Store, pipeline: str) -> list[str]:
    """Sentences on what `headway watch` waits for or has started."""
    value = _json(store, store.root / "watch" / f"{pipeline}.json")
    if isinstance(value, str):
        return [f"watch/{pipeline}.json {value}"]
    pending, seen, handled = ((value or {}).get(name) for name in ("pending", "seen", "handled"))
    said = [f"headway watch has handled everything up to {handled}."] if isinstance(handled, str) else []
    if isinstance(pending, dict):
        said.append(f"It has started a retrain up to {pending.get('until')}, attempt {pending.get('attempt')}.")
    if isinstance(seen, dict) and seen:
        said.append(f"It waits for {', '.join(map(str, seen))} to be complete.")
    return said


def _json(store: Store, path: Path) -> Mapping[str, JsonValue] | str | None:
    """A JSON object; None where there is no such file; a text says what is wrong with it."""
    try:
        value = json.loads(store.read(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return "is damaged"
    return value if isinstance(value, dict) else "is damaged"
