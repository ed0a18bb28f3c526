"""A study: variants of one pipeline's config, run one after the other over the same store, to be compared.

    with studying(run_spec, report, name="flights.tune") as run:
        base = run(run_spec)                                       # a RunResult
        other = run(replace(run_spec, loaded=loaded.changed({"model.hidden": [64]})))

A study holds the pipeline's run lock and one TensorFlow process for all variants, promotes nothing and records no run.
Outputs lie in the store as those of any run: variants share what they have in common, with each other, with an earlier
study and with runs.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from flows.dag.dag import run_dag
from flows.dag.run_spec import RunResult, RunSpec
from flows.dag.step import Output
from flows.execution.engine import Engine
from flows.progress.reporter import Reporter
from headway.errors import ConfigError, DataError
from headway.registry.gc import running
from headway.registry.leases import WAIT_SECONDS
from tfcore.runtime.tensorflow_process import Child, ChildError
from tfcore.train.request import TrainRequest

FAILURES = (ConfigError, DataError, ChildError)
"""By these a variant fails, and the study goes on."""
Run = Callable[..., RunResult]
"""run(run_spec, freeze=False, **runtime of the train stage) -> its result."""


@contextlib.contextmanager
def studying(run_spec: RunSpec, report: Reporter, *, name: str, wait_seconds: float = 0.0) -> Iterator[Run]:
    """Hold the pipeline's lock and a TensorFlow process; see the module.

    Args:
        name: of the study's own registry, where it has one, and of its lease.

    Raises:
        Locked: a run of this pipeline is going on, or `headway clean` does not end.
    """
    run_spec.store.create()
    lock = run_spec.store.lock(f"run-{run_spec.loaded.pipeline.name}", {"run": name})
    with (
        lock.held(wait_seconds=wait_seconds, on_wait=report.note),
        running(run_spec.store, name, name, wait_seconds=max(wait_seconds, WAIT_SECONDS), on_wait=report.note),
        Child(on_line=report.relay) as child,
    ):
        told: set[str] = set()

        def made(output: Output) -> None:
            if output.fingerprint not in told:  # what variants share is told once
                report.output(output)
            told.add(output.fingerprint)

        def run(variant: RunSpec, *, freeze: bool = False, **training: Any) -> RunResult:
            report.check()
            runtime = {TrainRequest.name: training}
            engine = Engine(
                run_spec.store,
                child=child,
                report=report,
                on_output=made,
                runtime=runtime,
            )
            return run_dag(variant, engine, freeze=freeze)

        yield run
