"""What a training leaves in its output, and what it answers.

finish(training, out, step, stopped)     # {"steps": 2000, "final_loss": 0.41, ...}; model.json, history.json, best/;
                                         # and linear.npz, a linear model of the same rows, where that is cheap
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.messages import counted
from tfcore.models import build
from tfcore.models.linear import FILE as LINEAR
from tfcore.train.callbacks.checkpoint import VARIABLES, Found

if TYPE_CHECKING:
    from tfcore.train.stage import _Training


def finish(training: _Training, out: Path, step: int, stopped: str) -> dict[str, Any]:
    """Write the model's description and the history; the answer, as `tfcore.train.stage.train` gives it."""
    request, config = training.request, training.request.training
    epochs = training.data.epochs(step)
    history = training.recorder.history
    if lost := training.recorder.skipped - training.recorder.excused:
        training.monitor.log(
            f"warning: {counted(lost, 'step was', 'steps were')} skipped: their loss or gradients were not finite"
        )
    if training.data.images.refused:
        training.monitor.log(
            f"warning: TensorFlow refused images {counted(training.data.images.refused, 'time')}; they were skipped"
        )
    losses = [point["loss"] for point in history if point.get("loss") is not None]
    result = {
        "steps": step,
        "rows": training.data.rows,
        "epochs": None if epochs is None else round(epochs, 4),
        "seconds": round(training.seconds, 3),
        "steps_per_second": training.recorder.steps_per_second,
        "final_loss": losses[-1] if losses else None,
        "lowest_loss": min(losses) if losses else None,
        "best_loss": training.patience.best_loss if training.patience else None,
        "best_step": training.patience.best_step if training.patience else None,
        "stopped": stopped,
        "skipped": training.recorder.skipped,
        "refused_images": training.data.images.refused,
        "traces": training.learner.traces,
        "jit": training.learner.mode,
        "threads": training.threads,
        **training.placement.facts(),
        **training.data.facts(training.model),
        "parameters": int(sum(math.prod(v.shape) for v in training.model.trainable_variables)),
        "resumed_from": training.start or None,
        "knob_changes": training.knobs.changes,
    }
    if (scale := training.learner.one.scale) is not None:
        result["loss_scale"] = {"value": float(scale.value.numpy()), "skipped": training.recorder.excused}
    if config.keep_best and training.checkpoints:
        result["best_checkpoints"] = [_keep(found, out) for found in training.checkpoints.best()]
    if (linear := training.data.linear_baseline()) is not None:
        linear.save(out / LINEAR)
    model = {
        "model": request.model.model_dump(mode="json"),
        "seed": request.seed,
        "task": request.transform.label.task,
    }
    _write(
        out / "model.json", model | {"weights": build.WEIGHTS, "variables": [v.path for v in training.model.variables]}
    )
    _write(out / "history.json", {"history": history, "result": result})
    return result


def _keep(found: Found, out: Path) -> dict[str, Any]:
    """The model's weights of a checkpoint, into the output: checkpoints go when a training is done."""
    prefix = Path("best") / str(found.step) / build.WEIGHTS
    (out / prefix).parent.mkdir(parents=True, exist_ok=True)
    build.extract_weights(found.path / VARIABLES, out / prefix)
    return {"step": found.step, "carve_loss": found.loss, "weights": str(prefix)}


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
