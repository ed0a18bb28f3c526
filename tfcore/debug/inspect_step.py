"""Inspects one training step eagerly, op by op: what `headway debug step` runs in the TensorFlow process.

    debug_step(DebugRequest(train=request), Path("out"), monitor)
    # {"problems": [...], "inputs": [...], "layers": [...], "variables": [...], "graph": {...}, "profile": {...}, ...}

The step is that of the training: same rows, same model, same knobs; its first one, or the one after a checkpoint. It is run
once eagerly, then compiled together with those after it. `out` gets report.json, AutoGraph's code below autograph/, and
TensorBoard's profile below profile/; nothing else is written.
"""

import inspect
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from headway.errors import StoreError
from headway.monitor import Monitor
from headway.storage.prefetch import RemoteFiles, Stager
from headway.user_code.loading import load_function
from tfcore.debug.eager import eager_step
from tfcore.debug.findings import problems, starting
from tfcore.debug.graph_report import Graph, has_gpu_kernels
from tfcore.debug.profiling import profiled
from tfcore.debug.request import DebugRequest
from tfcore.distribute.placement import Choice, place
from tfcore.runtime.remote_shards import staged
from tfcore.train.request import TrainRequest
from tfcore.train.session import TrainingSession
from tfcore.train.steps.learner import Learner

REPORT = "report.json"


def debug_step(
    request: DebugRequest, out: Path, monitor: Monitor, *, remote: RemoteFiles | None = None
) -> dict[str, Any]:
    """Inspect one training step and write the report; see the module.

    Returns:
        problems: what `tfcore.debug.findings` found, first things first.
        step: which one was looked at: the first, or the first that was skipped.
        inputs, layers, variables, loss, gradient_norm, applied, eager_seconds: of that step, run eagerly.
        autograph: {functions: [{name, place, file, code}], says}: what AutoGraph makes of the preprocess function.
        graph: {ops, nodes, functions, devices, copies, fed_bytes (rows that a call is given), says,
        xla: {mode, refused}}.
        compiled: {first, losses, applied, seconds}; profile: {folder, files}, or None.

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
        profile = profiled(lambda i: walk.compiled(i + 1), steps - 1, folder)
        later = walk.later()
    out.mkdir(parents=True, exist_ok=True)
    report = {
        "problems": problems(walk.eager, walk.losses[walk.at :], walk.applied[walk.at :], walk.still, later),
        "step": training.start + walk.at,
        "rows": training.request.training.batch_size,
        "knobs": walk.knobs,
        "eager_seconds": walk.eager.pop("seconds"),
        **walk.eager,
        "autograph": _autograph(train, out),
        "graph": _graph(training.learner, walk.stack),
        "compiled": {
            "first": training.start,
            "losses": walk.losses,
            "applied": walk.applied,
            "seconds": profile.pop("seconds"),
        },
        "profile": profile or None,
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
        self.stack = next(self._stacks)
        self.losses: list[float | None] = []
        self.applied: list[bool] = []
        self.still: list[str] = []
        """Variables that the compiled step does not train though the eager one does."""
        self._look(0)

    def _look(self, number: int) -> None:
        used = (self._offset + number) % self._learner.stack
        values = self._training.knob_values(self._training.start + number - used, self._learner.stack)
        self.at, self.knobs = number, {name: float(value[used]) for name, value in values.items()}
        self._batch = {name: value[used] for name, value in self.stack.items()}
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
            self.stack = next(self._stacks)
        trained = self._learner.model.trainable_variables
        before = [] if number else [variable.numpy() for variable in trained]
        outcome = self._learner.run(
            self.stack,
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


def _autograph(train: TrainRequest, out: Path) -> dict[str, Any]:
    """The code that AutoGraph makes of the preprocess function, the only one of the user's that it converts."""
    says = "the training step is traced without AutoGraph: its loop is tf.while_loop, its branches tf.cond"
    users, derived = train.preprocess, train.transform.derived
    if (
        users is None
        or derived is None
        or isinstance(function := load_function(users, derived.function.partition(":")[2]), tf.Module)
    ):
        says += "; nothing is converted, so Python's if and for in a layer run while it is traced"
        return {"functions": [], "says": says}
    name, own = derived.function.partition(":")[2], getattr(inspect.unwrap(function), "__code__", None)
    try:
        code = tf.autograph.to_code(getattr(function, "python_function", function))
    except Exception as error:  # its source is not to be had, or AutoGraph does not understand it
        code = f"# AutoGraph cannot show it: {next(iter(str(error).splitlines()), type(error).__name__)}\n"
    file = out / "autograph" / f"{name}.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(code, encoding="utf-8")
    place = f"{users.name}:{own.co_firstlineno}" if own else users.name
    return {"functions": [{"name": name, "place": place, "file": str(file), "code": code}], "says": says}


def _graph(learner: Learner, stack: Mapping[str, tf.Tensor]) -> dict[str, Any]:
    graph = Graph.of(learner._run.trace())
    gpus = len(tf.config.list_physical_devices("GPU"))
    copies = graph.copies()
    if not has_gpu_kernels():
        copies = [row for row in copies if "no kernel" not in row["why"]]  # of anything
    which = "these nodes of the step" if copies else "no node of the step"
    if not gpus:
        says = f"there is one device here, the CPU, so nothing is copied; beside a GPU {which} would run on the CPU"
    elif copies:
        says = "these nodes of the step run on the CPU, though there is a GPU: what they read and give is copied"
    else:
        says = "every node of the step has a kernel for the GPU, so nothing is copied"
    return {
        "ops": graph.ops,
        "nodes": sum(graph.ops.values()),
        "functions": graph.functions,
        "devices": [device.name for device in tf.config.list_physical_devices()],
        "copies": copies,
        "fed_bytes": sum(math.prod(value.shape) * value.dtype.size for value in stack.values()),
        "says": says,
        "xla": {
            "mode": learner.mode,
            "refused": [refused] if (refused := learner._run.refused) else [],
        },
    }
