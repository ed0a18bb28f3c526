"""Runs spans on the configured runner, as one job: progress, errors, stops.

results = run_spans([IngestJob(request, "s3://team/out")], monitor, RunnerConfig())
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from beam_jobs.runners.config import RunnerConfig
from beam_jobs.runners.spans import Outcome, SpanJob, lost_ranges
from beam_jobs.runners.watch import Watch
from headway.errors import HeadwayError
from headway.monitor import Monitor
from headway.storage.objects import each

_POLL_SECONDS = 0.1
_ASK_SECONDS = 2.0
"""How often a cluster is asked about a job."""
_STOP_SECONDS = 30.0
"""How long a stop waits for ranges that are under way; they look for it after every batch."""
_BEGIN_SECONDS = 600.0
"""How long a cluster may take to begin; one without workers would take for ever."""
_SAY_SECONDS = 60.0


def run_spans(jobs: Sequence[SpanJob], monitor: Monitor, config: RunnerConfig) -> list[Outcome]:
    """Run the jobs of spans, and return how each ended.

    Raises:
        HeadwayError: a span failed, by the user's mistake, or the runner did.
        Cancelled: the monitor asked to stop.
    """
    each(lambda job: job.place.prepare(job.id), jobs)
    failures = list[BaseException]()
    with Watch() as watch:
        _run(jobs, watch, monitor, config, failures)
        failures = [*watch.failures, *failures]
    outcomes = each(Outcome.read, jobs)
    for outcome in outcomes:
        if outcome is not None and outcome.failure is not None:
            raise outcome.failure.exception()
    monitor.check()
    if failures:
        raise failures[0]
    ended = []
    for job, outcome in zip(jobs, outcomes, strict=True):
        if outcome is None:
            raise lost_ranges(job, 0, None, 0)
        ended.append(outcome)
        for facts in outcome.ranges:
            name = f"range {facts['index']}" + (f" of {job.span}" if job.span else "")
            monitor.part(name, span=job.span, **{key: value for key, value in facts.items() if key != "index"})
    return ended


def _run(
    jobs: Sequence[SpanJob], watch: Watch, monitor: Monitor, config: RunnerConfig, failures: list[BaseException]
) -> None:
    """Run one job in a thread of its own: the caller's thread keeps the monitor and stays open to Ctrl-C."""
    from beam_jobs.runners.pipeline import BeamRunner  # imports Beam

    runner, here = BeamRunner(config), config.name == "direct"
    cluster = None if here else _Cluster(jobs, watch, config, monitor)
    patience, stopped, reported = _STOP_SECONDS, None, 0

    def work() -> None:
        try:
            runner.run(jobs, watch)
        except BaseException as error:  # it is raised again in the caller's thread
            failures.append(error)

    def stop() -> None:
        watch.stop()
        runner.cancel()

    def report() -> None:
        nonlocal reported
        if (rows := watch.rows()) > reported:
            reported = rows
            monitor.progress(rows, watch.total(len(jobs)), "rows")

    thread = threading.Thread(target=work, name="runner", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_POLL_SECONDS)
            report()
            if monitor.cancelled() or watch.stopped():
                stop()
                stopped = stopped or time.monotonic()
                if time.monotonic() - stopped > _STOP_SECONDS:  # it has had its time
                    patience = 0.0
                    break
            elif cluster is not None:
                cluster.check()
    except BaseException:  # a KeyboardInterrupt, or a cluster that does not begin
        stop()
        raise
    finally:
        thread.join(patience)


class _Cluster:
    """Looks after a job that runs elsewhere: waits for its first worker, and gives up after a while."""

    def __init__(self, jobs: Sequence[SpanJob], watch: Watch, config: RunnerConfig, monitor: Monitor):
        self._place, self._watch, self._name, self._monitor = jobs[0].place, watch, config.name, monitor
        self._since = self._asked = time.monotonic()
        self._warned = self._begun = False

    def check(self) -> None:
        """Log when no worker has begun for a while, and raise at last.

        Raises:
            HeadwayError: no worker has begun in _BEGIN_SECONDS.
        """
        now = time.monotonic()
        if now < self._asked + _ASK_SECONDS:
            return
        self._asked = now
        self._begun = self._begun or self._watch.begun() or self._place.begun()
        waited = now - self._since
        if not self._begun and waited > _BEGIN_SECONDS:
            problem = f"no worker of the {self._name} runner started within {_BEGIN_SECONDS:.0f} s"
            fix = "see that workers start, and reach the job's machines and this place: docs/runners.md"
            raise HeadwayError(problem, where=self._place.url, fix=fix)
        if not self._begun and waited > _SAY_SECONDS and not self._warned:
            self._warned = True
            self._monitor.log(f"no worker of the {self._name} runner has started within {_SAY_SECONDS:.0f} s")
