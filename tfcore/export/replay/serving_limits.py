"""The cost of serving an exported model, as the replay measured it, and the limits on it.

over(result, ServingLimits(p99_ms=5.0))        # ["p99_ms is 7.2, the limit 5"]
"""

from typing import Any

from pydantic import Field

from headway.config import Frozen
from headway.messages import counted, number


class ServingLimits(Frozen):
    """The limits on the cost of serving a model, measured on the machine that exports; null: no limit."""

    size_mb: float | None = Field(default=None, gt=0, description="the SavedModel's files, MB (10^6 bytes)")
    p99_ms: float | None = Field(default=None, gt=0, description="99% of the calls of one row take no longer, ms")


def over(result: dict[str, Any], limits: ServingLimits) -> list[str]:
    """The limits that a model does not keep, with its figures."""
    serving = result["serving"]
    measured = {"size_mb": serving["size_mb"], "p99_ms": serving["latency"]["1"]["p99_ms"]}
    return [
        f"{name} is {number(measured[name])}, the limit {number(limit)}"
        for name, limit in limits
        if limit is not None and measured[name] > limit
    ]


def serving_text(result: dict[str, Any]) -> str:
    """Format the measured cost of serving as one line."""
    serving = result["serving"]
    latency = ", ".join(
        f"{counted(int(rows), 'row')} p50 {number(figures['p50_ms'])} ms, p99 {number(figures['p99_ms'])} ms"
        for rows, figures in serving["latency"].items()
    )
    memory = ""
    if serving["memory_mb"] is not None:
        before, most = round(serving["start_memory_mb"]), round(serving["memory_mb"])
        memory = f"{most:,} MB of memory at most ({before:,} MB before it is loaded), "
    size = number(round(serving["size_mb"], 2))
    return f"serving: {size} MB on disk, loaded in {number(round(result['load_seconds'], 2))} s, {memory}{latency}"
