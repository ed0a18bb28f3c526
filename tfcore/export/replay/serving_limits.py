"""The cost of serving an exported model, as the replay measured it, and the limits on it.

over(result, ServingLimits(p99_ms_1=5.0))      # ["p99_ms_1 is 7.2, the limit 5"]
"""

from typing import Any

from pydantic import Field

from headway.config import Frozen
from headway.messages import counted, number


class ServingLimits(Frozen):
    """The limits on the cost of serving a model, measured on the machine that exports; null: no limit."""

    size_mb: float | None = Field(default=None, gt=0, description="the SavedModel's files, MB (10^6 bytes)")
    memory_mb: float | None = Field(
        default=None,
        gt=0,
        description="peak memory of a process that loads the model and answers, TensorFlow's included",
    )
    load_seconds: float | None = Field(default=None, gt=0, description="from the folder to a model that answers")
    p50_ms_1: float | None = Field(default=None, gt=0, description="the median call of one row takes no longer, ms")
    p99_ms_1: float | None = Field(default=None, gt=0, description="99% of the calls of one row take no longer, ms")
    p50_ms_64: float | None = Field(default=None, gt=0, description="the median call of 64 rows")
    p99_ms_64: float | None = Field(default=None, gt=0, description="99% of the calls of 64 rows")

    @property
    def latency(self) -> bool:
        """Whether a limit is on how long calls take."""
        return any(each is not None for each in (self.p50_ms_1, self.p99_ms_1, self.p50_ms_64, self.p99_ms_64))


def _measures(result: dict[str, Any]) -> dict[str, float | None]:
    """Return the measured values by the names of the limits."""
    serving = result["serving"]
    latency = {
        f"{share}_ms_{rows}": figures[f"{share}_ms"]
        for rows, figures in serving["latency"].items()
        for share in ("p50", "p99")
    }
    return (
        {name: serving[name] for name in ("size_mb", "memory_mb")} | {"load_seconds": result["load_seconds"]} | latency
    )


def over(result: dict[str, Any], limits: ServingLimits) -> list[str]:
    """The limits that a model does not keep, with its figures."""
    measures = _measures(result)
    told = {name: limit for name, limit in limits.model_dump().items() if limit is not None}
    return [
        f"{name} is {number(measures[name])}, the limit {number(limit)}"
        for name, limit in told.items()
        if measures.get(name) is not None and measures[name] > limit
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
