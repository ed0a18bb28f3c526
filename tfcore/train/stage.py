"""The training stage: shards and a fitted transform in, trained weights and a history out.

    train(TrainRequest(...), Path("out"), monitor)      # {"steps": 2000, "final_loss": 0.41, "traces": 1, ...}

`out` gets `weights` (a TensorFlow checkpoint of every model variable), `model.json` and `history.json`. It gets linear.npz,
the linear baseline of the same rows, if that is cheap, and for two_towers items.npz, the items of the train rows. With a
folder for checkpoints a killed or stopped training resumes from its last checkpoint. It ends with the same bits as one that
was never interrupted: same order of rows, same dropout masks, same compiled mode.
"""

import contextlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from headway.messages import counted
from headway.monitor import Monitor
from headway.storage.prefetch import RemoteFiles
from tfcore.data.reader import Shards, staged
from tfcore.models import build
from tfcore.models.linear import FILE as LINEAR
from tfcore.models.towers.item_index import FILE as ITEMS
from tfcore.train.callbacks import Checkpointing, EarlyStopping, Recorder, Summaries, Trial, optuna_prune
from tfcore.train.eager import eagerly
from tfcore.train.request import Pruning, TrainRequest
from tfcore.train.strategy import detect_placement, set_up
from tfcore.train.trainer import Callback, TrainingSession


def train(
    request: TrainRequest,
    out: Path,
    monitor: Monitor,
    *,
    remote: RemoteFiles | None = None,
    shards: Shards | None = None,
    pruning: Pruning | None = None,
) -> dict[str, Any]:
    """Train as `request` says; see the module. `shards`, if given, are used in place of the request's examples.

    Args:
        remote: fetches shards from a bucket while others are trained on; it does not change the result.
        pruning: the study that may end a trial early; ignored where several processes train.

    Returns:
        steps, rows (of one epoch), epochs, seconds, steps_per_second, final_loss, lowest_loss, best_loss and best_step
        (on the holdout), stopped ("end" or "early"), skipped (steps that were not finite), refused_images (how often
        TensorFlow could not decode one), traces, jit ("jit", "graph" or "eager"), threads, strategy, replicas, workers,
        parameters, resumed_from. After a warm start also warm_start; with float16 loss_scale (its last value, and the steps
        skipped to find it); in a trial holdout_loss, holdout_losses. A worker that is not the chief: only steps, worker.

    Raises:
        Cancelled: on request, after a checkpoint was saved.
        Pruned: `pruning` ended the trial.
        ConfigError, DataError, StoreError: with the place and what to do.
    """
    placement = detect_placement(request, shards=shards, log=monitor.log)
    gpus = len(tf.config.list_physical_devices("GPU"))
    with staged(remote, monitor) as stager:
        callbacks = default_callbacks(request, None if placement.workers > 1 else pruning)
        with eagerly() if request.training.eager else contextlib.nullcontext():
            session = TrainingSession(
                request, monitor, callbacks, stager=stager, shards=shards, devices=lambda: set_up(placement, gpus=gpus)
            )
            session.run()
        if not session.placement.chief:
            session.wait_for_chief()  # until it has written
            return {"steps": session.step, "worker": session.placement.worker}
        result = write(session, out)
        session.wait_for_chief()
        return result


def default_callbacks(request: TrainRequest, pruning: Pruning | None = None) -> list[Callback]:
    """Returns the callbacks that the request turns on: history, early stopping, summaries, trial, checkpoints."""
    config = request.training
    callbacks: list[Callback] = [Recorder()]
    early = EarlyStopping(config.early_stopping) if config.early_stopping else None
    if early:
        callbacks.append(early)
    if request.summaries and config.summaries:
        callbacks.append(Summaries(request.summaries))
    if request.trial:
        prune = optuna_prune(pruning) if pruning else None
        callbacks.append(Trial(request.trial, stops_early=early is not None, prune=prune))
    return [*callbacks, Checkpointing()]


def write(session: TrainingSession, out: Path) -> dict[str, Any]:
    """Write all output files into `out` (see the module), and return the result of `train`."""
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
    """Returns the points of the training's history, each with a step and the figures that were recorded at it."""
    return _recorder(session).history


def facts(session: TrainingSession) -> dict[str, Any]:
    """Returns the result of `train`. Logs warnings about skipped steps and refused images."""
    step, recorder = session.step, _recorder(session)
    early = next((callback for callback in session.callbacks if isinstance(callback, EarlyStopping)), None)
    if lost := recorder.skipped - recorder.retryable:
        session.monitor.warn(
            f"{counted(lost, 'step was', 'steps were')} skipped: their loss or gradients were not finite"
        )
    if session.data.refused_images:
        session.monitor.warn(
            f"TensorFlow refused images {counted(session.data.refused_images, 'time')}; they were skipped"
        )
    losses = [point["loss"] for point in recorder.history if point.get("loss") is not None]
    result = {
        "steps": step,
        "rows": session.data.rows.count,
        "epochs": round(session.data.epochs(step), 4),
        "seconds": round(session.seconds, 3),
        "steps_per_second": recorder.steps_per_second,
        "final_loss": losses[-1] if losses else None,
        "lowest_loss": min(losses) if losses else None,
        "best_loss": early.best_loss if early else None,
        "best_step": early.best_step if early else None,
        "stopped": session.end_reason,
        "skipped": recorder.skipped,
        "refused_images": session.data.refused_images,
        "traces": session.learner.traces,
        "jit": session.learner.mode,
        "threads": session.threads,
        **session.placement.facts(),
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
    return next(callback for callback in session.callbacks if isinstance(callback, Recorder))


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
