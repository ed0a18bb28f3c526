"""Watches the source: a new span that is complete starts exactly one retrain, however many watchers there are.

    found = landed(config, watch, seen={}, now=time.time())
    found.complete, found.waiting            # ["2013-05"], {"2013-06": "its files changed 40 s ago"}

    look(run_spec, start=..., note=print)    # {"state": "started", "until": "2013-05", ...}

A span is complete once its done file is there, or, without one, once its files have not changed for a while. What has been
started is written to the store (watch/<pipeline>.json) under a lock before it starts, so that of two watchers one acts, and
one that was killed is followed by another that goes on with the same. Spans before the last one that was trained on are never
new: `headway backfill` is for those.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from flows.config.production import WatchConfig
from flows.dag.run_spec import RunSpec
from flows.records import records
from headway.errors import ConfigError, DataError, Locked
from headway.messages import duration, now
from headway.sources.config import SourceConfig
from headway.sources.discovery.spans import paths_of, patterns, spans
from headway.storage import filesystem
from headway.storage.store import Store

MOST_ATTEMPTS = 3
"""How often a retrain is started anew that was cancelled, or whose process died."""
Outcome = Literal["running", "done", "failed", "gone", "unknown"]
"""Of a retrain. gone: it was cancelled or its process died, so it is started again; unknown: its watcher died before it could
say what it started, so the same is started again."""
Signature = list[list[Any]]
"""(path, bytes, time of its last change) of each file of a span."""


@dataclass
class Landed:
    """The spans of a source."""

    complete: list[str] = field(default_factory=list)
    waiting: dict[str, str] = field(default_factory=dict)
    """By span: what it waits for."""
    seen: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By span that waits: its files, and since when they have looked like that."""


def landed(
    source: SourceConfig, config: WatchConfig, *, seen: Mapping[str, Mapping[str, Any]], now: float, after: str = ""
) -> Landed:
    """Sort the spans of a source into those that are complete and those that are not yet.

    Args:
        seen: `Landed.seen` of the look before, for files whose times lie in the future.
        now: seconds since 1970, by the store's clock: those of the machines that watch may differ.
        after: spans up to this one are left out.

    Raises:
        ConfigError: no file matches.
    """
    found = Landed()
    quiet = config.quiet_minutes * 60
    for span in spans(source):
        if span <= after:
            continue
        if config.done is not None:
            marked = source.model_copy(update={"path": config.done})
            if any(filesystem.matches(pattern) for pattern in patterns(marked, span)):
                found.complete.append(span)
            else:
                found.waiting[span] = f"{next(iter(patterns(marked, span)))} is not there yet"
            continue
        files = _signature(source, span)
        before = seen.get(span, {})
        since = before["since"] if before.get("files") == files else now
        newest = max(changed for _, _, changed in files)
        # a clock that is ahead of ours: then what counts is how long we have seen the files as they are
        age = now - (newest if newest <= now else since)
        if age >= quiet:
            found.complete.append(span)
        else:
            found.waiting[span] = (
                f"its files changed {duration(max(age, 0))} ago, and {duration(quiet)} have to be quiet"
            )
            found.seen[span] = {"files": files, "since": since}
    return found


def _signature(source: SourceConfig, span: str) -> Signature:
    return [[path, *filesystem.size_and_time(path)] for path in paths_of(source, span)]


def file_of(store: Store, pipeline: str) -> Path:
    """The file that holds what a pipeline's watchers know."""
    return store.root / "watch" / f"{pipeline}.json"


def read_state(store: Store, path: Path) -> dict[str, Any]:
    """What the file holds; nothing when it does not exist or is damaged."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        value = json.loads(store.read(path))
        return value if isinstance(value, dict) else {}
    return {}


def trained_up_to(run_spec: RunSpec) -> str:
    """The last span that a whole run of the pipeline was about; "" when there was none."""
    name = run_spec.loaded.pipeline.name
    if not run_spec.store.exists():
        return ""
    champion = run_spec.registry.champion()
    ends = [spans_of[-1] for spans_of in ([] if champion is None else [champion.facts.get("spans") or [""]])]
    for run in records(run_spec.store):
        whole = run.last is None and run.state not in ("running", "failed", "cancelled", "overtaken")
        if whole and run.pipeline == name and run.spans:
            ends.append(run.spans[-1])
    return max(ends, default="")


def look(
    run_spec: RunSpec,
    *,
    start: Callable[[str, int], str | None],
    outcome: Callable[[str | None, str], Outcome],
    note: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Look once, and start a retrain if a new span is complete.

    Args:
        start: starts the retrain up to a span, with the number of the attempt; called again with the same two it must not
            start another. Returns an id to ask for later; None when the retrain has ended by then.
        outcome: how the retrain with this id, up to this span, stands; of None how the one stands that was to be started when
            its watcher died.

    Returns:
        state ("nothing new", "started", "running", "failed", "busy": another watcher is at it), until, attempt, id, complete
        (the new spans that are), waiting (what others wait for).

    Raises:
        ConfigError: the source has one span only, so that none can be new.
        what `start` raises: a DataError of the retrain is remembered, so that the same span is not tried for ever; after
            any other error the next look starts the same again.
    """
    store, name = run_spec.store, run_spec.loaded.pipeline.name
    if not run_spec.loaded.pipeline.source.has_spans:
        raise ConfigError(
            "all files are one span, so none can be new",
            where=f"{run_spec.loaded.file}: source.path",
            fix="write {span} or {year}/{month} where the names of the files differ; or retrain by schedule.retrain",
        )
    store.create()
    lock = store.lock(f"watch-{name}", {"command": "watch"})
    try:
        lock.acquire()
    except Locked as error:
        return {"state": "busy", "until": None, "complete": [], "waiting": {}, "message": error.problem}
    try:
        return _Look(run_spec, start, outcome, note).result()
    finally:
        lock.release()


class _Look:
    def __init__(
        self,
        run_spec: RunSpec,
        start: Callable[[str, int], str | None],
        outcome: Callable[[str | None, str], Outcome],
        note: Callable[[str], None],
    ):
        self._spec, self._start, self._outcome, self._note = run_spec, start, outcome, note
        self._file = file_of(run_spec.store, run_spec.loaded.pipeline.name)
        self._state = read_state(run_spec.store, self._file)

    def result(self) -> dict[str, Any]:
        pending = self._state.get("pending")
        if pending is not None:
            stands = self._outcome(pending.get("id"), pending["until"])
            if stands == "running":
                return {"state": "running", **pending, "complete": [], "waiting": {}}
            if stands == "unknown" or (stands == "gone" and pending["attempt"] < MOST_ATTEMPTS):
                attempt = pending["attempt"] + (stands == "gone")
                self._note(f"the retrain up to {pending['until']} ended without a result: starting it again")
                return self._begin(pending["until"], attempt) | {"complete": [pending["until"]], "waiting": {}}
            self._settle(pending["until"], "failed" if stands == "gone" else stands)
        pipeline = self._spec.loaded.pipeline
        after = max(self._state.get("handled", ""), trained_up_to(self._spec))
        found = landed(
            pipeline.source, pipeline.watch, seen=self._state.get("seen", {}), now=self._spec.store.clock(), after=after
        )
        self._save(seen=found.seen)
        fresh: list[str] = []
        for span in sorted([*found.complete, *found.waiting]):
            if span in found.waiting:
                break  # a later span would train on this one, which is not whole
            fresh.append(span)
        about: dict[str, Any] = {"complete": fresh, "waiting": found.waiting}
        if not fresh:
            return {"state": "nothing new", "until": after or None, **about}
        return self._begin(fresh[-1], 1) | about

    def _begin(self, until: str, attempt: int) -> dict[str, Any]:
        pending = {"until": until, "attempt": attempt, "id": None, "since": now()}
        self._save(pending=pending)  # first: a watcher that dies now is followed by one that starts the same
        try:
            pending["id"] = self._start(until, attempt)
        except Locked:
            raise  # another run of the pipeline is going on: tried again at the next look
        except DataError:
            self._settle(until, "failed")
            raise
        if pending["id"] is None:
            self._settle(until, "done")
        else:
            self._save(pending=pending)
        return {"state": "started", **pending}

    def _settle(self, until: str, outcome: Outcome) -> None:
        self._state.pop("pending", None)
        self._save(handled=until, outcome=outcome)
        if outcome == "failed":
            self._note(f"the retrain up to {until} failed; the next new span starts another, or start it by hand")

    def _save(self, **facts: Any) -> None:
        self._state |= facts
        self._spec.store.replace(self._file, json.dumps(self._state, indent=1) + "\n")
