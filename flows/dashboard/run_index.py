"""The runs of a store, read once each: what lists and charts need of a record, kept while the record cannot change.

index = RunIndex(store)
index.runs()                  # newest first, a running one with its true state
index.problems()              # what lies in runs/ and is not a run's record
"""

from __future__ import annotations

import functools
import json
import threading
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from flows.records import settled
from headway.storage.object_store import each
from headway.storage.store import Store

_LISTED = (
    "run",
    "pipeline",
    "state",
    "started",
    "seconds",
    "spans",
    "version",
    "alias",
    "last",
    "error",
    "seen",
    "file",
)
_Name = Annotated[str, Field(pattern=r"^([^./\\\x00][^/\\\x00]*)?$")]
"""What becomes part of a path: a record of somebody else's must not lead out of the store."""


class _Stage(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)

    stage: _Name
    title: str
    fingerprint: _Name
    cached: bool
    seconds: float = 0.0
    why: str | None = None


class _Verdict(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)

    verdict: str
    promote: bool
    reasons: list[str] = []
    primary: str | None = None


class _Judged(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)

    version: int
    alarms: list[str] = []


class RunRecord(BaseModel):
    """What a page relies on in runs/<run>.json."""

    model_config = ConfigDict(extra="allow", strict=True)

    run: _Name
    pipeline: _Name
    state: str
    started: str
    seconds: float = 0.0
    file: str | None = None
    last: str | None = None
    spans: list[str] | None = None
    stages: list[_Stage] = []
    verdict: _Verdict | None = None
    metrics: dict[str, Any] | None = None
    baselines: dict[str, dict[str, Any]] | None = None
    champion: _Judged | None = None
    version: int | None = None
    alias: str | None = None
    seen: str | None = None
    error: str | None = None
    warnings: list[str] = []
    notes: list[str] = []


class RunIndex:
    """The runs of one store. Used by several threads."""

    def __init__(self, store: Store):
        self.store = store
        self._ended: dict[str, dict[str, Any]] = {}
        self._guard = threading.Lock()
        self._problems: list[tuple[str, str]] = []

    def runs(self) -> list[dict[str, Any]]:
        """Every run, newest first: what lists show of its record."""
        with self._guard:
            files = [
                name
                for name in self.store.children(self.store.runs_folder)
                if name.endswith(".json") and not name.startswith(".")
            ]
            unread = [name for name in files if name not in self._ended]
            found, problems = {}, []
            read = each(self._read, unread) if "://" in self.store.name else map(self._read, unread)
            for name, record in zip(unread, read, strict=True):
                if isinstance(record, str):
                    problems.append((f"runs/{name}", record))
                else:
                    found[name] = _listed(record)
            # a record is not written again once its run has ended
            self._ended = {name: self._ended[name] for name in files if name in self._ended}
            self._ended |= {name: record for name, record in found.items() if record["state"] != "running"}
            self._problems = problems
            known = self._ended | found
            owner = functools.cache(lambda pipeline: self.store.lock(f"run-{pipeline}").owner())
            clock = functools.cache(self.store.clock)
            return [
                settled(known[name], owner(known[name]["pipeline"]), clock())
                if known[name]["state"] == "running"
                else known[name]
                for name in reversed(files)
                if name in known
            ]

    def known(self, run: object) -> dict[str, Any] | None:
        """A run that has ended, as the last `runs` read it."""
        return self._ended.get(f"{run}.json")

    def problems(self) -> list[tuple[str, str]]:
        """(file, problem) of what `runs` passed over."""
        return list(self._problems)

    def record(self, run: str) -> dict[str, Any] | None:
        """The whole record of a run, with its true state; None where there is none of this name, or it is damaged."""
        name = f"{run}.json"
        # a name is looked for among those that are there, and never made into a path
        if name not in self.store.children(self.store.runs_folder) or name.startswith("."):
            return None
        record = self._read(name)
        if isinstance(record, str):
            return None
        if record["state"] == "running":
            record = settled(record, self.store.lock(f"run-{record['pipeline']}").owner(), self.store.clock())
        return record

    def _read(self, name: str) -> dict[str, Any] | str:
        """A record, or what is wrong with it."""
        path = self.store.runs_folder / name
        if _leads_out(self.store, path):
            return "is a link that leads out of the store"
        try:
            value = json.loads(self.store.read(path))
            checked = RunRecord.model_validate(value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            return f"is not a run's record: {place or 'it'}: {first['msg'].lower()}"
        except ValueError:
            return "is not JSON"
        except OSError as error:
            return f"cannot be read: {error.strerror or error}"
        if name != f"{checked.run}.json":
            return f"is the record of run {checked.run}, under another name"
        return {"seconds": 0.0, "stages": [], **value, "spans": checked.spans or []}


def _leads_out(store: Store, path: Path) -> bool:
    """Whether a record is a link to something outside of the store, or to nothing."""
    return path.is_symlink() and not (path.exists() and path.resolve().is_relative_to(store.root.resolve()))


def _listed(record: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a record: the whole of it, config and columns, would be tens of kilobytes for each run."""
    kept = {name: record[name] for name in _LISTED if name in record}
    verdict = record.get("verdict") or {}
    kept["verdict"] = {name: verdict[name] for name in ("verdict", "promote", "primary") if name in verdict}
    return kept | {
        "metrics": {k: v for k, v in (record.get("metrics") or {}).items() if isinstance(v, int | float)},
        "champion": record.get("champion"),
        "steps": len(record["stages"]),
        "ran": sum(not stage["cached"] for stage in record["stages"]),
        "ingested": {
            stage["title"].removeprefix("ingest "): stage["fingerprint"]
            for stage in record["stages"]
            if stage["stage"] == "ingest"
        },
    }
