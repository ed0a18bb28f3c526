"""Runs on this machine, without a server: the same road, stages called one after the other.

run = run_locally(trip, report)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from flows.dag.run_spec import GATE, REPLAY, Caller, Trip
from flows.dag.step import Output
from flows.execution.engine import Engine
from flows.execution.run import Helpers, execute
from flows.progress.terminal import Reporter
from headway.monitor import Monitor


def run_locally(trip: Trip, report: Reporter, *, wait_seconds: float = 0.0) -> dict[str, Any]:
    """Execute a trip here; see `flows.execution.run.execute`."""
    return execute(trip, functools.partial(engine, trip, report), report, wait_seconds=wait_seconds)


def engine(trip: Trip, report: Reporter, helpers: Helpers, on_output: Callable[[Output], None]) -> Caller:
    """An engine whose replay stage asks the process that was started early."""
    return Engine(
        trip.store,
        child=helpers.child,
        # the verdict's reasons are a run's last words, once
        monitor_for=lambda title: Monitor(report.stop) if title == GATE.name else report.monitor(title),
        on_output=on_output,
        runtime={REPLAY.name: {"process": helpers.replay}},
    )
