"""The record of a run, runs/<run>.json in the store: what the run was asked for, its steps, the gate's verdict, how it ended.
Also the findings of `headway monitor` on a model, monitor/<pipeline>.json.

    record = find(store, "20261122-0354", pipeline="flights")
    record.state, record.stages[-1].title, record.verdict.checks
    history = runs_of(store)                  # newest first; a run whose process is gone says "killed"
    read_log(store, record.run)               # what it reported, runs/<run>.log
    state = MonitorFindings.of(store, "flights")  # monitor/flights.json; empty if that is missing or damaged
    state.versions[1]["2013-05"].alarms

While a run goes on, it writes its record again and again. The pipeline's next run marks a killed run's record as killed.
"""

import contextlib
import datetime
import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError

from headway.config import Result
from headway.errors import StoreError
from headway.evaluation.verdict import Metrics, Verdict
from headway.messages import amount
from headway.redaction import redacted
from headway.schema.notes import Note
from headway.stages.step import Output, find_output
from headway.storage.fingerprint import Difference
from headway.storage.locks import is_gone
from headway.storage.manifest import FORMAT, check_format
from headway.storage.store import Store

LATEST = "latest"
_Name = Annotated[str, Field(pattern=r"^([^./\\\x00][^/\\\x00]*)?$")]
"""A name that becomes part of a path, so it must not lead out of the store."""


class State(StrEnum):
    """The state of a run."""

    RUNNING = "running"
    PROMOTED = "promoted"
    ALREADY = "already champion"
    NAMED = "named"
    """The run pointed an alias at its version."""
    DONE = "done"
    """The run ended with the stage that it was asked for."""
    FAILED = "failed"
    CANCELLED = "cancelled"
    OVERTAKEN = "overtaken"
    """Somebody else promoted meanwhile."""
    KILLED = "killed"
    """Its process died."""
    KEPT = "kept"
    REJECTED = "rejected"
    NEEDS_PERSON = "needs a person"


NO_VERDICT = frozenset({State.RUNNING, State.DONE, State.FAILED, State.CANCELLED, State.OVERTAKEN, State.KILLED})
"""States of a run in which no verdict took effect."""


class StepRecord(Result):
    """A step as the record of its run keeps it: whether its output was reused, and when and why it ran."""

    stage: _Name
    title: str
    fingerprint: _Name
    cached: bool
    """Whether the step's stored output was reused."""
    span: str | None = None
    """The span that the step ingested; None: it is no ingest step."""
    seconds: float = 0.0
    at: float | None = None
    """Seconds from the start of the run until the step ended, or until its stored output was found."""
    why: Difference | None = None
    """Why the step ran: the first difference from the most similar stored output; None: it did not run."""


class Git(Result):
    commit: str
    branch: str
    changed: tuple[str, ...] = ()
    """The files that differ from the commit."""


class Code(Result):
    tools: dict[str, str] = Field(default={})
    """The versions of tools, by name."""
    modules: dict[str, str] = Field(default={})
    """The sha256 of the user's files, by path."""
    git: Git | None = None


class ResolvedSettings(Result):
    """The settings of training and model. One that pipeline.yaml leaves out is a default, or chosen by facts of the data."""

    rows: int
    says: str
    """The settings in words."""
    training: dict[str, Any] = Field(default={})
    model: dict[str, Any] = Field(default={})


class TestMetrics(Result):
    """The candidate's metrics on the test split."""

    rows: int
    metrics: Metrics


class ChampionSummary(Result):
    """The champion that the candidate was compared with."""

    version: int
    alarms: tuple[str, ...] = ()
    """Sentences on how the champion has become worse since its promotion."""
    changes: tuple[tuple[str, Any, Any], ...] = ()
    """What differs from the champion's run: (what, value then or None, value now); empty if its run has no record."""


class RunRecord(Result):
    """The record of a run: what the run was asked for, its steps, the gate's verdict, and how the run ended."""

    format: int = FORMAT
    run: _Name
    pipeline: _Name
    file: str = ""
    state: State
    started: str
    window: int | str | None = None
    until: str = "latest"
    seed: int | None = None
    force: bool = False
    last: str | None = None
    """The stage after which the run was asked to end; None: it goes on to the promotion."""
    code: Code | None = None
    config: dict[str, Any] | None = None
    """The keys of pipeline.yaml, with what --set changed."""
    stages: tuple[StepRecord, ...] = ()
    broken_off: tuple[str, ...] = ()
    """The steps that were running when the run's process died, each with how far it was."""
    spans: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    warnings: tuple[str, ...] = ()
    columns: tuple[dict[str, str], ...] = ()
    """The table of columns of a run that inferred the schema."""
    training: ResolvedSettings | None = None
    verdict: Verdict | None = None
    """The verdict in its brief form; None: the run did not reach the gate."""
    test: TestMetrics | None = None
    champion: ChampionSummary | None = None
    metrics: Metrics = Field(default={})
    """The candidate's metrics on the eval rows; the champion's, if the candidate is the champion already."""
    baselines: dict[str, Metrics] = Field(default={})
    version: int | None = None
    """The version that was promoted, named, or found to be the champion."""
    alias: str | None = None
    serving: str | int | None = None
    seen: str | None = None
    """When a run that goes on last gave a sign of life."""
    ended: str | None = None
    seconds: float = 0.0
    error: str | None = None
    report: str | None = None
    """The report's path, or its URL in a bucket."""

    @property
    def going_on(self) -> bool:
        return self.state == State.RUNNING

    @property
    def executed_steps(self) -> list[StepRecord]:
        """The steps that ran to their end; a step whose stored output was reused is left out."""
        return [step for step in self.stages if not step.cached]

    @property
    def started_count(self) -> int:
        """The number of steps that ran to their end or were broken off."""
        return len(self.executed_steps) + len(self.broken_off)

    @property
    def ingested(self) -> dict[str, str]:
        """{span: fingerprint of its ingest output}, for each span that the run ingested or found ingested."""
        return {step.span: step.fingerprint for step in self.stages if step.span is not None}

    def step(self, stage: str) -> StepRecord | None:
        """Returns the last step with the title `stage`, such as "ingest 2013-01"; else the last step of that stage; else None."""
        steps = [*reversed(self.stages)]
        titled = (step for step in steps if step.title == stage)
        return next(titled, None) or next((step for step in steps if step.stage == stage), None)

    def output(self, store: Store, stage: str) -> Output[Any] | None:
        """Returns the stored output of the step that `step(stage)` returns; None if there is no such step or output."""
        ran = self.step(stage)
        return None if ran is None else find_output(store, ran.stage, ran.fingerprint, ran.title)

    def as_json(self) -> dict[str, Any]:
        """Returns the record as runs/<run>.json has it, without secrets."""
        return dict(redacted(self.model_dump(mode="json")))

    def save(self, store: Store) -> None:
        """Write runs/<run>.json, without secrets, atomically."""
        store.replace(store.runs_folder / f"{self.run}.json", json.dumps(self.as_json(), indent=1) + "\n")


def read_record(value: object) -> RunRecord:
    """Returns the record of a run from `value`, its parsed JSON.

    Raises:
        ValidationError: the value is no record.
        StoreError: the record is in a format that this version of Headway does not read.
    """
    check_format(value, "the record of a run")
    return RunRecord.model_validate(value)


def records(store: Store) -> Iterator[RunRecord]:
    """Yields the records of all runs as they were written, newest first, without damaged ones. StoreError: another format."""
    for value in store.runs() if store.exists() else []:
        with contextlib.suppress(ValidationError):
            yield read_record(value)


def record_or_none(store: Store, run: str | None) -> RunRecord | None:
    """Returns the record of a run; None if `run` is None, or the record was removed or is damaged."""
    try:
        return None if run is None else read_record(json.loads(store.read(store.runs_folder / f"{run}.json")))
    except (OSError, ValueError):
        return None


def runs_of(store: Store) -> list[RunRecord]:
    """Returns the records of all runs, newest first; a run whose process is gone has the state killed."""
    owner, clock = functools.cache(lambda pipeline: store.lock(f"run-{pipeline}").owner()), functools.cache(store.clock)
    return [
        with_its_last_steps(store, refresh(run, owner(run.pipeline), clock())) if run.going_on else run
        for run in records(store)
    ]


def run_that_judged(runs: Iterable[RunRecord], pipeline: str, champion: int | None) -> RunRecord | None:
    """Returns the first of `runs` that is of the pipeline and compared its candidate with version `champion`; else None."""
    of = (run for run in runs if run.pipeline == pipeline and run.champion is not None)
    return next((run for run in of if run.champion and run.champion.version == champion), None)


def refresh(run: RunRecord, owner: Mapping[str, Any] | None, time: float) -> RunRecord:
    """Returns the record of an unfinished run with its time so far. If the run's process is gone, the state is killed.

    Args:
        owner: facts of the run that holds or last held the lock of the pipeline; None: there is no such run.
        time: the present time by the store's clock.
    """
    ours = owner is not None and owner.get("run") == run.run
    last: datetime.datetime | None
    if ours and not is_gone(dict(owner or {}), time):
        last, state = datetime.datetime.now(datetime.UTC), State.RUNNING
    else:
        # the lease's last sign of life, or the last stage that it wrote down
        renewed = (owner or {}).get("renewed") if ours else None
        last, state = _time(renewed) or _time(run.seen) or _time(run.started), State.KILLED
    began = _time(run.started)
    seconds = max(0.0, (last - began).total_seconds()) if last and began else 0.0
    return run.model_copy(update={"state": state, "seconds": max(round(seconds, 3), run.seconds)})


def with_its_last_steps(store: Store, run: RunRecord) -> RunRecord:
    """Returns a killed run's record, completed by the steps that were running when it died (`broken_off`) and its time until
    then. The record is returned unchanged if the run was not killed, or if no readable progress file is on this machine."""
    path = progress_path(store, run.run)
    if run.state != State.KILLED or not path.is_file():
        return run
    try:
        steps, began = json.loads(path.read_bytes()), datetime.datetime.fromisoformat(run.started).timestamp()
        seconds = round(max(path.stat().st_mtime - began, run.seconds), 3)
        return run.model_copy(update={"broken_off": tuple(map(_step_and_amount, steps)), "seconds": seconds})
    except (OSError, ValueError, KeyError, TypeError):  # the process died while it wrote it
        return run


def _step_and_amount(step: Mapping[str, Any]) -> str:
    far = amount(step["done"], step["total"], step["unit"])
    return f"{step['step']} ({far})" if far else str(step["step"])


def find(store: Store, name: str | None, *, pipeline: str) -> RunRecord:
    """Returns the run whose name begins with `name`; "latest": the pipeline's newest; None: its newest that trained, else newest.

    Raises:
        StoreError: there is no such run, or several names begin with `name` and none equals it.
    """
    runs = runs_of(store)
    own = [run for run in runs if run.pipeline == pipeline]
    if name is None:
        trained = [run for run in own if run.step("train") or run.metrics]
        matches = (trained or own)[:1]
    elif name == LATEST:
        matches = own[:1]
    else:
        matches = [run for run in runs if run.run == name] or [run for run in runs if run.run.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    listed = ", ".join(run.run for run in (matches or own)[:5])
    if matches:
        raise StoreError(f"{len(matches)} runs begin with {name!r}", where=store.name, fix=f"name one: {listed}")
    problem = "there is no run yet" if name in (None, LATEST) else f"there is no run {name!r}"
    raise StoreError(problem, where=store.name, fix=f"newest runs: {listed}" if listed else "headway run makes one")


def _time(text: Any) -> datetime.datetime | None:
    try:
        return datetime.datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except ValueError:
        return None


def log_path(store: Store, run: str) -> Path:
    """Returns the path of a run's log, beside its record."""
    return store.runs_folder / f"{run}.log"


def progress_path(store: Store, run: str) -> Path:
    """Returns the path of a run's progress file, which lists the running steps; it lies beside the run's record."""
    return store.runs_folder / f"{run}.progress"


def read_log(store: Store, run: str) -> str | None:
    """Returns the text of a run's log; None if there is none."""
    path = log_path(store, run)
    try:
        return store.read(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None


# --- what monitoring leaves

_MOST_VERSIONS = 20
"""How many versions' findings are kept, so that a version that becomes champion again is not checked again."""


class SpanCheck(Result):
    """One check by `headway monitor`: a new span's drift from the champion's data, and the champion's metrics on the span."""

    span: str
    champion: int
    rows: int | None = None
    """The span's rows; None: drift could not be checked."""
    drift: tuple[str, ...] = ()
    scored: int | None = None
    """The number of rows with a label; None: no row has a label yet."""
    metrics: dict[str, float] = Field(default={})
    decay: tuple[str, ...] = ()
    checked: str = ""
    """The time of the check."""

    @property
    def alarms(self) -> tuple[str, ...]:
        return *self.drift, *self.decay


class MonitorFindings(Result):
    """The findings of `headway monitor`: {version that was the champion: {span: the check of the span}}."""

    versions: dict[int, dict[str, SpanCheck]] = Field(default={})

    @classmethod
    def of(cls, store: Store, pipeline: str) -> Self:
        try:
            return cls.model_validate_json(store.read(_state_file(store, pipeline)))
        except (FileNotFoundError, ValueError):
            return cls()

    def add(self, store: Store, pipeline: str, check: SpanCheck) -> None:
        """Adds the check of a span and writes monitor/<pipeline>.json. The file keeps the 20 versions that were checked last."""
        found = self.versions.pop(check.champion, {})
        self.versions[check.champion] = found | {check.span: check}  # the newest last
        for number in [*self.versions][:-_MOST_VERSIONS]:
            del self.versions[number]
        store.replace(_state_file(store, pipeline), self.model_dump_json(indent=1, exclude_none=True) + "\n")


def _state_file(store: Store, pipeline: str) -> Path:
    return store.root / "monitor" / f"{pipeline}.json"
