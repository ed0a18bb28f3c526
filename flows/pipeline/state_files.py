"""The file in which `headway monitor` keeps what it knows of a pipeline's champions: monitor/<pipeline>.json.

state = MonitorState.of(store, "flights")            # an empty one where there is none, or it is damaged
state.spans["2013-05"].alarms
state.save(store, "flights")
"""

from pathlib import Path
from typing import Self

from pydantic import Field, field_validator

from headway.config import Result
from headway.storage.store import Store


class CheckedSpan(Result):
    """A span as it was held against one champion."""

    span: str = ""
    champion: int = 0
    rows: int | None = None
    """None: drift could not be checked."""
    drift: tuple[str, ...] = ()
    distances: dict[str, float] = Field(default={})
    """By column, the furthest first."""
    scored: int | None = None
    """Rows with a label; None: none has one yet."""
    metrics: dict[str, float] = Field(default={})
    decay: tuple[str, ...] = ()
    checked: str = ""
    """When."""

    @field_validator("metrics", mode="before")
    @classmethod
    def _numbers(cls, value: object) -> object:
        return {k: v for k, v in value.items() if isinstance(v, int | float)} if isinstance(value, dict) else value

    @property
    def alarms(self) -> tuple[str, ...]:
        return *self.drift, *self.decay


class _Findings(Result):
    champion: int | None = None
    spans: dict[str, CheckedSpan] = Field(default={})


class MonitorState(_Findings):
    """What `headway monitor` found of the champion, and of those before it: one that comes back is not told of again."""

    earlier: tuple[_Findings, ...] = ()

    @staticmethod
    def path(store: Store, pipeline: str) -> Path:
        return store.root / "monitor" / f"{pipeline}.json"

    @classmethod
    def of(cls, store: Store, pipeline: str) -> Self:
        """Read the file; a damaged one counts as none."""
        try:
            return cls.model_validate_json(store.read(cls.path(store, pipeline)))
        except (FileNotFoundError, ValueError):
            return cls()

    def save(self, store: Store, pipeline: str) -> None:
        store.replace(self.path(store, pipeline), self.model_dump_json(indent=1, exclude_none=True) + "\n")

    def watching(self, champion: int, *, keep: int) -> "MonitorState":
        """The same with another champion, or one that came back.

        Args:
            keep: the findings of so many champions before it, the last ones.
        """
        found = [*self.earlier, _Findings(champion=self.champion, spans=self.spans)]
        spans: dict[str, CheckedSpan] = {}
        for past in found:
            spans |= past.spans if past.champion == champion else {}
        earlier = [past for past in found if past.spans and past.champion != champion][-keep:]
        return MonitorState(champion=champion, spans=spans, earlier=tuple(earlier))
