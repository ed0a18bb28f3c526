"""OpenTelemetry's providers: those of the process if it has some, else made of the standard OTEL_* variables, else none.

    found = providers()                 # None: nothing is exported, and OpenTelemetry's SDK is not imported
    found.tracer, found.meter

The SDK and the exporter are the extra `otel`. What the exporters have to say of a collector that is gone is told once, and
costs no run anything but some seconds at its end.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from flows.config.extras import command, missing
from headway.process import owned
from headway.redaction import redact

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from opentelemetry.trace import Tracer

_ENDPOINT, _PROTOCOL = "OTEL_EXPORTER_OTLP_{}ENDPOINT", "OTEL_EXPORTER_OTLP_{}PROTOCOL"
_PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc", "http/json": "otlp_json_http"}
_LAST_SECONDS = 3.0
"""How long the end of the process waits for a collector."""


@dataclass(frozen=True)
class Providers:
    """Where spans and measurements go; each may be one that drops them."""

    tracer: Tracer
    meter: Meter


_MADE: list[Providers | None] = []


def providers(*, shared: bool = False) -> Providers | None:
    """The process's providers; see the module. The variables are read at the first call.

    Args:
        shared: what is made is OpenTelemetry's global provider, too: other libraries of the process are in the same trace.
            So it is in Headway's own processes.
    """
    if not _MADE:
        _MADE.append(_present() or _from_environment(shared or owned()))
    return _MADE[0]


def _signal(name: str, signal: str) -> str | None:
    """A variable of a signal, TRACES or METRICS, else of both."""
    return os.environ.get(name.format(f"{signal}_")) or os.environ.get(name.format("")) or None


def _exporters(signal: str) -> list[str]:
    """The names of a signal's exporters among the installed ones; none: nothing is to be exported."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return []
    chosen = os.environ.get(f"OTEL_{signal}_EXPORTER") or ("otlp" if _signal(_ENDPOINT, signal) else "none")
    otlp = _PROTOCOLS.get(_signal(_PROTOCOL, signal) or "http/protobuf", "otlp_proto_http")
    names = (name.strip() for name in chosen.split(","))
    return [otlp if name == "otlp" else name for name in names if name not in ("", "none")]


def _present() -> Providers | None:
    """Those that somebody else set up in this process: a notebook, or `opentelemetry-instrument`."""
    if "opentelemetry.sdk.trace" not in sys.modules and "opentelemetry.sdk.metrics" not in sys.modules:
        return None
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider

    tracing, metering = trace.get_tracer_provider(), metrics.get_meter_provider()
    if not isinstance(tracing, TracerProvider) and not isinstance(metering, MeterProvider):
        return None
    version = metadata.version("headway")
    return Providers(trace.get_tracer("headway", version), metrics.get_meter("headway", version))


def _from_environment(shared: bool) -> Providers | None:
    chosen = {signal: _exporters(signal) for signal in ("TRACES", "METRICS")}
    if not any(chosen.values()):
        return None
    if not_there := [module for module in missing("otel") if module == "opentelemetry.sdk"]:
        _complain(f"{not_there[0]} is not installed")
        return None
    makers: dict[str, list[Callable[[], Any]]] = {"TRACES": [], "METRICS": []}
    for signal, names in chosen.items():
        for name in names:
            if (maker := _maker(signal, name)) is None:
                _complain(f"the exporter of {signal.lower()} {name!r} is not installed")
                return None
            makers[signal].append(maker)
    _listen()
    try:
        return _made(makers, shared)
    except Exception as error:  # a variable with a wrong value; a run matters more than what is told of it
        _complain(redact(f"OpenTelemetry says: {error}"), fix="put the OTEL_* variables right")
        return None


def _made(makers: Mapping[str, Sequence[Callable[[], Any]]], shared: bool) -> Providers:
    """Providers with the exporters; the SDK reads the other variables by itself, and may raise."""
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    version = metadata.version("headway")
    named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    resource = Resource.create({"service.version": version} | ({} if named else {"service.name": "headway"}))
    traced = TracerProvider(resource=resource, shutdown_on_exit=False)
    for make in makers["TRACES"]:
        traced.add_span_processor(BatchSpanProcessor(make()))
    readers = [PeriodicExportingMetricReader(make()) for make in makers["METRICS"]]
    metered = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
    if shared:  # the user's code in this process, and Prefect, are in the same trace
        trace.set_tracer_provider(traced)
        metrics.set_meter_provider(metered)
    _at_exit(metered.shutdown, traced.shutdown)
    return Providers(traced.get_tracer("headway", version), metered.get_meter("headway", version))


def _maker(signal: str, name: str) -> Callable[[], Any] | None:
    """What makes an exporter, which reads the other variables by itself."""
    found = list(metadata.entry_points(group=f"opentelemetry_{signal.lower()}_exporter", name=name))
    return found[0].load() if found else None


def _at_exit(*work: Callable[[], object]) -> None:
    """At the process's end do each in a thread, and leave those alone that do not end in time.

    The threads wait for it from now on: a process that ends cannot start one any more, since Python 3.12.
    """
    ending = threading.Event()

    def do(each: Callable[[], object]) -> None:
        ending.wait()
        each()

    threads = [threading.Thread(target=do, args=(each,), name="telemetry", daemon=True) for each in work]
    for thread in threads:
        thread.start()

    def end() -> None:
        ending.set()
        until = time.monotonic() + _LAST_SECONDS
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    atexit.register(end)


def _complain(why: str, fix: str | None = None) -> None:
    fix = fix or command("otel")
    print(f"no telemetry is exported: {why}\n  fix: {fix}, or set OTEL_SDK_DISABLED=true", file=sys.stderr)


class _FirstOnly(logging.Handler):
    """Tells the first thing that goes wrong with an export; the rest would be the same."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._told = False

    def emit(self, record: logging.LogRecord) -> None:
        if not self._told:
            self._told = True
            print(f"telemetry: {record.getMessage().splitlines()[0][:300]}", file=sys.stderr)


def _listen() -> None:
    logger = logging.getLogger("opentelemetry")
    logger.addHandler(_FirstOnly())
    logger.propagate = False
