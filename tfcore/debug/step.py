"""One training step under the glass: what `headway debug step` runs in the TensorFlow process.

    debug_step(DebugRequest(train=request), Path("out"), monitor)
    # {"problems": [...], "inputs": [...], "layers": [...], "variables": [...], "graph": {...}, "profile": {...}, ...}

The step is that of the training: same rows, same model, same knobs; its first one, or the one after a checkpoint. It is run
once eagerly, then compiled together with those after it. `out` gets report.json, AutoGraph's code below autograph/, and
TensorBoard's profile below profile/; nothing else is written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from headway.errors import StoreError
from headway.monitor import Monitor
from headway.stager import RemoteFiles
from tfcore.debug.converted import Converted, conversions
from tfcore.debug.eager import eager_step
from tfcore.debug.findings import problems
from tfcore.debug.graphs import Graph, has_gpu_kernels
from tfcore.debug.pieces import pieces
from tfcore.debug.profiling import profiled
from tfcore.debug.request import DebugRequest
from tfcore.staged import staged
from tfcore.train.learner import Learner

REPORT = "report.json"


def debug_step(
    request: DebugRequest, out: Path, monitor: Monitor, *, remote: RemoteFiles | None = None
) -> dict[str, Any]:
    """See the module.

    Returns:
        problems: what `tfcore.debug.findings` found, first things first.
        inputs, layers, variables, loss, gradient_norm, applied, eager_seconds: of the eager step.
        autograph: {functions: [{name, place, file}], says}: what AutoGraph converted of the user's code and of Headway's.
        graph: {ops, nodes, functions, devices, copies, fed_bytes (rows that a call is given), says,
        xla: {mode, refused, ops}}.
        compiled: {losses, applied, seconds}; profile: {folder, files, top}, or None.

    Raises:
        ConfigError, DataError, StoreError: as a training would; HeadwayError: a layer raised.
    """
    train = request.train
    users = [file for file in (train.module, train.preprocess) if file is not None]
    said: list[str] = []
    with (
        staged(remote, monitor) as stager,
        conversions([*users, Path(__file__).parents[1]]) as functions,
        pieces(train, _Listening(monitor, said), stager, request.checkpoints) as training,
    ):
        learner = training.learner
        # no further than the training goes, so that every knob has a value
        start = training.start
        steps = min(request.steps, training.total - start)
        if not steps:
            raise StoreError(f"the newest is of the training's end, step {start:,}", where=str(request.checkpoints))
        offset = start % training.stack
        stacks = training.data.stacks(training.stack)(start - offset)
        stack = next(stacks)
        knobs = {
            name: float(values[offset]) for name, values in training._values(start - offset, training.stack).items()
        }
        monitor.log(f"step {start:,} eagerly: {training.request.training.batch_size:,} rows")
        eager = eager_step(learner, {name: value[offset] for name, value in stack.items()}, knobs)
        monitor.check()
        losses: list[float | None] = []
        applied: list[bool] = []

        def compiled(number: int) -> None:
            nonlocal stack
            used = (offset + number) % learner.stack
            if number and not used:
                stack = next(stacks)
            outcome = learner.run(
                stack,
                first=used,
                steps=1,
                knobs=training._values(start + number - used, learner.stack),
                micro_batches=training.request.training.micro_batches,
            )
            if not len(outcome.losses):
                return  # too many steps in a row were not finite: the training would have ended
            losses.append(float(outcome.losses[0]) if np.isfinite(outcome.losses[0]) else None)
            applied.append(bool(outcome.applied[0] or outcome.excused[0]))

        monitor.log("the same compiled")
        compiled(0)
        monitor.check()
        told = profiled(
            lambda i: compiled(i + 1), steps - 1, out / "profile" if request.profile and steps > 1 else None
        )
    out.mkdir(parents=True, exist_ok=True)
    report = {
        "problems": problems(eager, losses, applied),
        "step": start,
        "rows": training.request.training.batch_size,
        "knobs": knobs,
        "eager_seconds": eager.pop("seconds"),
        **eager,
        "autograph": _autograph([Converted.of(function) for function in functions], out, bool(users)),
        "graph": _graph(learner, stack, said),
        "compiled": {"losses": losses, "applied": applied, "seconds": told.pop("seconds")},
        "profile": told or None,
    }
    (out / REPORT).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return report


class _Listening(Monitor):
    """Passes everything on, and keeps what was said."""

    def __init__(self, inner: Monitor, said: list[str]):
        super().__init__(inner.stop)
        self._inner, self._said = inner, said

    def progress(self, done: float, total: float | None, unit: str, **facts: Any) -> None:
        self._inner.progress(done, total, unit, **facts)

    def log(self, line: str) -> None:
        self._said.append(line)
        self._inner.log(line)


def _autograph(converted: list[Converted], out: Path, users: bool) -> dict[str, Any]:
    functions = []
    for number, one in enumerate(converted):
        folder = out / "autograph"
        folder.mkdir(exist_ok=True)
        file = folder / f"{number:02d}_{''.join(c if c.isalnum() else '_' for c in one.name)}.py"
        file.write_text(one.code, encoding="utf-8")
        functions.append({"name": one.name, "place": one.place, "file": str(file), "code": one.code})
    says = "the training step is traced without AutoGraph: its loop is tf.while_loop, its branches tf.cond"
    if users and not functions:
        says += "; nothing of the user's module is converted, so Python's if and for in a layer run while it is traced"
    return {"functions": functions, "says": says}


def _graph(learner: Learner, stack: Mapping[str, tf.Tensor], said: list[str]) -> dict[str, Any]:
    graph = Graph.of(learner._run.trace())
    gpus = len(tf.config.list_physical_devices("GPU"))
    copies = graph.copies()
    if not has_gpu_kernels():
        copies = [one for one in copies if "no kernel" not in one["why"]]  # of anything
    which = "these nodes of the step" if copies else "no node of the step"
    if gpus:
        says = f"{which} run on the CPU, though there is a GPU: what they read and give is copied"
    else:
        says = f"there is one device here, the CPU, so nothing is copied; beside a GPU {which} would run on the CPU"
    refused = [line for line in said if "XLA cannot compile" in line]
    return {
        "ops": graph.ops,
        "nodes": sum(graph.ops.values()),
        "functions": graph.functions,
        "devices": [device.name for device in tf.config.list_physical_devices()],
        "copies": copies,
        "fed_bytes": sum(math.prod(value.shape) * value.dtype.size for value in stack.values()),
        "says": says,
        "xla": {"mode": learner.mode, "refused": refused, "ops": graph.breaks_xla() if learner.mode != "jit" else []},
    }
