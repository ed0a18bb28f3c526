"""The Beam pipeline of ingest and predict: Create(ranges), reshuffle, one ParDo for each; yields the finished ranges.

    BeamRunner(RunnerConfig(name="flink", options=...)).run(jobs, [(0, piece), (1, other)])

It is the same for every runner that Beam knows. This is the module that imports Beam when it is imported.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from beam_jobs.runners import flink_rest, job_server
from beam_jobs.runners.beam_import import load_beam, no_traceback_of_the_reader, silenced
from beam_jobs.runners.config import RunnerConfig, make_pipeline
from beam_jobs.runners.range_job import Element, RangeJob
from headway.errors import HeadwayError
from headway.process import own

load_beam()
import apache_beam as beam  # noqa: E402 - quietly, above

_PROCESS = uuid.uuid4().hex
"""Tells this process from those that a runner starts."""


class WorkOnRange(beam.DoFn):
    """Runs a range and yields (span, range), or nothing for a range that stopped."""

    def __init__(self, jobs: Sequence[RangeJob]):
        self._jobs, self._driver = tuple(jobs), _PROCESS

    def process(self, element: Element) -> Iterator[tuple[int, int]]:
        if self._driver != _PROCESS:  # a process that a runner started for its jobs: no GPU, one thread a range
            own()
        span, piece = element
        if self._jobs[span].run(piece):
            yield span, piece.index

    def finish_bundle(self) -> None:
        # Arrow's allocator keeps a heap for each thread, and the runner's threads are new ones for every pipeline.
        pa.default_memory_pool().release_unused()


class BeamRunner:
    """Runs ranges on a Beam runner; see the module. One object runs one job."""

    def __init__(self, config: RunnerConfig):
        self._config = config
        self._lock, self._cancelled = threading.Lock(), False
        self._cancel: Callable[[], object] | None = None

    def run(self, jobs: Sequence[RangeJob], elements: Sequence[Element]) -> None:
        """Run the ranges and block until the job has ended; users' mistakes are kept in the work folders.

        Raises:
            ConfigError: the runner cannot be used as configured.
            HeadwayError: a cluster gave the job up.
            Exception: Beam failed here, or a range did with an error that is not the user's.
        """
        with silenced(), job_server.reach(self._config) as (reached, log):
            reached = _named(reached)
            pipeline = make_pipeline(reached, elements=len(elements))
            # Create spreads what it makes
            pipeline | "ranges" >> beam.Create(list(elements)) | "work" >> beam.ParDo(WorkOnRange(jobs))
            if reached.name == "direct":
                pipeline.run().wait_until_finish()
                return
            try:
                with no_traceback_of_the_reader():
                    result = pipeline.run()
                    self.submitted(lambda: _cancel(reached, result))
                    result.wait_until_finish()
            except HeadwayError:
                raise
            except Exception as error:  # gRPC's own kinds among them
                raise _failed(reached, error, log()) from error

    def submitted(self, cancel: Callable[[], object]) -> None:
        """Note that the cluster has the job; if a stop came first, cancel it at once."""
        with self._lock:
            self._cancel = cancel
        if self._cancelled:
            self.cancel()

    def cancel(self) -> None:
        """Ask the cluster, once, to cancel the job; returns at once, as a cluster that is gone may never answer."""
        with self._lock:
            self._cancelled = True
            cancel, self._cancel = self._cancel, None
        if cancel is not None:
            threading.Thread(target=_quietly, args=(cancel,), name="cancel", daemon=True).start()


def _quietly(cancel: Callable[[], object]) -> None:
    with contextlib.suppress(Exception):  # the job ended by itself, or its server did
        cancel()


def _named(runner: RunnerConfig) -> RunnerConfig:
    """The runner with a job name by which a Flink cluster can be asked to cancel the job."""
    if runner.name != "flink" or not flink_rest.has_rest(runner.options.get("flink_master")):
        return runner
    name = f"{runner.options.get('job_name', 'headway')}-{uuid.uuid4().hex[:12]}"
    return runner.model_copy(update={"options": runner.options | {"job_name": name}})


def _cancel(runner: RunnerConfig, result: Any) -> None:
    """Cancel the job where it runs, then at the job server."""
    master = runner.options.get("flink_master")
    if runner.name == "flink" and flink_rest.has_rest(master):
        with contextlib.suppress(OSError, ValueError, KeyError):  # Flink is gone, or out of the driver's reach
            flink_rest.cancel(str(master), runner.options["job_name"])
    result.cancel()


def _failed(runner: RunnerConfig, error: Exception, log: str) -> HeadwayError:
    """The error of a job that failed on a cluster, with the ends of its message and of the server's log."""
    code = getattr(error, "code", None)
    gone = callable(code) and getattr(code(), "name", "") == "UNAVAILABLE"
    text = str(error).strip()
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
    cause = "its job server is gone" if gone else "\n".join(lines[-12:])[-3000:]
    problem = f"the job failed on the {runner.name} runner: {cause}"
    if log:
        problem += f"\nthe job server's log ends with:\n{log}"
    where = str(runner.options.get("job_endpoint") or runner.options.get("flink_master") or "runner")
    return HeadwayError(problem, where=where, fix="look at the cluster's and the worker pool's logs")
