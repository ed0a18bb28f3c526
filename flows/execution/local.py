"""Runs a pipeline on this machine, without a server: the same DAG, stages called one after the other.

run = run_locally(run_spec, report)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from flows.dag.run_spec import GATE, REPLAY, Executor, RunSpec
from flows.dag.step import Output
from flows.execution.engine import Engine
from flows.execution.run import Helpers, execute
from flows.progress.terminal import Reporter
from headway.monitor import Monitor


def run_locally(run_spec: RunSpec, report: Reporter, *, wait_seconds: float = 0.0) -> dict[str, Any]:
    """Execute a run here; see `flows.execution.run.execute`."""
    return execute(run_spec, functools.partial(engine, run_spec, report), report, wait_seconds=wait_seconds)


def engine(run_spec: RunSpec, report: Reporter, helpers: Helpers, on_output: Callable[[Output], None]) -> Executor:
    """An engine whose replay stage asks the process that was started early."""
    return Engine(
        run_spec.store,
        child=helpers.child,
        # the verdict's reasons are a run's last words, once
        monitor_for=lambda title: Monitor(report.stop) if title == GATE.name else report.monitor(title),
        on_output=on_output,
        runtime={REPLAY.name: {"process": helpers.replay}},
    )
