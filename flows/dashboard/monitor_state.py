"""What `headway monitor` found and `headway watch` knows of a pipeline, from the store's folders monitor/ and watch/.

found = checked_spans(store, "flights")
found.rows[-1].span, found.rows[-1].alarms, found.problem
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from headway.storage.store import Store


class _Span(BaseModel):
    model_config = ConfigDict(extra="ignore")

    rows: int | None = None
    drift: list[str] = []
    distances: dict[str, float] = {}
    scored: int | None = None
    metrics: dict[str, Any] = {}
    decay: list[str] = []
    checked: str = ""

    @field_validator("metrics")
    @classmethod
    def _numbers(cls, value: dict[str, Any]) -> dict[str, Any]:
        return {name: number for name, number in value.items() if isinstance(number, int | float)}


class _Champion(BaseModel):
    model_config = ConfigDict(extra="ignore")

    champion: int | None = None
    spans: dict[str, _Span] = {}


class _State(_Champion):
    earlier: list[_Champion] = []


class CheckedSpan(_Span):
    """A span as it was held against one champion."""

    champion: int
    span: str

    @property
    def alarms(self) -> list[str]:
        return [*self.drift, *self.decay]


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
        state = _State.model_validate(value or {})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        return Checked(problem=f"monitor/{pipeline}.json is not what monitor writes: {where}: {first['msg'].lower()}")
    rows = [
        CheckedSpan(champion=past.champion, span=span, **facts.model_dump())
        for past in (*state.earlier, state)
        if past.champion is not None
        for span, facts in sorted(past.spans.items())
    ]
    return Checked(rows)


def waiting_spans(store: Store, pipeline: str) -> list[str]:
    """Sentences on what `headway watch` waits for or has started."""
    value = _json(store, store.root / "watch" / f"{pipeline}.json")
    if isinstance(value, str):
        return [f"watch/{pipeline}.json {value}"]
    state = value or {}
    pending, seen, handled = state.get("pending"), state.get("seen"), state.get("handled")
    said = [f"headway watch has handled everything up to {handled}."] if isinstance(handled, str) else []
    if isinstance(pending, dict):
        said.append(f"It has started a retrain up to {pending.get('until')}, attempt {pending.get('attempt')}.")
    if isinstance(seen, dict) and seen:
        said.append(f"It waits for {', '.join(map(str, seen))} to be complete.")
    return said


def _json(store: Store, path: Path) -> dict[str, Any] | str | None:
    """A JSON object; None where there is no such file; a text says what is wrong with it."""
    try:
        value = json.loads(store.read(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return "is damaged"
    return value if isinstance(value, dict) else "is damaged"
