"""Runs a pipeline over a range of its past windows: each is trained and judged as it would have been then.

    result = backfill(run_spec, report, first="2013-01", last="2013-06", parallel=2)
    result.rows[0].until, result.rows[0].state           # "2013-01", "keep champion"

Nothing is promoted unless that is asked for. A window that is older than the champion's is judged all the same; where the
champion was trained on its evaluation rows, the verdict is "not comparable", and so it stays with `promote`: only
`headway run --until ... --force` puts an old model into production, by a person.

Outputs lie in the store as those of any run, so a backfill that was cut off goes on where it was when it is called again.
"""

import contextvars
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Literal

from pydantic import computed_field

from flows.dag.run_spec import Executor, RunSpec
from flows.execution.run import execute
from flows.progress.reporter import Reporter
from flows.records import Metrics, RunRecord, State
from flows.tell.ending import word_of
from headway.config import Frozen
from headway.errors import Cancelled, ConfigError, HeadwayError
from headway.messages import counted
from headway.sources.discovery.spans import spans
from headway.sources.discovery.window import select_window
from headway.tabular.splits import window_splits

Upto = Literal["ingest", "train", "gate"]
Wrap = Callable[[Executor, Reporter], Executor]


class BackfilledWindow(Frozen):
    """A window of a backfill, named by its last span."""

    until: str
    state: str
    """The verdict, a run's state, or ingested, trained, failed or too short."""
    spans: tuple[str, ...] = ()
    run: str | None = None
    metrics: Metrics | None = None
    version: int | None = None
    primary: str | None = None
    reasons: tuple[str, ...] = ()
    cached: bool = False
    """All of it was there."""
    seconds: float | None = None
    error: str | None = None

    @property
    def row(self) -> dict[str, str | int]:
        """A row of text, for a terminal or an artifact."""
        value = (self.metrics or {}).get(self.primary or "")
        took = "cached" if self.cached else "" if self.seconds is None else f"{self.seconds:.1f} s"
        why = " ".join(self.error.split()) if self.error else "; ".join(self.reasons[:1])
        cells = {
            "until": self.until,
            "spans": len(self.spans) or "",
            "state": word_of(self.state),
            "metric": self.primary or "",
        }
        return cells | {"value": "" if value is None else f"{value:.4g}", "took": took, "why": why}


class Backfilled(Frozen):
    """What a backfill came to."""

    pipeline: str
    first: str
    last: str
    upto: Upto
    rows: tuple[BackfilledWindow, ...]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def states(self) -> dict[str, int]:
        """How many windows are of each state."""
        return dict(Counter(row.state for row in self.rows))

    @property
    def counts(self) -> str:
        return ", ".join(f"{word_of(state)} {count}" for state, count in self.states.items())


OnRow = Callable[[Sequence[BackfilledWindow]], None]


def backfill(
    run_spec: RunSpec,
    report: Reporter,
    *,
    first: str,
    last: str = "latest",
    upto: Upto = "gate",
    promote: bool = False,
    parallel: int = 1,
    wait_seconds: float = 0.0,
    wrap: Wrap = lambda engine, report: engine,
    on_row: OnRow = lambda rows: None,
) -> Backfilled:
    """Run each window whose last span is one of `first` to `last`; see the module.

    Args:
        run_spec: has the size of each window.
        upto: the last stage of each; `ingest` ingests the range's spans and nothing else.
        promote: let the gate promote, window by window, the oldest first.
        parallel: windows at the same time, each with a TensorFlow process of its own; with `promote` one.
        on_row: called with all the rows so far, after each window.

    Raises:
        ConfigError: there is no such span, or none of the windows is long enough.
        Locked: another run of this pipeline is going on.
        Cancelled: what was done is kept.
    """
    if promote and upto != "gate":
        raise ConfigError(f"a backfill up to {upto} has nothing to promote", where="--promote", fix="--upto gate")
    name = run_spec.loaded.pipeline.name
    ends = _ends(run_spec, first, last)
    run_spec.store.create()
    lock = run_spec.store.lock(f"run-{name}", {"run": "backfill"})
    with lock.held(wait_seconds=wait_seconds, on_wait=lambda who: report.note(f"waiting for {who}")):
        work = _Backfill(run_spec, report, None if promote else upto, wrap, on_row)
        if upto == "ingest":
            work.ingest(ends)
        else:
            work.windows(ends, 1 if promote else parallel)
    return Backfilled(pipeline=name, first=ends[0], last=ends[-1], upto=upto, rows=work.rows)


def _ends(run_spec: RunSpec, first: str, last: str) -> list[str]:
    """The spans of the range, in order."""
    source = run_spec.loaded.pipeline.source
    every = spans(source)
    until = select_window(every, None, last, "allow")[-1]
    since = next((span for span in every if span >= first), None) if first not in every else first
    ends = [] if since is None else every[every.index(since) : every.index(until) + 1]
    if not ends:
        fix = f"there is: {', '.join(every[:12])}{', ...' if len(every) > 12 else ''}"
        raise ConfigError(f"no span lies between {first!r} and {until!r}", where="--from", fix=fix)
    return ends


class _Backfill:
    def __init__(self, run_spec: RunSpec, report: Reporter, last: str | None, wrap: Wrap, on_row: OnRow):
        self._spec, self._report, self._last, self._wrap, self._on_row = run_spec, report, last, wrap, on_row
        self._writing = threading.Lock()
        self._rows: dict[str, BackfilledWindow] = {}
        self._order: list[str] = []

    @property
    def rows(self) -> tuple[BackfilledWindow, ...]:
        return tuple(self._rows[until] for until in self._order if until in self._rows)

    def ingest(self, ends: Sequence[str]) -> None:
        """Ingest the spans of the range, as one run."""
        self._order = list(ends)
        spec = replace(self._spec, until=ends[-1], window=len(ends), last="ingest")
        for step in self._run(spec, self._report).stages:
            span = str(step.span)
            row = BackfilledWindow(
                until=span, state="ingested", spans=(span,), cached=step.cached, seconds=step.seconds
            )
            self._keep(row)

    def windows(self, ends: Sequence[str], parallel: int) -> None:
        """Run the windows, the oldest first; several at a time once the first has frozen the schema."""
        self._order = list(ends)
        config, every = self._spec.loaded.pipeline, spans(self._spec.loaded.pipeline.source)
        whole = []
        for until in ends:
            try:
                window = self._spec.chosen_window.spans(until, every)
                window_splits(config.split, window)
                whole.append(until)
            except ConfigError as error:
                self._keep(BackfilledWindow(until=until, state="too short", error=error.problem))
        if not whole:
            problem = f"none of {counted(len(ends), 'window')} has enough spans before it to train and be judged"
            raise ConfigError(problem, where="--window", fix="a smaller --window, or a later range")
        self._window(whole[0], self._report)
        if parallel == 1:
            for until in whole[1:]:
                self._window(until, self._report)
            return
        with ThreadPoolExecutor(parallel, thread_name_prefix="backfill") as pool:
            jobs = [
                pool.submit(contextvars.copy_context().run, self._window, until, self._report.window(until))
                for until in whole[1:]
            ]
            try:
                for job in jobs:
                    job.result()
            except BaseException:
                self._report.stop.set()
                for job in jobs:
                    job.cancel()
                raise

    def _window(self, until: str, report: Reporter) -> None:
        report.check()
        self._report.note(f"window up to {until} ({len(self._rows) + 1} of {len(self._order)})")
        began = time.perf_counter()
        try:
            record = self._run(replace(self._spec, until=until, last=self._last), report)
            row = _row(until, record)
        except Cancelled:
            raise
        except HeadwayError as error:
            self._report.note(f"window up to {until} failed")  # why is in its row
            row = BackfilledWindow(until=until, state="failed", error=str(error))
        self._keep(row.model_copy(update={"seconds": round(time.perf_counter() - began, 3)}))

    def _run(self, spec: RunSpec, report: Reporter) -> RunRecord:
        return execute(spec, report, wrap=lambda engine: self._wrap(engine, report), locked=True)

    def _keep(self, row: BackfilledWindow) -> None:
        with self._writing:
            self._rows[row.until] = row
            self._on_row(self.rows)


def _row(until: str, record: RunRecord) -> BackfilledWindow:
    verdict = record.verdict
    done = verdict.verdict if verdict else "trained"
    return BackfilledWindow(
        until=until,
        state=done if record.state == State.DONE else str(record.state),
        spans=record.spans,
        run=record.run,
        metrics=record.metrics or None,
        version=record.version,
        primary=verdict.primary if verdict else None,
        reasons=tuple(verdict.sentences) if verdict else (),
        cached=not record.ran,
    )
