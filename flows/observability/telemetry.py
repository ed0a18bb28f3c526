"""Reports a run to OpenTelemetry: a span for the run, under it one for each step; and measurements.

    report = Telemetry(providers)

The run's span continues the trace of the process, else that of TRACEPARENT. While a stage runs its span is the current one,
so that the TensorFlow process and the user's code go on in the same trace. docs/observability.md has names and attributes.
"""

import contextlib
import copy
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opentelemetry import context, trace
from opentelemetry.trace import Span, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from flows.dag.step import Output, Step
from flows.observability.providers import Providers
from flows.progress.reporter import Event, Reporter
from flows.records import RunRecord, State
from flows.tell.ending import TOLD, ending_of
from headway.redaction import redact, redacted
from headway.registry.registry import Registry

_COUNTED = ("written", "quarantined", "filtered")


class Telemetry(Reporter):
    """Makes spans and measurements."""

    def __init__(self, providers: Providers):
        super().__init__()
        self._tracer, meter = providers.tracer, providers.meter
        self._rows = meter.create_counter(
            "headway.ingest.rows", "{row}", "rows of ingested spans, by what became of them"
        )
        self._stage = meter.create_histogram("headway.stage.duration", "s", "how long a step took")
        self._run = meter.create_histogram("headway.run.duration", "s", "how long a run took, by how it ended")
        self._verdicts = meter.create_counter("headway.verdicts", "{verdict}", "the gate's verdicts")
        self._events = meter.create_counter("headway.events", "{event}", "Headway's events, by name")
        self._span: Span | None = None
        """The run's."""
        self._names: dict[str, str] = {}
        """What every span of the run has."""
        self._lock = threading.Lock()
        self._open: dict[str, Span] = {}
        """The spans of the steps that run, by title."""

    def run(self, record: RunRecord) -> Reporter:
        facts = {f"headway.{name}": getattr(record, name) for name in ("window", "until", "seed", "force", "last")}
        bound = copy.copy(self)
        bound._names, bound._open = {"headway.pipeline": record.pipeline, "headway.run": record.run}, {}
        attributes = _attributes(bound._names | facts)
        bound._span = self._tracer.start_span(f"run {record.pipeline}", _parent(), attributes=attributes)
        return bound

    def run_ended(self, record: RunRecord, registry: Registry) -> None:
        span, verdict, spans = self._span, record.verdict and record.verdict.verdict, record.spans
        pipeline = {"headway.pipeline": record.pipeline}
        if verdict:
            self._verdicts.add(1, pipeline | {"headway.verdict": verdict})
        self._run.record(record.seconds, pipeline | {"headway.state": str(record.state)})
        if span is None:
            return
        facts = ending_of(record).model_dump(mode="json", include=TOLD)
        facts |= {"state": str(record.state), "version": record.version, "verdict": verdict}
        facts |= {"reasons": record.verdict.sentences if record.verdict else None}
        facts |= {"spans": len(spans), "first_span": next(iter(spans), None), "last_span": next(reversed(spans), None)}
        span.set_attributes(_attributes({f"headway.{name}": value for name, value in facts.items()}))
        if record.state in (State.FAILED, State.CANCELLED):
            span.set_status(Status(StatusCode.ERROR, redact(record.error or "")))
        span.end()

    @contextlib.contextmanager
    def stage(self, steps: Sequence[Step]) -> Iterator[None]:
        stage = steps[0].stage.name
        spans = {step.title: self._start(step.title, stage, step.fingerprint, reused=False) for step in steps}
        with self._lock:
            self._open |= spans
        current = context.attach(trace.set_span_in_context(spans[steps[0].title]))
        try:
            yield
        except BaseException as error:
            for span in spans.values():
                span.set_status(Status(StatusCode.ERROR, redact(f"{type(error).__name__}: {error}")))
            raise
        finally:
            context.detach(current)
            with self._lock:
                for title in spans:
                    self._open.pop(title, None)
            for span in spans.values():
                span.end()

    def _start(self, title: str, stage: str, fingerprint: str, *, reused: bool) -> Span:
        facts = {"headway.stage": stage, "headway.step": title, "headway.fingerprint": fingerprint}
        under = _parent() if self._span is None else trace.set_span_in_context(self._span)
        attributes = _attributes(self._names | facts | {"headway.reused": reused})
        return self._tracer.start_span(title, under, attributes=attributes)

    def output(self, output: Output) -> None:
        running = None if output.hit else self._open.get(output.title)
        span = running or self._start(output.title, output.stage, output.fingerprint, reused=output.hit)
        facts = {
            "headway.rows": rows_of(output),
            "headway.bytes": output.bytes,
            "headway.why": output.why and str(output.why),
        }
        span.set_attributes(_attributes(facts))
        if running is None:
            span.end()
        pipeline = {name: value for name, value in self._names.items() if name == "headway.pipeline"}
        seconds = 0.0 if output.hit else output.seconds
        self._stage.record(seconds, pipeline | {"headway.stage": output.stage, "headway.reused": output.hit})
        counts = (output.result or {}).get("counts")
        if output.stage == "ingest" and counts and not output.hit:
            for outcome in _COUNTED:
                self._rows.add(counts[outcome], pipeline | {"headway.outcome": outcome})

    def happened(self, event: Event) -> None:
        self._events.add(1, {"headway.event": event.name})
        span = trace.get_current_span() if self._span is None else self._span
        told = {name: value for name, value in event.facts.items() if isinstance(value, str | int | float | bool)}
        about = {"message": event.message, "pipeline": event.pipeline, "run": event.run}
        span.add_event(event.name, _attributes(about | told))


def _parent() -> context.Context:
    """The context of this process; without a span in it, that of TRACEPARENT."""
    if trace.get_current_span().get_span_context().is_valid:
        return context.get_current()
    carrier = {name.lower(): os.environ[name] for name in ("TRACEPARENT", "TRACESTATE") if name in os.environ}
    return TraceContextTextMapPropagator().extract(carrier)


def _attributes(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes without secrets; what is not known is left out."""
    return {name: value for name, value in redacted(dict(facts)).items() if value not in (None, [], ())}


def rows_of(output: Output) -> int | None:
    """The rows of a step's output; None of one that has none."""
    result = output.result or {}
    counts, rows = result.get("counts"), result.get("rows")
    if counts:
        return int(counts["written"])
    if isinstance(rows, Mapping):
        return sum(rows.values())
    return rows if isinstance(rows, int) else None
