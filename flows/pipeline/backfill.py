"""Runs a pipeline over a range of its past windows: each is trained and judged as it would have been then.

    result = backfill(context, report, first="2013-01", last="2013-06", parallel=2)
    result.rows[0].until, result.rows[0].state           # "2013-01", "kept"

Nothing is promoted unless `promote` is set. A window older than the champion's is judged as well. If the champion was
trained on the window's eval rows, the verdict is that a person has to decide, even with `promote`. An old model goes
into production only if a person types `headway run --until ... --force`.

Outputs lie in the store like those of any run, so a backfill that was interrupted goes on from there when called again.
"""

import contextvars
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Literal

from pydantic import computed_field

from flows.pipeline.context import Context
from flows.pipeline.dag import Executor
from flows.pipeline.listeners import Reporter
from flows.pipeline.run import execute
from flows.records import Metrics, RunRecord, State
from flows.report.verdict import explain, word_of
from headway.config import Frozen
from headway.errors import Cancelled, ConfigError, HeadwayError
from headway.messages import counted, some
from headway.sources.config import SourceConfig
from headway.sources.spans import select_window, spans
from headway.tabular.splits import window_splits

Upto = Literal["ingest", "train", "gate"]
Wrap = Callable[[Executor, Reporter], Executor]


class BackfillWindow(Frozen):
    """The result of one window of a backfill. Its last span names the window."""

    until: str
    state: str
    """The verdict, the state of the run, or "ingested", "trained", "failed" or "too short"."""
    spans: tuple[str, ...] = ()
    run: str | None = None
    metrics: Metrics | None = None
    version: int | None = None
    primary: str | None = None
    reasons: tuple[str, ...] = ()
    cached: bool = False
    """Whether the store had all outputs of the window."""
    seconds: float | None = None
    error: str | None = None

    @property
    def row(self) -> dict[str, str | int]:
        """The window as a row of a table, {heading: text}, for a terminal or a Prefect artifact."""
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


class Backfill(Frozen):
    """The result of a backfill: one row for each window."""

    pipeline: str
    first: str
    last: str
    upto: Upto
    rows: tuple[BackfillWindow, ...]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def states(self) -> dict[str, int]:
        """{state: number of windows}"""
        return dict(Counter(row.state for row in self.rows))

    @property
    def counts(self) -> str:
        return ", ".join(f"{word_of(state)} {count}" for state, count in self.states.items())


OnRow = Callable[[Sequence[BackfillWindow]], None]


def backfill(
    context: Context,
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
) -> Backfill:
    """Runs the pipeline on one window for each span from `first` to `last`, the last span of the window; see the module.

    Args:
        context: gives the size of each window.
        upto: the last stage of each window; with `ingest` only the spans from `first` to `last` are ingested.
        promote: let the gate promote, window by window, the oldest first.
        parallel: the number of windows at the same time, each with its own TensorFlow process; with `promote` one.
        on_row: called with all the rows so far, after each window.

    Raises:
        ConfigError: the span does not exist, no window is long enough, or `promote` is set and `upto` is not the gate.
        Locked: another run of this pipeline is going on.
        Cancelled: the backfill was stopped; finished windows are kept.
    """
    if promote and upto != "gate":
        raise ConfigError(f"a backfill up to {upto} has nothing to promote", where="--promote", fix="--upto gate")
    name, ends = context.loaded.pipeline.name, _last_spans(context.loaded.pipeline.source, first, last)
    context.store.create()
    lock = context.store.lock(f"run-{name}", {"run": "backfill"})
    with lock.held(wait_seconds=wait_seconds, on_wait=lambda who: report.note(f"waiting for {who}")):
        windows = _Windows(replace(context, last=None if promote else upto), report, wrap, on_row)
        if upto == "ingest":
            windows.ingest(ends)
        else:
            windows.run(ends, 1 if promote else parallel)
    return Backfill(pipeline=name, first=ends[0], last=ends[-1], upto=upto, rows=windows.rows)


def _last_spans(source: SourceConfig, first: str, last: str) -> list[str]:
    """Returns the last span of each window: the source's spans from `first` to `last`. ConfigError if there are none."""
    every = spans(source)
    until = select_window(every, None, last, "allow")[-1]
    if not (ends := [span for span in every if first <= span <= until]):
        fix = f"there is: {some(every, 12)}"
        raise ConfigError(f"no span lies between {first!r} and {until!r}", where="--from", fix=fix)
    return ends


@dataclass
class _Windows:
    """Runs the windows of a backfill, and keeps their results."""

    context: Context
    report: Reporter
    wrap: Wrap
    on_row: OnRow
    _rows: dict[str, BackfillWindow] = field(default_factory=dict)
    _writing: threading.Lock = field(default_factory=threading.Lock)

    @property
    def rows(self) -> tuple[BackfillWindow, ...]:
        return tuple(self._rows[until] for until in sorted(self._rows))

    def ingest(self, ends: Sequence[str]) -> None:
        """Ingests all spans of the range in one run."""
        for step in self._execute(replace(self.context, until=ends[-1], window=len(ends)), self.report).stages:
            row = BackfillWindow(until=str(step.span), state="ingested", cached=step.cached, seconds=step.seconds)
            self._add(row.model_copy(update={"spans": (row.until,)}))

    def run(self, ends: Sequence[str], parallel: int) -> None:
        """Runs the windows, the oldest first. The first, which may write the schema, runs alone, then `parallel` at a time."""
        every, ready = spans(self.context.loaded.pipeline.source), list[str]()
        for until in ends:
            try:
                window_splits(self.context.loaded.pipeline.split, self.context.chosen_window.spans(until, every))
                ready.append(until)
            except ConfigError as error:
                self._add(BackfillWindow(until=until, state="too short", error=error.problem))
        if not ready:
            problem = f"none of {counted(len(ends), 'window')} has enough spans before it to train and be judged"
            raise ConfigError(problem, where="--window", fix="a smaller --window, or a later range")
        alone = ready if parallel == 1 else ready[:1]
        for until in alone:
            self._window(until, self.report, len(ends))
        with ThreadPoolExecutor(parallel, thread_name_prefix="backfill") as pool:
            jobs = []
            for until in ready[len(alone) :]:
                of_window = self.report.window(until)
                jobs.append(pool.submit(contextvars.copy_context().run, self._window, until, of_window, len(ends)))
            try:
                for job in jobs:
                    job.result()
            except BaseException:
                self.report.stop.set()  # those that run end at their next step
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _window(self, until: str, report: Reporter, count: int) -> None:
        report.check()
        self.report.note(f"window up to {until} ({len(self._rows) + 1} of {count})")
        began = time.perf_counter()
        try:
            row = _row(until, self._execute(replace(self.context, until=until), report))
        except Cancelled:
            raise
        except HeadwayError as error:
            self.report.note(f"window up to {until} failed")  # why is in its row
            row = BackfillWindow(until=until, state="failed", error=str(error))
        self._add(row.model_copy(update={"seconds": round(time.perf_counter() - began, 3)}))

    def _execute(self, context: Context, report: Reporter) -> RunRecord:
        return execute(context, report, wrap=lambda engine: self.wrap(engine, report), locked=True)

    def _add(self, row: BackfillWindow) -> None:
        with self._writing:
            self._rows[row.until] = row
            self.on_row(self.rows)


def _row(until: str, record: RunRecord) -> BackfillWindow:
    verdict = record.verdict
    done = verdict.status if verdict else "trained"
    return BackfillWindow(
        until=until,
        state=done if record.state == State.DONE else str(record.state),
        spans=record.spans,
        run=record.run,
        metrics=record.metrics or None,
        version=record.version,
        primary=verdict.primary if verdict else None,
        reasons=tuple(explain(verdict).sentences) if verdict else (),
        cached=not record.executed_steps,
    )
