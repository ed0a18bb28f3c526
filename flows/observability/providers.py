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
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from flows.config.extras import command, missing
from headway.process import owned

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


def _exporter(signal: str) -> str | None:
    """The name of a signal's exporter among the installed ones; None: nothing is to be exported."""
    chosen = os.environ.get(f"OTEL_{signal}_EXPORTER") or ("otlp" if _signal(_ENDPOINT, signal) else "none")
    if chosen == "none" or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    if chosen == "otlp":
        return _PROTOCOLS.get(_signal(_PROTOCOL, signal) or "http/protobuf", "otlp_proto_http")
    return chosen


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
    chosen = {signal: _exporter(signal) for signal in ("TRACES", "METRICS")}
    if not any(chosen.values()):
        return None
    if not_there := [module for module in missing("otel") if module == "opentelemetry.sdk"]:
        _complain(f"{not_there[0]} is not installed")
        return None
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    makers = {signal: _maker(signal, name) for signal, name in chosen.items() if name is not None}
    for signal, maker in makers.items():
        if maker is None:
            _complain(f"the exporter of {signal.lower()} {chosen[signal]!r} is not installed")
            return None
    _listen()
    version = metadata.version("headway")
    named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    resource = Resource.create({"service.version": version} | ({} if named else {"service.name": "headway"}))
    traced = TracerProvider(resource=resource, shutdown_on_exit=False)
    if (make := makers.get("TRACES")) is not None:
        traced.add_span_processor(BatchSpanProcessor(make()))
    readers = [PeriodicExportingMetricReader(make())] if (make := makers.get("METRICS")) is not None else []
    metered = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
    if shared:  # the user's code in this process, and Prefect, are in the same trace
        trace.set_tracer_provider(traced)
        metrics.set_meter_provider(metered)
    atexit.register(_in_time, metered.shutdown, traced.shutdown)
    return Providers(traced.get_tracer("headway", version), metered.get_meter("headway", version))


def _maker(signal: str, name: str) -> Callable[[], Any] | None:
    """What makes an exporter, which reads the other variables by itself."""
    found = list(metadata.entry_points(group=f"opentelemetry_{signal.lower()}_exporter", name=name))
    return found[0].load() if found else None


def _in_time(*work: Callable[[], object]) -> None:
    """Do each in a thread, and leave those alone that do not end in time."""
    threads = [threading.Thread(target=each, name="telemetry", daemon=True) for each in work]
    for thread in threads:
        thread.start()
    until = time.monotonic() + _LAST_SECONDS
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))


def _complain(why: str) -> None:
    print(
        f"no telemetry is exported: {why}\n  fix: {command('otel')}, or unset OTEL_EXPORTER_OTLP_ENDPOINT",
        file=sys.stderr,
    )


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
