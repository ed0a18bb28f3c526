"""Computes a training's result and writes its output.

facts(session)               # {"steps": 2000, "final_loss": 0.41, ...}
write(session, out)          # the same; weights, model.json, history.json;
                             # and linear.npz, the linear baseline of the same rows, where that is cheap;
                             # of two towers items.npz, the items of the train rows
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from headway.messages import counted
from tfcore.models import build
from tfcore.models.linear import FILE as LINEAR
from tfcore.models.towers.item_index import FILE as ITEMS
from tfcore.train.callbacks.early_stopping import EarlyStopping
from tfcore.train.callbacks.history import History, Recorder
from tfcore.train.callbacks.trial import Trial
from tfcore.train.session import TrainingSession


def write(session: TrainingSession, out: Path) -> dict[str, Any]:
    """Write the weights, the model's description and the history; the answer of `tfcore.train.stage.train`."""
    request = session.request
    out.mkdir(parents=True, exist_ok=True)
    build.save_weights(session.model, out / build.WEIGHTS)
    result = facts(session)
    if request.trial is None and (linear := session.data.linear_baseline()) is not None:
        linear.save(out / LINEAR)
    if (items := session.data.items(request.model)) is not None:
        np.savez(out / ITEMS, **items)  # type: ignore[arg-type]
    model = {
        "model": request.model.model_dump(mode="json"),
        "seed": request.seed,
        "task": request.transform.label.task,
    }
    _write(
        out / "model.json", model | {"weights": build.WEIGHTS, "variables": [v.path for v in session.model.variables]}
    )
    _write(out / "history.json", {"history": history(session), "result": result})
    return result


def history(session: TrainingSession) -> list[dict[str, Any]]:
    """The figures that were recorded in the training, by step."""
    return _recorder(session).history


def facts(session: TrainingSession) -> dict[str, Any]:
    """What the training came to; logs warnings of what was skipped."""
    step, recorder = session.step, _recorder(session)
    early = next((callback.patience for callback in session.callbacks if isinstance(callback, EarlyStopping)), None)
    epochs = session.data.epochs(step)
    if lost := recorder.skipped - recorder.retryable:
        session.monitor.warn(
            f"{counted(lost, 'step was', 'steps were')} skipped: their loss or gradients were not finite"
        )
    if session.data.images.refused:
        session.monitor.warn(
            f"TensorFlow refused images {counted(session.data.images.refused, 'time')}; they were skipped"
        )
    losses = [point["loss"] for point in recorder.history if point.get("loss") is not None]
    result = {
        "steps": step,
        "rows": session.data.rows,
        "epochs": None if epochs is None else round(epochs, 4),
        "seconds": round(session.seconds, 3),
        "steps_per_second": recorder.steps_per_second,
        "final_loss": losses[-1] if losses else None,
        "lowest_loss": min(losses) if losses else None,
        "best_loss": early.best_loss if early else None,
        "best_step": early.best_step if early else None,
        "stopped": session.stopped,
        "skipped": recorder.skipped,
        "refused_images": session.data.images.refused,
        "traces": session.learner.traces,
        "jit": session.learner.mode,
        "threads": session.threads,
        **session.placement.facts(),
        **session.data.facts(session.model),
        "parameters": int(sum(math.prod(v.shape) for v in session.model.trainable_variables)),
        "resumed_from": session.start or None,
    }
    if (scale := session.learner.train_step.scale) is not None:
        result["loss_scale"] = {"value": float(scale.value.numpy()), "skipped": recorder.retryable}
    if session.warm_start is not None:
        result["warm_start"] = session.warm_start
    if (trial := next((callback for callback in session.callbacks if isinstance(callback, Trial)), None)) is not None:
        result |= trial.facts()
    return result


def _recorder(session: TrainingSession) -> Recorder:
    return next(callback.recorder for callback in session.callbacks if isinstance(callback, History))


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
