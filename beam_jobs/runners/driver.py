"""Runs a job's ranges on the configured runner until all outputs are whole: progress, errors, stops, lost ranges.

    whole_ranges([RangeJob(request, work_dir, "beam_jobs.ingest.range_worker:ingest_range")], [ranges], monitor, RunnerConfig())

Whatever the runner, all that driver and ranges tell each other lies in the work folder.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Sequence

from beam_jobs.runners.config import RunnerConfig
from beam_jobs.runners.local import run_ranges
from beam_jobs.runners.range_job import Element, RangeJob
from beam_jobs.runners.work_dir import WORKER, WorkDir
from headway.errors import HeadwayError
from headway.monitor import Monitor
from headway.sources.base import Range

_TRIES = 3
"""How often ranges are run before giving up on a runner that loses them."""
_POLL_SECONDS = 0.1
_STOP_SECONDS = 30.0
"""How long a stop waits for ranges that are under way; they look for it after every batch."""
_BEGIN_SECONDS = 600.0
"""How long a cluster may take to begin with the first range; one without workers would take for ever."""
_SAY_SECONDS = 60.0


def whole_ranges(
    jobs: Sequence[RangeJob], ranges: Sequence[Sequence[Range]], monitor: Monitor, config: RunnerConfig
) -> None:
    """Run the unfinished ranges of each job until all outputs are whole.

    Beam's local runner loses elements in its multi_processing mode, and a range is cheap to run again: what is missing
    afterwards is run once more before that becomes an error.
    """
    spans = [str(getattr(job.request, "span", "")) for job in jobs]
    progress = _Progress(ranges, [job.work_dir for job in jobs], monitor, spans)
    for attempt in range(_TRIES):
        todo = progress.missing()
        if not todo:
            return
        if attempt:
            monitor.log(f"the runner lost {len(todo)} of {progress.ranges} ranges; running them again")
        _run(jobs, todo, progress, config)
        monitor.check()
    if lost := progress.missing():
        raise HeadwayError(
            f"the {config.name} runner lost {len(lost)} of {progress.ranges} ranges in each of {_TRIES} tries",
            where=f"span {jobs[lost[0][0]].request.span}, range {lost[0][1].index}",
            fix="use runner: direct, without options",
        )


def _run(jobs: Sequence[RangeJob], todo: Sequence[Element], progress: _Progress, config: RunnerConfig) -> None:
    """Run one job in a thread of its own: the caller's thread keeps the monitor and stays open to Ctrl-C."""
    if config.local:
        run: Callable[..., None] = functools.partial(run_ranges, config)
        cancel = None
    else:
        from beam_jobs.runners.pipeline import BeamRunner  # imports Beam

        runner = BeamRunner(config)
        run, cancel = runner.run, runner.cancel
    failures = list[BaseException]()
    work_dirs = [job.work_dir for job in jobs]
    waiting = _Waiting(work_dirs, config, progress.monitor)
    patience, stopped = _STOP_SECONDS, None

    def work() -> None:
        try:
            run(jobs, todo)
        except BaseException as error:  # it is raised again in the caller's thread
            failures.append(error)

    def stop() -> None:
        for work_dir in work_dirs:
            work_dir.stop()
        if cancel is not None:
            cancel()

    thread = threading.Thread(target=work, name="runner", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(max(_POLL_SECONDS, 20 * progress.report()))
            if progress.monitor.cancelled() or any(work_dir.stopped() for work_dir in work_dirs):
                stop()
                stopped = stopped or time.monotonic()
                if time.monotonic() - stopped > _STOP_SECONDS:  # a cluster has had its time
                    patience = 0.0
                    break
            else:
                waiting.check()
        progress.report()
        for work_dir in work_dirs:
            if (error := work_dir.error()) is not None:
                raise error
        if failures and not progress.monitor.cancelled():
            raise failures[0]
    except BaseException:  # the job's, or a KeyboardInterrupt
        stop()
        raise
    finally:
        thread.join(patience)


class _Waiting:
    """Waits for a runner's first worker, and gives up after a while."""

    def __init__(self, work_dirs: Sequence[WorkDir], runner: RunnerConfig, monitor: Monitor):
        self._work_dirs, self._runner, self._monitor = work_dirs, runner, monitor
        self._before = [work_dir.attempts() for work_dir in work_dirs]
        self._since, self._warned, self._begun = time.monotonic(), False, False

    def check(self) -> None:
        """Log when no worker has begun for a while, and raise at last.

        Raises:
            HeadwayError: no range was begun in _BEGIN_SECONDS.
        """
        if self._begun:
            return
        attempts = zip(self._work_dirs, self._before, strict=True)
        self._begun = any(work_dir.attempts() - before for work_dir, before in attempts)
        waited = time.monotonic() - self._since
        if not self._begun and waited > _BEGIN_SECONDS:
            problem = f"no worker of the {self._runner.name} runner started a range within {_BEGIN_SECONDS:.0f} s"
            fix = "see that workers start, reach the job's machines and see this folder: docs/runners.md"
            raise HeadwayError(problem, where=str(self._work_dirs[0].folder.parent), fix=fix)
        if not self._begun and waited > _SAY_SECONDS and not self._warned:
            self._warned = True
            self._monitor.log(
                f"no worker of the {self._runner.name} runner has started a range within {_SAY_SECONDS:.0f} s"
            )


class _Progress:
    """The finished ranges, and the number of rows read."""

    def __init__(
        self, ranges: Sequence[Sequence[Range]], work_dirs: Sequence[WorkDir], monitor: Monitor, spans: Sequence[str]
    ):
        self.monitor, self._spans = monitor, spans
        self.ranges = sum(map(len, ranges))
        self._all, self._work_dirs = ranges, work_dirs
        rows = [piece.facts.get("rows") for pieces in ranges for piece in pieces]
        self._total = None if None in rows else sum(rows)  # type: ignore[arg-type]
        self._reported = 0
        self._whole: list[dict[int, int]] = [{} for _ in work_dirs]

    def missing(self) -> list[tuple[int, Range]]:
        """(span, range) of each range whose output is not whole, in order."""
        missing = []
        for span, (pieces, work_dir) in enumerate(zip(self._all, self._work_dirs, strict=True)):
            finished = work_dir.finished()
            missing += [(span, piece) for piece in pieces if piece.index not in finished]
        return missing

    def report(self) -> float:
        """Tell the monitor how many rows have been read; return the seconds it took to look."""
        begun = time.monotonic()
        rows = 0
        for span, work_dir, whole in zip(self._spans, self._work_dirs, self._whole, strict=True):
            before = set(whole)
            rows += work_dir.rows(whole)
            for index in whole.keys() - before:
                self._ended(span, work_dir, index)
        if rows > self._reported:
            self._reported = rows
            self.monitor.progress(rows, self._total, "rows")
        return time.monotonic() - begun

    def _ended(self, span: str, work_dir: WorkDir, index: int) -> None:
        """Tell the monitor of a range that is whole."""
        with contextlib.suppress(OSError):  # the folder went: a stop, which the driver sees
            facts = work_dir.facts(index)
            name = f"range {index}" + (f" of {span}" if span else "")
            self.monitor.part(name, rows=facts["rows"], **facts.get(WORKER, {}))
