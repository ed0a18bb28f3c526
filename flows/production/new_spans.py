"""Watches the source: a new span that is complete starts exactly one retrain, however many watchers there are.

    found = landed(config, watch, seen={}, now=time.time())
    found.complete, found.waiting            # ["2013-05"], {"2013-06": "its files changed 40 s ago"}

    look(run_spec, report, start=..., ask=...).state                # "started"

A span is complete once its done file is there, or, without one, once its files have not changed for a while. What has been
started is written to the store (watch/<pipeline>.json) under a lock before it starts, so that of two watchers one acts, and
one that was killed is followed by another that goes on with the same. Spans before the last one that was trained on are never
new: `headway backfill` is for those.

A watcher waits for a retrain only while it lives: its flow run does, by the server, and its process does, by the lease of the
lock that it holds in the store.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from flows.config.production import WatchConfig
from flows.dag.run_spec import RunSpec
from flows.execution.run import run_name
from flows.production.state_files import Pending, SeenFiles, WatchState
from flows.progress.reporter import Reporter
from flows.records import RunRecord, State, records, runs_of
from headway.config import Frozen
from headway.errors import ConfigError, DataError, Locked
from headway.messages import duration, now
from headway.sources.config import SourceConfig
from headway.sources.discovery.spans import paths_of, patterns, spans
from headway.storage import filesystem
from headway.storage.locks import gone

MOST_ATTEMPTS = 3
"""How often a retrain is started anew that was cancelled, or whose process died."""
SILENT_SECONDS = 900.0
"""How long a retrain without a sign of life in the store is waited for, where no server says how its flow run stands."""
Outcome = Literal["queued", "running", "done", "failed", "gone", "unknown"]
"""Of a retrain. gone: it was cancelled or its process died, so it is started again; unknown: its watcher died before it could
say what it started, so the same is started again."""
Start = Callable[[str, int], str | None]
Ask = Callable[[str | None], Outcome | None]
_OUTCOMES: dict[State, Outcome] = {
    State.RUNNING: "running",
    State.FAILED: "failed",
    State.OVERTAKEN: "failed",
    State.CANCELLED: "gone",
    State.KILLED: "gone",
}
"""Of a retrain by its run's record; others have come to a verdict."""


@dataclass
class Landed:
    """The spans of a source."""

    complete: list[str] = field(default_factory=list)
    waiting: dict[str, str] = field(default_factory=dict)
    """By span: what it waits for."""
    seen: dict[str, SeenFiles] = field(default_factory=dict)
    """By span that waits."""


class Looked(Frozen):
    """What a look for new spans came to."""

    pipeline: str
    state: Literal["nothing new", "started", "running", "busy"]
    """busy: another watcher is at it."""
    until: str | None = None
    attempt: int | None = None
    id: str | None = None
    """Of the retrain's flow run, where it is one."""
    since: str | None = None
    complete: tuple[str, ...] = ()
    """The new spans that are."""
    waiting: dict[str, str] = Field(default={})
    """By span: what it waits for."""
    message: str | None = None
    run: RunRecord | None = None
    """The retrain, where the watcher itself has run it."""

    @property
    def sentence(self) -> str:
        of_run = f" (flow run {self.id})" if self.id else ""
        match self.state:
            case "started":
                return f"started a retrain up to {self.until}{of_run}" if self.id else f"{self.until} was new"
            case "running":
                return f"the retrain up to {self.until} goes on{of_run}"
            case "busy":
                return f"another watcher is at it: {self.message}"
        return f"nothing new after {self.until}" if self.until else "nothing is complete yet"

    @property
    def waits(self) -> list[str]:
        return [f"{span} waits: {why}" for span, why in self.waiting.items()]


def landed(
    source: SourceConfig, config: WatchConfig, *, seen: Mapping[str, SeenFiles], now: float, after: str = ""
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
        files = [(path, *filesystem.size_and_time(path)) for path in paths_of(source, span)]
        before = seen.get(span)
        since = before.since if before is not None and before.files == files else now
        newest = max(changed for _, _, changed in files)
        # a clock that is ahead of ours: then what counts is how long we have seen the files as they are
        age = now - (newest if newest <= now else since)
        if age >= quiet:
            found.complete.append(span)
        else:
            found.waiting[span] = (
                f"its files changed {duration(max(age, 0))} ago, and {duration(quiet)} have to be quiet"
            )
            found.seen[span] = SeenFiles(files=files, since=since)
    return found


def trained_up_to(run_spec: RunSpec) -> str:
    """The last span that a whole run of the pipeline was about; "" when there was none."""
    name = run_spec.loaded.pipeline.name
    if not run_spec.store.exists():
        return ""
    champion = run_spec.registry.champion()
    ends = [] if champion is None else [(champion.facts.get("spans") or [""])[-1]]
    for run in records(run_spec.store):
        whole = run.last is None and run.state not in ("running", "failed", "cancelled", "overtaken")
        if whole and run.pipeline == name and run.spans:
            ends.append(run.spans[-1])
    return max(ends, default="")


def look(run_spec: RunSpec, report: Reporter, *, start: Start, ask: Ask) -> Looked:
    """Look once, and start a retrain if a new span is complete.

    Args:
        start: starts the retrain up to a span, with the number of the attempt; called again with the same two it must not
            start another. Returns an id to ask for later; None when the retrain has ended by then.
        ask: how the flow run with this id stands, by its server; None: nobody can say. Of the id None: how a retrain counts that
            was to be started when its watcher died.

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
        return Looked(pipeline=name, state="busy", message=error.problem)
    try:
        return _Look(run_spec, report, start, ask).result()
    finally:
        lock.release()


class _Look:
    def __init__(self, run_spec: RunSpec, report: Reporter, start: Start, ask: Ask):
        self._spec, self._note, self._start, self._ask = run_spec, report.note, start, ask
        self._name = run_spec.loaded.pipeline.name
        self._state = WatchState.of(run_spec.store, self._name)

    def result(self) -> Looked:
        pending = self._state.pending
        if pending is not None:
            stands = self._stands(pending)
            if stands in ("queued", "running"):
                return self._looked("running", pending)
            if stands == "unknown" or (stands == "gone" and pending.attempt < MOST_ATTEMPTS):
                self._note(f"the retrain up to {pending.until} ended without a result: starting it again")
                return self._begin(pending.until, pending.attempt + (stands == "gone"), [pending.until], {})
            self._settle(pending.until, "failed" if stands == "gone" else stands)
        pipeline = self._spec.loaded.pipeline
        after = max(self._state.handled, trained_up_to(self._spec))
        found = landed(
            pipeline.source, pipeline.watch, seen=self._state.seen, now=self._spec.store.clock(), after=after
        )
        self._save(seen=found.seen)
        # a later span would train on one that waits, which is not whole
        first = min(found.waiting, default=None)
        fresh = [span for span in found.complete if first is None or span < first]
        if not fresh:
            return Looked(pipeline=self._name, state="nothing new", until=after or None, waiting=found.waiting)
        return self._begin(fresh[-1], 1, fresh, found.waiting)

    def _stands(self, pending: Pending) -> Outcome:
        """How a retrain stands: by what was trained, by the server, and by the store, where a process that died shows."""
        if trained_up_to(self._spec) >= pending.until:
            return "done"
        asked = self._ask(pending.id)
        if asked is not None and asked != "running":
            return asked
        if (run := self._run_of(pending)) is not None:
            return _OUTCOMES.get(run.state, "done")
        store = self._spec.store
        owner, clock = store.lock(f"run-{self._name}").owner(), store.clock()
        held = owner is not None and not gone(owner, clock)
        return "gone" if asked is None and not held and clock - pending.clock > SILENT_SECONDS else "running"

    def _run_of(self, pending: Pending) -> RunRecord | None:
        """The newest run that may be a retrain which was started."""
        since = run_name(pending.clock)
        whole = (run for run in runs_of(self._spec.store) if run.pipeline == self._name and run.last is None)
        return next((run for run in whole if run.run >= since and run.spans[-1:] == (pending.until,)), None)

    def _begin(self, until: str, attempt: int, complete: list[str], waiting: dict[str, str]) -> Looked:
        pending = Pending(until=until, attempt=attempt, since=now(), clock=self._spec.store.clock())
        self._save(pending=pending)  # first: a watcher that dies now is followed by one that starts the same
        try:
            pending = pending.model_copy(update={"id": self._start(until, attempt)})
        except Locked:
            raise  # another run of the pipeline is going on: tried again at the next look
        except DataError:
            self._settle(until, "failed")
            raise
        if pending.id is None:
            self._settle(until, "done")
        else:
            self._save(pending=pending)
        return self._looked("started", pending, complete=tuple(complete), waiting=waiting)

    def _looked(self, state: Literal["started", "running"], pending: Pending, **found: Any) -> Looked:
        facts = pending.model_dump(include={"until", "attempt", "id", "since"})
        return Looked(pipeline=self._name, state=state, **facts, **found)

    def _settle(self, until: str, outcome: Outcome) -> None:
        self._save(pending=None, handled=until, outcome=outcome)
        if outcome == "failed":
            self._note(f"the retrain up to {until} failed; the next new span starts another, or start it by hand")

    def _save(self, **facts: Any) -> None:
        self._state = self._state.model_copy(update=facts)
        self._state.save(self._spec.store, self._name)
