"""Inspects one training step eagerly, op by op: what `headway debug step` runs in the TensorFlow process.

    debug_step(DebugRequest(train=request), Path("out"), monitor)
    # {"problems": [...], "inputs": [...], "layers": [...], "variables": [...], "compiled": {...}, ...}

The step is that of the training: same rows, same model, same knobs; its first one, or the one after a checkpoint. It is run
once eagerly, then compiled together with those after it. `out` gets report.json and TensorBoard's profile below profile/;
nothing else is written.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from headway.errors import StoreError
from headway.monitor import Monitor
from headway.storage.prefetch import RemoteFiles, Stager
from tfcore.debug.eager import eager_step
from tfcore.debug.findings import problems, starting
from tfcore.debug.request import DebugRequest
from tfcore.distribute.placement import Choice, place
from tfcore.graph.python_errors import python_functions
from tfcore.runtime.remote_shards import staged
from tfcore.train.request import TrainRequest
from tfcore.train.session import TrainingSession

REPORT = "report.json"


def debug_step(
    request: DebugRequest, out: Path, monitor: Monitor, *, remote: RemoteFiles | None = None
) -> dict[str, Any]:
    """Inspect one training step and write the report; see the module.

    Returns:
        problems: what `tfcore.debug.findings` found, first things first.
        step: which one was looked at: the first, or the first that was skipped.
        inputs, layers, variables, loss, gradient_norm, applied, eager_seconds: of that step, run eagerly.
        compiled: {first, losses, applied, seconds (of each but the first), mode ("jit" or "graph"), refused (why XLA does not
        compile it), python (the Python functions that it calls)}; profile: its folder, or None.

    Raises:
        ConfigError, DataError, StoreError: as a training would; HeadwayError: a layer raised.
    """
    train = request.train
    with (
        staged(remote, monitor) as stager,
        _session(train, monitor, stager, request.checkpoints) as training,
    ):
        steps = min(request.steps, training.total - training.start)  # further there are no knobs
        if not steps:
            where = str(request.checkpoints)
            raise StoreError(f"its newest checkpoint is of the last step, {training.start:,}", where=where)
        monitor.log(f"step {training.start:,} eagerly: {training.request.training.batch_size:,} rows")
        walk = _Walk(training)
        monitor.check()
        monitor.log("the same compiled")
        walk.compiled(0)
        monitor.check()
        folder = out / "profile" if request.profile and steps > 1 else None
        out.mkdir(parents=True, exist_ok=True)
        seconds = []
        with tf.profiler.experimental.Profile(str(folder)) if folder else nullcontext():
            for number in range(1, steps):
                began = time.perf_counter()
                with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
                    walk.compiled(number)
                seconds.append(round(time.perf_counter() - began, 6))
        later = walk.later()
        run = training.learner._run
        python = python_functions(run.trace().graph.as_graph_def())
    report = {
        "problems": problems(walk.eager, walk.losses[walk.at :], walk.applied[walk.at :], walk.still, later),
        "step": training.start + walk.at,
        "rows": training.request.training.batch_size,
        "knobs": walk.knobs,
        "eager_seconds": walk.eager.pop("seconds"),
        **walk.eager,
        "compiled": {
            "first": training.start,
            "losses": walk.losses,
            "applied": walk.applied,
            "seconds": seconds,
            "mode": run.mode,
            "refused": run.refused,
            "python": python,
        },
        "profile": folder and str(folder),
    }
    (out / REPORT).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return report


@contextmanager
def _session(
    request: TrainRequest, monitor: Monitor, stager: Stager | None, checkpoints: Path | None
) -> Iterator[TrainingSession]:
    """Open a training session for inspection only, on one device whatever its strategy. The request's checkpoints,
    summaries and control file are neither read nor written.

    Args:
        checkpoints: a folder of its own to resume from.
    """
    alone = request.model_copy(update={"checkpoints": checkpoints, "summaries": None, "control": None})
    gpus = len(tf.config.list_physical_devices("GPU"))
    session = TrainingSession(
        alone, monitor, stager=stager, placed=lambda: place(Choice("gpu" if gpus else "cpu"), gpus=gpus)
    )
    with session.placement.device_scope():
        yield session


class _Walk:
    """Runs a training's first steps compiled, one at a time, and the most interesting of them eagerly too.

    That is the first, unless a later one is the first to be skipped: skipped steps change no weight, so that it can be
    looked at as it was.
    """

    def __init__(self, training: TrainingSession):
        self._training, self._learner = training, training.learner
        self._offset = training.start % training.stack
        self._stacks = training.data.stacks(training.stack)(training.start - self._offset)
        self._stack = next(self._stacks)
        self.losses: list[float | None] = []
        self.applied: list[bool] = []
        self.still: list[str] = []
        """Variables that the compiled step does not train though the eager one does."""
        self._look(0)

    def _look(self, number: int) -> None:
        used = (self._offset + number) % self._learner.stack
        values = self._training.knob_values(self._training.start + number - used, self._learner.stack)
        self.at, self.knobs = number, {name: float(value[used]) for name, value in values.items()}
        self._batch = {name: value[used] for name, value in self._stack.items()}
        self.eager = eager_step(self._learner, self._batch, self.knobs)

    def later(self) -> list[str]:
        """The variables whose gradient on the same batch was 0 and no longer is after the compiled steps.

        Nothing learns behind a layer that starts at zero until that layer has made its first step.
        """
        zero = {row["name"] for row in self.eager["variables"] if (row["gradient"] or {}).get("zeros") == 1.0}
        if not zero or not starting(self.eager["variables"]):
            return []
        variables = eager_step(self._learner, self._batch, self.knobs)["variables"]
        return sorted(row["name"] for row in variables if row["name"] in zero and row["gradient"]["zeros"] < 1.0)

    def compiled(self, number: int) -> None:
        """Run step `number`, counted from the start; call it once per step, in order."""
        used = (self._offset + number) % self._learner.stack
        if number and not used:
            self._stack = next(self._stacks)
        trained = self._learner.model.trainable_variables
        before = [] if number else [variable.numpy() for variable in trained]
        outcome = self._learner.run(
            self._stack,
            first=used,
            steps=1,
            knobs=self._training.knob_values(self._training.start + number - used, self._learner.stack),
            micro_batches=self._training.request.training.micro_batches,
        )
        if not len(outcome.losses):
            return  # too many in a row were not finite: the training would have ended
        self.losses.append(float(outcome.losses[0]) if np.isfinite(outcome.losses[0]) else None)
        self.applied.append(bool(outcome.applied[0] or outcome.retryable[0]))
        if not number and outcome.applied[0] and self.eager["applied"]:
            moved = {row["name"] for row in self.eager["variables"] if row["moved"]}
            same = (v.path for v, value in zip(trained, before, strict=True) if np.array_equal(v.numpy(), value))
            self.still = sorted(moved.intersection(same).union(self._learner.train_step.unreached))
        if number and self.applied.index(self.applied[-1]) == number and not self.applied[-1]:
            self._learner.step.assign_sub(1)  # what dropout draws from
            self._look(number)
            self._learner.step.assign_add(1)
