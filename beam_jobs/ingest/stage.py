"""Ingest: raw files of a span in; sharded records, statistics and quarantine out, in one pass.

    result = ingest(request, out, Monitor(), runner=RunnerConfig())
    results = ingest_many(requests, outs, Monitor())         # several spans in one pipeline: small ones cost less

`out` then holds `train-00003-of-00012.tfrecord` (one shard for each range and split, empty ones omitted),
`statistics/<split>/` and, when rows were rejected, `quarantine.parquet`. All of it is a function of the files and the
request, whatever the runner and the number of its workers. Beam is imported when a pipeline runs, not before.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from beam_jobs.ingest.merge import collect
from beam_jobs.ingest.request import VERSION, IngestRequest
from beam_jobs.runners.config import RunnerConfig
from beam_jobs.runners.job_state import JobState
from beam_jobs.runners.work_dir import WorkDir, writable
from headway.errors import HeadwayError
from headway.monitor import Monitor
from headway.sources.discovery.formats_table import Range, open_source

__all__ = ["VERSION", "ingest", "ingest_many"]

_TRIES = 3
"""How often ranges are run before giving up on a runner that loses them."""
_POLL_SECONDS = 0.1
_STOP_SECONDS = 30.0
"""How long a stop waits for ranges that are under way; they look for it after every batch."""
_BEGIN_SECONDS = 600.0
"""How long a cluster may take to begin with the first range; one without workers would take for ever."""
_SAY_SECONDS = 60.0


def ingest(
    request: IngestRequest, out: Path, monitor: Monitor, *, runner: RunnerConfig | None = None
) -> dict[str, Any]:
    """Ingest one span into `out`; see the module.

    Returns:
        JSON values: span, rows_per_record, feature_spec (what parses a record with stock tf.io), columns, splits (rows,
        shards with the rows of their records (`headway.records.spec`), statistics),
        counts (read = written + quarantined + filtered).

    Raises:
        ConfigError: the request does not fit the files, or the runner is not usable.
        DataError: a file is damaged or cannot be stored.
        StoreError: `out` cannot be written.
        Cancelled: the monitor asked to stop.
    """
    return ingest_many([request], [out], monitor, runner=runner)[0]


def ingest_many(
    requests: Sequence[IngestRequest], outs: Sequence[Path], monitor: Monitor, *, runner: RunnerConfig | None = None
) -> list[dict[str, Any]]:
    """Ingest several spans in one pipeline; every `out` gets the bytes that `ingest` alone would write there."""
    monitor.check()
    work_dirs = [WorkDir.of(out) for out in outs]
    ranges: list[list[Range]] = []
    for request in requests:
        request.check()
        ranges.append(open_source(request.source).ranges(request.files))
    try:
        for work_dir, out in zip(work_dirs, outs, strict=True):
            with writable(out):
                work_dir.begin()
        with whole_ranges(requests, work_dirs, ranges, monitor, runner or RunnerConfig()):
            return [collect(*each) for each in zip(requests, ranges, work_dirs, outs, strict=True)]
    finally:
        for work_dir in work_dirs:
            work_dir.remove()


@contextlib.contextmanager
def whole_ranges(
    requests: Sequence[Any],
    work_dirs: Sequence[WorkDir],
    ranges: Sequence[Sequence[Range]],
    monitor: Monitor,
    runner: RunnerConfig,
    *,
    work: str = "beam_jobs.ingest.range_worker:ingest_range",
) -> Iterator[None]:
    """Run every range that is not whole yet until its outputs are; `work` names the function that is done with one.

    Within the context they are whole and Beam may still be winding up, which takes it a tenth of a second; after it Beam
    has ended.

    Beam's local runner loses elements in its multi_processing mode, and a range is cheap to run again: what is missing
    afterwards is run once more before that becomes an error.
    """
    progress = _Progress(ranges, work_dirs, monitor)
    with contextlib.ExitStack() as running:
        for attempt in range(_TRIES):
            todo = progress.missing()
            if not todo:
                break
            if attempt:
                running.close()
                monitor.log(f"the runner lost {len(todo)} of {progress.ranges} ranges; running them again")
            running.enter_context(_pipeline(requests, work_dirs, todo, progress, runner, work))
            monitor.check()
        if lost := progress.missing():
            raise HeadwayError(
                f"the {runner.name} runner lost {len(lost)} of {progress.ranges} ranges, {_TRIES} times over",
                where=f"span {requests[lost[0][0]].span}, range {lost[0][1].index}",
                fix="use runner: direct, without direct_running_mode",
            )
        yield


@contextlib.contextmanager
def _pipeline(
    requests: Sequence[Any],
    work_dirs: Sequence[WorkDir],
    todo: list[tuple[int, Range]],
    progress: _Progress,
    runner: RunnerConfig,
    work_on: str,
) -> Iterator[None]:
    """One pipeline, in a thread of its own: the caller's thread keeps the monitor and stays open to a Ctrl-C.

    Entered once all ranges have been worked on; the thread ends with the context.
    """
    job_state, failures = JobState.begin(todo if runner.in_process else ()), list[BaseException]()
    waiting = None if runner.in_process else _Waiting(work_dirs, runner, progress.monitor)

    def work() -> None:
        try:
            from beam_jobs.runners import pipeline

            jobs = [
                pipeline.Job(request, work_dir, work_on) for request, work_dir in zip(requests, work_dirs, strict=True)
            ]
            pipeline.run(jobs, todo, runner=runner, job_state=job_state)
        except BaseException as error:  # it is raised again in the caller's thread
            failures.append(error)
        finally:
            job_state.done.set()

    thread = threading.Thread(target=work, name="beam", daemon=True)
    thread.start()
    patience: float | None = None
    try:
        over = False
        while not over:
            over = job_state.done.wait(_POLL_SECONDS)
            progress.report(job_state.rows() if runner.in_process else progress.whole())
            if progress.monitor.cancelled():
                _stop(job_state, work_dirs)
                if waiting and waiting.long_enough_to_stop():
                    patience = 0.0
                    break
            elif waiting:
                waiting.check()
        for error in (job_state.error(), *(work_dir.error() for work_dir in work_dirs)):
            if error is not None:
                raise error
        if failures and not progress.monitor.cancelled():
            raise failures[0]
        yield
    except BaseException:  # the job's or the caller's, KeyboardInterrupt among them
        _stop(job_state, work_dirs)
        patience = _STOP_SECONDS if patience is None else patience
        raise
    finally:
        thread.join(patience)
        job_state.end()


def _stop(job_state: JobState, work_dirs: Sequence[WorkDir]) -> None:
    job_state.stop.set()
    for work_dir in work_dirs:
        with contextlib.suppress(OSError):  # it is gone, or cannot be written, and why is told already
            work_dir.stop()
    job_state.cancel()


class _Waiting:
    """The driver's patience with a cluster: to begin, and to stop."""

    def __init__(self, work_dirs: Sequence[WorkDir], runner: RunnerConfig, monitor: Monitor):
        self._asides, self._runner, self._monitor = work_dirs, runner, monitor
        self._before = [work_dir.attempts() for work_dir in work_dirs]
        self._since, self._said, self._begun = time.monotonic(), False, False
        self._stopped: float | None = None

    def check(self) -> None:
        """Say so when no worker has begun for a while, and give up at last.

        Raises:
            HeadwayError: no range was begun in _BEGIN_SECONDS.
        """
        if self._begun:
            return
        found = zip(self._asides, self._before, strict=True)
        self._begun = any(work_dir.attempts() - before for work_dir, before in found)
        waited = time.monotonic() - self._since
        if not self._begun and waited > _BEGIN_SECONDS:
            problem = f"no worker of the {self._runner.name} runner began with a range in {_BEGIN_SECONDS:.0f} s"
            fix = "see that workers start, reach the job's machines and see this folder: docs/runners.md"
            raise HeadwayError(problem, where=str(self._asides[0].folder.parent), fix=fix)
        if not self._begun and waited > _SAY_SECONDS and not self._said:
            self._said = True
            self._monitor.log(f"no worker of the {self._runner.name} runner has begun in {_SAY_SECONDS:.0f} s")

    def long_enough_to_stop(self) -> bool:
        """Whether a cluster that was told to stop has had its time."""
        self._stopped = time.monotonic() if self._stopped is None else self._stopped
        return time.monotonic() - self._stopped > _STOP_SECONDS


class _Progress:
    """Which ranges are done, and how many rows that makes."""

    def __init__(self, ranges: Sequence[Sequence[Range]], work_dirs: Sequence[WorkDir], monitor: Monitor):
        self.monitor = monitor
        self.ranges = sum(map(len, ranges))
        self._all, self._asides = ranges, work_dirs
        known = [piece.facts.get("rows") for pieces in ranges for piece in pieces]
        self._total = None if None in known else sum(known)  # type: ignore[arg-type]
        self._said = 0
        self._whole: dict[tuple[int, int], int] = {}

    def missing(self) -> list[tuple[int, Range]]:
        """(span, range) of the ranges whose outputs are not whole, in order."""
        found = []
        for span, (pieces, work_dir) in enumerate(zip(self._all, self._asides, strict=True)):
            finished = work_dir.finished()
            found += [(span, piece) for piece in pieces if piece.index not in finished]
        return found

    def whole(self) -> int:
        """Rows of the ranges that are whole: all there is to know of workers in other processes."""
        for span, work_dir in enumerate(self._asides):
            for index in work_dir.finished():
                if (span, index) not in self._whole:
                    self._whole[span, index] = work_dir.facts(index)["rows"]
        return sum(self._whole.values())

    def report(self, rows: int) -> None:
        if rows > self._said:
            self._said = rows
            self.monitor.progress(rows, self._total, "rows")
