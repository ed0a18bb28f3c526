"""The files in which the watchers of a pipeline keep what they know: monitor/<pipeline>.json and watch/<pipeline>.json.

state = MonitorState.of(store, "flights")            # an empty one where there is none, or it is damaged
state.checked[-1].span, state.checked[-1].alarms
state.save(store, "flights")
"""

from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, field_validator

from headway.config import Result
from headway.storage.store import Store


class _StateFile(Result):
    folder: ClassVar[str]

    @classmethod
    def path(cls, store: Store, pipeline: str) -> Path:
        return store.root / cls.folder / f"{pipeline}.json"

    @classmethod
    def load(cls, store: Store, pipeline: str) -> Self:
        """Read the file.

        Raises:
            ValueError: it is damaged, or holds something else.
        """
        try:
            return cls.model_validate_json(store.read(cls.path(store, pipeline)))
        except FileNotFoundError:
            return cls()

    @classmethod
    def of(cls, store: Store, pipeline: str) -> Self:
        """Read the file; a damaged one counts as none."""
        try:
            return cls.load(store, pipeline)
        except ValueError:
            return cls()

    def save(self, store: Store, pipeline: str) -> None:
        store.replace(self.path(store, pipeline), self.model_dump_json(indent=1, exclude_none=True) + "\n")


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


class _Findings(_StateFile):
    champion: int | None = None
    spans: dict[str, CheckedSpan] = Field(default={})


class MonitorState(_Findings):
    """What `headway monitor` found of the champion, and of those before it."""

    folder = "monitor"

    earlier: tuple[_Findings, ...] = ()

    @property
    def checked(self) -> list[CheckedSpan]:
        """By champion as they came, then by span."""
        return [
            found.model_copy(update={"champion": past.champion, "span": span})
            for past in (*self.earlier, self)
            if past.champion is not None
            for span, found in sorted(past.spans.items())
        ]

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


class Pending(Result):
    """A retrain that a watcher has started."""

    until: str
    attempt: int = 1
    id: str | None = None
    """Of its flow run; None: it has none, or its watcher died before it knew."""
    since: str = ""
    clock: float = 0.0
    """The same by the store's clock."""


class SeenFiles(Result):
    """The files of a span that waits, and since when they have looked like that."""

    files: list[tuple[str, int, float]]
    """(path, bytes, time of its last change) of each."""
    since: float


class WatchState(_StateFile):
    """What the watchers of new spans have started and seen."""

    folder = "watch"

    pending: Pending | None = None
    handled: str = ""
    """Up to this span nothing is new."""
    outcome: str | None = None
    """Of the last retrain."""
    seen: dict[str, SeenFiles] = Field(default={})
