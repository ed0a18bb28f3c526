"""The Beam pipeline of ingest and predict, the same for every runner.

    run(RunnerConfig(name="flink", options=...), jobs, watch)

    Create(spans) -> ranges of a span -> spread -> process a range -> GroupByKey(span) -> finish the span

HeadwayErrors go to a tagged output; the rows that were read are a Beam metric. Importing this module imports Beam.
"""

from __future__ import annotations

import contextlib
import pickle
import platform
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from beam_jobs.runners import flink_rest
from beam_jobs.runners.beam_import import load_beam, silenced
from beam_jobs.runners.config import JOB_SERVERS, RunnerConfig, make_pipeline
from beam_jobs.runners.place import as_store_errors
from beam_jobs.runners.spans import Failure, Outcome, SpanJob, Stopped, finish_span, run_range
from beam_jobs.runners.watch import Watch
from headway.errors import ConfigError, HeadwayError
from headway.process import mark_own_process
from headway.sources.base import Range
from headway.storage.manifest import version

load_beam()
import apache_beam as beam  # noqa: E402 - quietly, above
import grpc  # noqa: E402
from apache_beam.metrics import Metrics  # noqa: E402

_PROCESS = uuid.uuid4().hex
"""A random name of this process; processes that a runner starts have other names."""
_NAMESPACE, _ROWS = "headway", "rows"
_FAILED = "failed"
_SERVER_SECONDS = 60.0
"""The seconds within which a job server must be reached. Beam's own option `job_server_timeout` is 300 by default, and also ends
the streams of a running job."""
_LOOK_SECONDS = 0.1
"""A job that waits for its server checks at this interval, in seconds, whether it was stopped."""
_LACKS = re.compile(r"No module named '(headway|beam_jobs|tfcore)\b[^']*'")
_WHOLE = -1
"""The index of a range that stands for the whole span. The pipeline's elements are ((index of the span, index of the range),
value)."""
Result = TypeVar("Result")


def _versions() -> str:
    return f"Headway {version()} on Python {'.'.join(platform.python_version_tuple()[:2])}"


class _SpanFn(beam.DoFn):
    """Base class of the DoFns: holds the jobs of all spans, and hands errors to the driver if that is in the same process."""

    def __init__(self, jobs: Sequence[SpanJob], name: str):
        self._jobs, self._name = tuple(jobs), name
        self._process, self._versions = _PROCESS, _versions()

    @property
    def watch(self) -> Watch | None:
        """The state that the driver shares with workers in its process: stop, rows read, errors; None in another process."""
        return Watch.find_here(self._name)

    def setup(self) -> None:
        if self._name and self._process != _PROCESS:  # a process that a runner started for our jobs: no GPU
            mark_own_process()

    def _stopped(self) -> bool:
        """Returns whether the job was stopped. In the driver's own process also true once the driver has ended."""
        watch = self.watch
        return watch.stopping.is_set() if watch is not None else bool(self._name) and self._process == _PROCESS

    def process(self, element: Any) -> Iterable[Any]:
        """Process an element ((span, index of the range), value). A HeadwayError is yielded as a Failure; other errors are
        raised. If the driver is in this process, `watch` also gets the error and stops the job."""
        (span, index), watch = element[0], self.watch
        # a span with a failure ends all the same: it tells the one of the lowest range
        if self._stopped() and not any(isinstance(each, Failure) for each in element[1] or ()):
            return
        try:
            if self._versions != _versions():  # any worker may be the first with a span
                problem = f"a worker runs {_versions()}, and the driver {self._versions}"
                raise ConfigError(problem, where="runner", fix="install the driver's versions on every worker")
            yield from self.work(span, self._jobs[span], element[1])
        except (Stopped, GeneratorExit):  # the second: a step behind this one has failed
            return
        except HeadwayError as error:
            failure = Failure(index, error.facts)
            if watch is not None:
                watch.fail(failure.exception())
            yield self.failed(span, failure)
        except BaseException as error:
            if watch is not None:
                watch.fail(error)
            raise

    def work(self, span: int, job: SpanJob, element: Any) -> Iterable[Any]:
        raise NotImplementedError

    def failed(self, span: int, failure: Failure) -> Any:
        return beam.pvalue.TaggedOutput(_FAILED, ((span, _WHOLE), failure))


class CutSpan(_SpanFn):
    """Cuts a span into ranges and yields them, the longest first. The number of ranges goes to a tagged output."""

    COUNTS = "counts"

    def work(self, span: int, job: SpanJob, element: None) -> Iterable[Any]:
        if self.watch is None:
            with as_store_errors(job.where):
                job.place.mark_started()
        pieces = job.cut()
        if self.watch is not None:
            self.watch.set_ranges(span, pieces)
        yield beam.pvalue.TaggedOutput(self.COUNTS, ((span, _WHOLE), len(pieces)))
        # they are dealt in this order
        for piece in sorted(pieces, key=lambda piece: piece.facts.get("rows", piece.end - piece.start), reverse=True):
            yield (span, piece.index), (piece, len(pieces))


class ProcessRange(_SpanFn):
    """Makes the output files of a range, and yields a RangeResult."""

    def __init__(self, jobs: Sequence[SpanJob], name: str):
        super().__init__(jobs, name)
        self._rows = Metrics.counter(_NAMESPACE, _ROWS)

    def work(self, span: int, job: SpanJob, element: Iterable[tuple[Range, int]]) -> Iterable[Any]:
        (piece, total), *_ = element
        watch, read = self.watch, 0

        def tick(rows: int) -> None:
            nonlocal read
            self._rows.inc(rows - read)
            read = rows
            if watch is not None:
                watch.rows_read[span, piece.index] = rows
                if watch.stopping.is_set():
                    raise Stopped

        done = run_range(job, piece, total, tick)
        if done.kept and watch is not None:
            watch.rows_read[span, piece.index] = done.facts["rows"]
        yield (span, _WHOLE), done

    def finish_bundle(self) -> None:
        # Arrow's allocator keeps a heap for each thread, and the runner's threads are new ones for every pipeline.
        pa.default_memory_pool().release_unused()


class FinishSpan(_SpanFn):
    """Merges the ranges of a span, writes the span's outcome, and yields (index of the span, outcome)."""

    def work(self, span: int, job: SpanJob, element: Iterable[Any]) -> Iterable[Any]:
        done = [*element]
        total = next((each for each in done if isinstance(each, int)), None)
        yield span, finish_span(job, total, [each for each in done if not isinstance(each, int)])

    def failed(self, span: int, failure: Failure) -> Any:
        return span, Outcome(failure=failure).save(self._jobs[span])


def _late(fn: beam.DoFn) -> beam.DoFn:
    """Returns a DoFn that unpickles `fn` only at its first element. A worker without Headway's code then fails with an error.
    Otherwise the worker would fail before it asks for an element, and Flink would wait three minutes before it tries again."""
    data = pickle.dumps(fn)

    class Late(beam.DoFn):  # a class within a function travels by value
        fn: Any = None

        def process(self, element: Any) -> Any:
            if self.fn is None:
                self.fn = pickle.loads(data)  # noqa: S301 - a part of the job, as this class is
                self.fn.setup()
            return self.fn.process(element)

        def finish_bundle(self) -> Any:
            return None if self.fn is None else self.fn.finish_bundle()

    return Late()


class ProcessSpans(beam.PTransform):
    """The whole pipeline as a transform: processes the jobs of spans, and yields (index of the job, outcome) for each."""

    def __init__(self, jobs: Sequence[SpanJob], watch: str = ""):
        """
        Args:
            watch: the name of the driver's Watch; without one only the runner can stop the job.
        """
        super().__init__()
        self._jobs, self._name = jobs, watch

    def expand(self, pipeline: Any) -> Any:
        spans = pipeline | "spans" >> beam.Create(
            [((span, _WHOLE), None) for span in range(len(self._jobs))], reshuffle=False
        )
        cut = spans | "cut" >> beam.ParDo(_late(CutSpan(self._jobs, self._name))).with_outputs(
            CutSpan.COUNTS, _FAILED, main="ranges"
        )
        # a Reshuffle, but for what it does to keep windows and times, which takes longer than a small span
        spread = cut.ranges | "spread" >> beam.GroupByKey()
        done = spread | "process" >> beam.ParDo(_late(ProcessRange(self._jobs, self._name))).with_outputs(
            _FAILED, main="done"
        )
        ends = (cut[CutSpan.COUNTS], cut[_FAILED], done.done, done[_FAILED]) | "ends" >> beam.Flatten()
        return ends | "span" >> beam.GroupByKey() | "finish" >> beam.ParDo(_late(FinishSpan(self._jobs, self._name)))


def run(config: RunnerConfig, jobs: Sequence[SpanJob], watch: Watch) -> None:
    """Run the jobs of spans as one Beam job, and wait for its end. Unless stopped, each span's outcome is then in its place.

    Raises:
        ConfigError: the runner cannot be used as configured.
        HeadwayError: the job failed on a cluster.
        Exception: Beam, or a range, failed in this process with an error that is no HeadwayError.
    """
    with silenced():
        config = _named(config)
        pipeline = make_pipeline(config)
        pipeline | ProcessSpans(jobs, watch.name)
        if config.name == "direct":
            pipeline.run().wait_until_finish()
            return
        try:
            if not _reached(config, watch):
                return
            result = pipeline.run()
            if hasattr(result, "_message_stream"):  # of a job server
                result._message_stream = _until_lost(result._message_stream)
            watch.on_stop(lambda: _cancel(config, result))
            result.wait_until_finish()
        except HeadwayError:
            raise
        except Exception as error:  # gRPC's own kinds among them
            raise _failed(config, error) from error


def _reached(runner: RunnerConfig, watch: Watch) -> bool:
    """Wait until the job server answers. Returns True then, or if there is no job server; False if the job was stopped first.
    Beam's own wait would ignore a stop.

    Raises:
        grpc.FutureTimeoutError: the job server does not answer.
    """
    endpoint = runner.options.get("job_endpoint")
    if runner.name not in JOB_SERVERS or endpoint in (None, "embed"):
        return True
    deadline = time.monotonic() + min(runner.options.get("job_server_timeout", _SERVER_SECONDS), _SERVER_SECONDS)
    with grpc.insecure_channel(endpoint) as channel:
        ready = grpc.channel_ready_future(channel)
        while not watch.stopping.is_set():
            try:
                ready.result(timeout=_LOOK_SECONDS)
                return True
            except grpc.FutureTimeoutError:
                if time.monotonic() > deadline:
                    raise
    return False


def _until_lost(messages: Iterable[Result]) -> Iterator[Result]:
    """Yields the messages of a job. Ends without an error if the job server is lost: the wait for the job raises it anyway."""
    with contextlib.suppress(grpc.RpcError):
        yield from messages


def _named(runner: RunnerConfig) -> RunnerConfig:
    """Returns the config of a Flink cluster with a unique job name, by which to cancel the job; any other config unchanged."""
    if runner.name != "flink" or not flink_rest.has_rest(runner.options.get("flink_master")):
        return runner
    name = f"{runner.options.get('job_name', 'headway')}-{uuid.uuid4().hex[:12]}"
    return runner.model_copy(update={"options": runner.options | {"job_name": name}})


def _cancel(runner: RunnerConfig, result: Any) -> None:
    """Cancel the job at Flink, then at the job server. Ignore errors: the job, Flink or the job server may be gone."""
    master = runner.options.get("flink_master")
    if runner.name == "flink" and flink_rest.has_rest(master):
        with contextlib.suppress(OSError, ValueError, KeyError):
            flink_rest.cancel(str(master), runner.options["job_name"])
    with contextlib.suppress(Exception):
        result.cancel()


def _failed(runner: RunnerConfig, error: Exception) -> HeadwayError:
    """Returns the error to raise for a job that failed on a cluster, with the last lines of the job's own message."""
    where = str(runner.options.get("job_endpoint", "runner"))
    if isinstance(error, grpc.FutureTimeoutError):
        fix = "start the job server, or name where it listens: host:port"
        return ConfigError(f"no job server answers at {where}", where="runner.options.job_endpoint", fix=fix)
    code = getattr(error, "code", None)
    gone = callable(code) and getattr(code(), "name", "") == "UNAVAILABLE"
    text = str(error).strip()
    if lacks := _LACKS.search(text):
        fix = "install the driver's versions on every worker: docs/runners.md"
        return ConfigError(f"a worker does not have the code of the job: {lacks[0]}", where="runner", fix=fix)
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
    cause = "its job server is gone" if gone else "\n".join(lines[-12:])[-3000:]
    problem = f"the job failed on the {runner.name} runner: {cause}"
    return HeadwayError(problem, where=where, fix="look at the logs of cluster, job server and worker pool")
