"""Runs a pipeline over a range of its past windows: each is trained and judged as it would have been then.

    result = backfill(run_spec, report, first="2013-01", last="2013-06", parallel=2)
    result["rows"]                 # [{"until": "2013-01", "state": "keep champion", "metrics": {...}, "seconds": 4.1}, ...]

Nothing is promoted unless that is asked for. A window that is older than the champion's is judged all the same; where the
champion was trained on its evaluation rows, the verdict is "not comparable", and so it stays with `promote`: only
`headway run --until ... --force` puts an old model into production, by a person.

Outputs lie in the store as those of any run, so a backfill that was cut off goes on where it was when it is called again.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Literal

from flows.dag.run_spec import Executor, RunSpec
from flows.dag.step import Output
from flows.execution.run import execute
from flows.progress.reporter import Event, Reporter
from flows.records import RunRecord, State
from headway.errors import Cancelled, ConfigError, HeadwayError
from headway.messages import counted, some
from headway.monitor import Monitor
from headway.sources.discovery.spans import spans
from headway.sources.discovery.window import select_window
from headway.tabular.splits import window_splits

Upto = Literal["ingest", "train", "gate"]
Row = dict[str, Any]
Wrap = Callable[[Executor, Reporter], Executor]


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
    on_row: Callable[[Sequence[Row]], None] = lambda rows: None,
) -> dict[str, Any]:
    """Run each window whose last span is one of `first` to `last`; see the module.

    Args:
        run_spec: `window` is the size of each window.
        upto: the last stage of each; `ingest` ingests the range's spans and nothing else.
        promote: let the gate promote, window by window, the oldest first.
        parallel: windows at the same time, each with a TensorFlow process of its own; with `promote` one.
        on_row: called with all the rows so far, after each window.

    Returns:
        pipeline, first, last, upto, rows (until, spans, state, verdict's reasons, metrics, cached (whether all of it was
        there), seconds, error), and how many rows are of each state.

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
    rows = work.rows
    states = dict(Counter(row["state"] for row in rows))
    if failed := [row["until"] for row in rows if row["state"] == "failed"]:
        said = f"{counted(len(failed), 'window')} of a backfill failed: up to {some(failed, 5)}"
        report.happened(Event("headway.backfill.failed", name, said, {"failed": failed, "states": states}))
    return {"pipeline": name, "first": ends[0], "last": ends[-1], "upto": upto, "rows": rows, "states": states}


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
    def __init__(
        self,
        run_spec: RunSpec,
        report: Reporter,
        last: str | None,
        wrap: Wrap,
        on_row: Callable[[Sequence[Row]], None],
    ):
        self._spec, self._report, self._last, self._wrap, self._on_row = run_spec, report, last, wrap, on_row
        self._writing = threading.Lock()
        self._rows: dict[str, Row] = {}
        self._order: list[str] = []

    @property
    def rows(self) -> list[Row]:
        return [self._rows[until] for until in self._order if until in self._rows]

    def ingest(self, ends: Sequence[str]) -> None:
        """Ingest the spans of the range, as one run."""
        self._order = list(ends)
        record = self._run(ends[-1], len(ends), self._report, "ingest")
        for step in record.stages:
            span = step.title.removeprefix("ingest ")
            facts = {"spans": [span], "cached": step.cached, "seconds": step.seconds}
            self._keep({"until": span, "state": "ingested", **facts})

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
                self._keep({"until": until, "state": "too short", "spans": [], "error": error.problem})
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
                pool.submit(contextvars.copy_context().run, self._window, until, _Prefixed(self._report, until))
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
        row: Row = {"until": until, "spans": []}
        try:
            record = self._run(until, self._spec.window, report, self._last)
        except Cancelled:
            raise
        except HeadwayError as error:
            self._report.note(f"window up to {until} failed")  # why is in its row
            row |= {"state": "failed", "error": str(error)}
        else:
            verdict = record.verdict
            done = verdict.verdict if verdict else "trained"
            row |= {"state": done if record.state == State.DONE else str(record.state), "spans": list(record.spans)}
            row |= {"run": record.run, "metrics": record.metrics or None, "version": record.version}
            row |= {"primary": verdict and verdict.primary, "reasons": verdict.sentences if verdict else []}
            row |= {"cached": not record.ran}
        self._keep(row | {"seconds": round(time.perf_counter() - began, 3)})

    def _run(self, until: str, window: int | str | None, report: Reporter, last: str | None) -> RunRecord:
        spec = replace(self._spec, until=until, window=window, last=last)
        return execute(spec, report, wrap=lambda engine: self._wrap(engine, report), locked=True)

    def _keep(self, row: Row) -> None:
        with self._writing:
            self._rows[row["until"]] = row
            self._on_row(self.rows)


class _Prefixed(Reporter):
    """Another's lines, each beginning with the window that it is of."""

    def __init__(self, inner: Reporter, until: str):
        super().__init__([inner])
        self._until = until

    def run(self, record: RunRecord) -> Reporter:
        return _Prefixed(super().run(record), self._until)

    def monitor(self, title: str) -> Monitor:
        return super().monitor(f"{self._until}: {title}")

    def output(self, output: Output) -> None:
        super().output(replace(output, title=f"{self._until}: {output.title}"))

    def note(self, line: str) -> None:
        super().note(f"  {self._until}: {line.strip()}")


def table(result: dict[str, Any]) -> list[dict[str, Any]]:
    """A row of text for each window, for a terminal or an artifact."""
    rows = []
    for row in result["rows"]:
        cells = {"until": row["until"], "spans": len(row["spans"]) or "", "state": row["state"]}
        if result["upto"] != "ingest":
            primary = row.get("primary")
            value = (row.get("metrics") or {}).get(primary) if primary else None
            cells |= {"metric": primary or "", "value": "" if value is None else f"{value:.4g}"}
        seconds = "cached" if row.get("cached") else f"{row['seconds']:.1f} s" if "seconds" in row else ""
        why = " ".join(row["error"].split()) if row.get("error") else "; ".join((row.get("reasons") or [])[:1])
        rows.append(cells | {"took": seconds, "why": why})
    return rows
