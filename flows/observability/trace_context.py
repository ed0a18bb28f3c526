"""The current span as W3C's traceparent, for processes that go on in its trace; imports nothing.

traceparent()       # "00-<trace>-<span>-01"; None: there is no span
"""

from __future__ import annotations

import sys


def traceparent() -> str | None:
    """The current span of this thread."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent")
