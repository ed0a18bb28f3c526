"""OpenTelemetry's providers: those of the process if it has some, else made of the standard OTEL_* variables, else none.

    found = providers()                 # None: nothing is exported, and OpenTelemetry's SDK is not imported
    found.tracer, found.meter

The SDK's own configurator makes them; it and the exporter are the extra `otel`. They are the process's, so that the user's code
and Prefect are in the same trace.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

from flows.config.extras import command, missing
from headway.redaction import redact

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from opentelemetry.trace import Tracer

_DEFAULTS = {
    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",  # of the exporter that the extra installs
    "OTEL_EXPORTER_OTLP_TIMEOUT": "3",  # the end of a process waits so many seconds for a collector that is gone
}


@dataclass(frozen=True)
class Providers:
    """Where spans and measurements go; each may be one that drops them."""

    tracer: Tracer
    meter: Meter


@functools.cache
def providers() -> Providers | None:
    """The process's providers; see the module. The variables are read at the first call."""
    if not _are_set_up() and not _set_up():
        return None
    from opentelemetry import metrics, trace

    version = metadata.version("headway")
    return Providers(trace.get_tracer("headway", version), metrics.get_meter("headway", version))


def _are_set_up() -> bool:
    """Whether somebody else has done it in this process: a notebook, or `opentelemetry-instrument`."""
    if "opentelemetry.sdk.trace" not in sys.modules and "opentelemetry.sdk.metrics" not in sys.modules:
        return False
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider

    tracing, metering = trace.get_tracer_provider(), metrics.get_meter_provider()
    return isinstance(tracing, TracerProvider) or isinstance(metering, MeterProvider)


def _set_up() -> bool:
    """Make providers as the variables say; False: nothing is to be exported, or cannot be."""
    chosen = {f"OTEL_{signal}_EXPORTER": _exporter(signal) for signal in ("TRACES", "METRICS")}
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or {*chosen.values()} == {"none"}:
        return False
    if "opentelemetry.sdk" in missing("otel"):
        return _complain("opentelemetry.sdk is not installed", command("otel"))
    os.environ.update({name: os.environ.get(name) or value for name, value in (chosen | _DEFAULTS).items()})
    if "service.name=" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        os.environ.setdefault("OTEL_SERVICE_NAME", "headway")
    _listen()
    try:
        from opentelemetry.sdk._configuration import _OTelSDKConfigurator  # made for distributions to call

        _OTelSDKConfigurator().configure(resource_attributes={"service.version": metadata.version("headway")})
    except Exception as error:
        # a wrong value, an exporter that is not installed; a run matters more than what is told of it
        return _complain(redact(str(error)), "install the exporter, or put the OTEL_* variables right")
    return True


def _exporter(signal: str) -> str:
    """What exports a signal where no variable says it."""
    named = (f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    chosen = os.environ.get(f"OTEL_{signal}_EXPORTER")
    return chosen or ("otlp" if any(os.environ.get(name) for name in named) else "none")


def _complain(why: str, fix: str) -> bool:
    print(f"no telemetry is exported: {why}\n  fix: {fix}, or set OTEL_SDK_DISABLED=true", file=sys.stderr)
    return False


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
