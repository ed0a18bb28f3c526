"""Runs spans as one Beam job on the configured runner: reports progress, raises errors, stops the job.

results = run_spans([IngestJob(request, "s3://team/out")], monitor, RunnerConfig())
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence

from beam_jobs.runners.config import RunnerConfig
from beam_jobs.runners.spans import Outcome, SpanJob, lost_ranges
from beam_jobs.runners.watch import Watch
from headway.errors import HeadwayError, StoreError
from headway.monitor import Monitor
from headway.storage.objects import in_parallel

_POLL_SECONDS = 0.1
_STOP_SECONDS = 30.0
"""The seconds that a stop waits for running ranges to end. A range checks after every batch whether it is to stop."""
_BEGIN_SECONDS = (60.0, 600.0)
"""If no worker has started after the first number of seconds, a message says so. After the second number the job fails. Beam
itself would wait for ever."""


def run_spans(jobs: Sequence[SpanJob], monitor: Monitor, config: RunnerConfig) -> list[Outcome]:
    """Run the jobs and return their outcomes. At the end, the finished ranges of `fresh` jobs are deleted; others stay for reuse.

    Raises:
        HeadwayError: a span failed, or the runner failed.
        Cancelled: the monitor asked to stop.
    """
    try:
        in_parallel(lambda job: job.place.prepare(job.id), jobs)
        with Watch() as watch:
            _run(jobs, watch, monitor, config)
        outcomes = in_parallel(Outcome.read, jobs)
        for outcome in outcomes:
            if outcome is not None and outcome.failure is not None:
                raise outcome.failure.exception()
        monitor.check()
        if watch.failures:
            raise watch.failures[0]
        ended = []
        for job, outcome in zip(jobs, outcomes, strict=True):
            if outcome is None:
                raise lost_ranges(job, 0, None, 0)
            ended.append(outcome)
        return ended
    finally:
        with contextlib.suppress(StoreError):  # what ended the jobs is told, not this
            in_parallel(lambda job: job.place.clear_ranges(), [job for job in jobs if job.fresh])


def _run(jobs: Sequence[SpanJob], watch: Watch, monitor: Monitor, config: RunnerConfig) -> None:
    """Run the pipeline in a thread. This one reports progress, and stops the job on Ctrl-C or if the monitor is cancelled."""
    from beam_jobs.runners import pipeline  # imports Beam

    def work() -> None:
        try:
            pipeline.run(config, jobs, watch)
        except BaseException as error:  # it is raised again in the caller's thread
            watch.failures.append(error)

    thread = threading.Thread(target=work, name="runner", daemon=True)
    thread.start()
    began, reported, looks = time.monotonic(), 0, [] if config.name == "direct" else [*_BEGIN_SECONDS]
    try:
        while thread.is_alive() and not (monitor.cancelled() or watch.stopping.is_set()):
            thread.join(_POLL_SECONDS)
            if (rows := watch.rows()) > reported:
                reported = rows
                monitor.progress(rows, watch.total(len(jobs)), "rows")
            if looks and time.monotonic() > began + looks[0]:
                seconds = looks.pop(0)
                if watch.any_span_cut() or jobs[0].place.is_started():
                    looks = []
                elif looks:
                    why = "the output of the worker pool says why, such as a python without Beam"
                    monitor.log(f"no worker of the {config.name} runner has started within {seconds:.0f} s: {why}")
                else:
                    problem = f"no worker of the {config.name} runner started within {seconds:.0f} s"
                    fix = "see that workers start, and reach the job's machines and this place: docs/runners.md"
                    raise HeadwayError(problem, where=jobs[0].place.url, fix=fix)
    finally:  # a KeyboardInterrupt, too
        if thread.is_alive():
            watch.stop()
        thread.join(_STOP_SECONDS)
