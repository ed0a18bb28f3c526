"""The Beam pipeline of ingest and predict: ranges in, one fused step, nothing but the ranges' numbers out.

    run(jobs, [(0, piece), (1, other)], runner=RunnerConfig(), live=live)

This is the module that imports Beam when it is imported.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from beam_jobs.runners import flink_rest, job_server
from beam_jobs.runners.beam_import import load_beam, no_traceback_of_the_reader, silenced
from beam_jobs.runners.config import RunnerConfig, make_pipeline
from beam_jobs.runners.job_state import JobState
from beam_jobs.runners.work_dir import FACTS, WorkDir, writable
from headway.errors import HeadwayError
from headway.process import own
from headway.sources.discovery.formats_table import Range

load_beam()
import apache_beam as beam  # noqa: E402 - quietly, above

Element = tuple[int, Range]
"""(which span, a range of it)"""


@dataclass(frozen=True)
class Job:
    """One span's part of a pipeline; picklable."""

    request: Any
    work_dir: WorkDir
    work: str
    """What is done with a range: "module:function" of a function (request, range, folder, tick) -> the range's facts, JSON values
    with at least `rows`, which writes into the folder."""


class Stopped(Exception):
    """Raised inside a range that need not go on."""


class IngestRange(beam.DoFn):
    """Writes a range's outputs aside and yields (span, range), or nothing for a range that stopped.

    In the driver's own process the first element is no more than the occasion: `threads` threads claim ranges until there
    are none. Beam's own worker threads take a tenth of a second to begin, and are dealt their elements beforehand.

    A user's mistake is told to the driver rather than raised: no runner can mend it by trying again, and raised through
    Beam it would reach the caller as the text of a traceback.
    """

    def __init__(self, jobs: Sequence[Job], token: str, threads: int = 1):
        self._jobs, self._token, self._threads = tuple(jobs), token, threads

    def process(self, dealt: Iterable[Element]) -> Iterator[tuple[int, int]]:
        job_state = JobState.find(self._token)
        if job_state is None:  # a process that a runner started for its jobs: no GPU, one thread a range
            own()
        if job_state is None or not job_state.deals:
            for span, piece in dealt:
                yield from self._work_on(span, piece, job_state)
            return
        yield from self._claimed(job_state)

    def _claimed(self, job_state: JobState) -> list[tuple[int, int]]:
        done, failures = list[tuple[int, int]](), list[BaseException]()

        def claim() -> None:
            try:
                for span, piece in job_state.claims():
                    done.extend(self._work_on(span, piece, job_state))
            except BaseException as error:  # it is raised again in Beam's thread
                failures.append(error)

        # daemons: a process that was told to end need not wait for a range whose file does not answer
        workers = [threading.Thread(target=claim, name=f"range-{i}", daemon=True) for i in range(self._threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if failures:
            raise failures[0]
        return done

    def _work_on(self, span: int, piece: Range, job_state: JobState | None) -> Iterator[tuple[int, int]]:
        job = self._jobs[span]

        def tick(rows: int) -> None:
            if job_state is not None:
                job_state.count((span, piece.index), rows)
                if job_state.stop.is_set():
                    raise Stopped
            if job.work_dir.stopped():
                raise Stopped

        try:
            tick(0)
            with writable(job.work_dir.folder.parent), job.work_dir.attempt(piece.index) as folder:
                module, _, function = job.work.partition(":")
                facts = getattr(importlib.import_module(module), function)(job.request, piece, folder, tick)
                (folder / FACTS).write_text(json.dumps(facts))
        except Stopped:
            return
        except HeadwayError as error:
            if job_state is not None:
                job_state.fail((span, piece.index), error)
            else:
                job.work_dir.fail(piece.index, error)
            return
        except Exception:  # the job has failed, and is told so once no worker takes more
            if job_state is not None:
                job_state.stop.set()
            raise
        yield span, piece.index

    def finish_bundle(self) -> None:
        # Arrow's allocator keeps a heap for each thread, and the runner's threads are new ones for every pipeline.
        # After each range it would cost a third of ingest's time.
        pa.default_memory_pool().release_unused()


def run(jobs: Sequence[Job], elements: Iterable[Element], *, runner: RunnerConfig, job_state: JobState) -> None:
    """Run the ranges and block until all are done; users' mistakes stand in `live`, or in the aside files.

    Raises:
        ConfigError: the runner cannot be used as configured.
        HeadwayError: a cluster gave the job up.
        Exception: Beam failed here, or a range did with an error that is not the user's.
    """
    todo = list(elements)
    sharing = _sharing() if runner.in_process else contextlib.nullcontext()
    with silenced(), sharing, job_server.reach(runner) as (reached, log):
        reached = _named(reached, job_state)
        pipeline = make_pipeline(reached, elements=len(todo))
        work = IngestRange(jobs, job_state.token, runner.threads(len(todo)))
        _dealt(pipeline, todo, runner) | "work" >> beam.ParDo(work)
        if runner.name == "direct":
            pipeline.run().wait_until_finish()
            return
        try:
            with no_traceback_of_the_reader():
                result = pipeline.run()
                job_state.runs(functools.partial(_cancel, reached, result))
                result.wait_until_finish()
        except HeadwayError:
            raise
        except Exception as error:  # gRPC's own kinds among them
            raise _failed(reached, error, log()) from error


def _dealt(pipeline: beam.Pipeline, todo: list[Element], runner: RunnerConfig) -> Any:
    """The ranges, each in a list of its own."""
    each = [[element] for element in todo]
    if not runner.in_process:  # it reshuffles, which a cluster does evenly
        return pipeline | "ranges" >> beam.Create(each)
    return pipeline | "begin" >> beam.Impulse() | "ranges" >> beam.FlatMap(lambda _, ranges: ranges, each)


def _named(runner: RunnerConfig, job_state: JobState) -> RunnerConfig:
    """The runner with a name for the job by which a Flink cluster can be asked to cancel it."""
    if runner.name != "flink" or not flink_rest.has_rest(runner.options.get("flink_master")):
        return runner
    name = f"{runner.options.get('job_name', 'headway')}-{job_state.token[:12]}"
    return runner.model_copy(update={"options": runner.options | {"job_name": name}})


def _cancel(runner: RunnerConfig, result: Any) -> None:
    """Cancel the job where it runs, then at the job server."""
    master = runner.options.get("flink_master")
    if runner.name == "flink" and flink_rest.has_rest(master):
        with contextlib.suppress(OSError, ValueError, KeyError):  # Flink is gone, or out of the driver's reach
            flink_rest.cancel(str(master), runner.options["job_name"])
    result.cancel()


def _failed(runner: RunnerConfig, error: Exception, log: str) -> HeadwayError:
    """A job that a cluster gave up, with what there is to know of it: the ends of its error and of the server's log."""
    code = getattr(error, "code", None)
    gone = callable(code) and getattr(code(), "name", "") == "UNAVAILABLE"
    text = str(error).strip()
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
    said = "its job server is gone" if gone else "\n".join(lines[-12:])[-3000:]
    problem = f"the job failed on the {runner.name} runner: {said}"
    if log:
        problem += f"\nthe job server's log ends with:\n{log}"
    where = str(runner.options.get("job_endpoint") or runner.options.get("flink_master") or "runner")
    return HeadwayError(problem, where=where, fix="look at the cluster's and the worker pool's logs")


class _Shared:
    """How many pipelines of this process run at the moment, and what was set before the first of them."""

    def __init__(self) -> None:
        self.lock, self.pipelines = threading.Lock(), 0
        self.before: tuple[int, float, tuple[int, int, int]] = (0, 0.0, (0, 0, 0))


_SHARING = _Shared()
_NEW_OBJECTS = 200_000
"""So many more objects than before make Python look for cycles."""


@contextlib.contextmanager
def _sharing() -> Iterator[None]:
    """Process-wide settings under which worker threads get on well.

    The workers are the parallelism: Arrow's own pool on top of them only costs memory. They leave the interpreter's
    lock for some hundred microseconds at a time, and the usual 5 ms to get it back made two workers a fifth slower.
    A batch of a wide table is thousands of objects and no cycles: looking for those after every 700 of them took a tenth
    of the time.
    """
    with _SHARING.lock:
        _SHARING.pipelines += 1
        if _SHARING.pipelines == 1:
            _SHARING.before = pa.cpu_count(), sys.getswitchinterval(), gc.get_threshold()
            gc.set_threshold(_NEW_OBJECTS, *_SHARING.before[2][1:])
            pa.set_cpu_count(1)
            sys.setswitchinterval(min(sys.getswitchinterval(), 0.0005))
    try:
        yield
    finally:
        with _SHARING.lock:
            _SHARING.pipelines -= 1
            if not _SHARING.pipelines:
                threads, interval, collecting = _SHARING.before
                gc.set_threshold(*collecting)
                pa.set_cpu_count(threads)
                sys.setswitchinterval(interval)
