"""The training stage: shards and a fitted transform in, trained weights and a history out.

    train(TrainRequest(...), Path("out"), monitor)      # {"steps": 2000, "final_loss": 0.41, "traces": 1, ...}

`out` gets `weights` (a TensorFlow checkpoint of every model variable), `model.json` and `history.json`. Given a folder
for checkpoints, a killed or stopped training continues where the last checkpoint was taken and ends at the same bits as
one that was never interrupted: same order of rows, same masks, same compiled mode.
"""

import contextlib
from pathlib import Path
from typing import Any

import tensorflow as tf

from headway.monitor import Monitor
from headway.storage.prefetch import RemoteFiles
from tfcore.data.source import Feed
from tfcore.distribute.placement import place
from tfcore.runtime.remote_shards import staged
from tfcore.train.callbacks.checkpointing import Checkpointing
from tfcore.train.callbacks.early_stopping import EarlyStopping
from tfcore.train.callbacks.history import History
from tfcore.train.callbacks.summaries import Summaries
from tfcore.train.callbacks.trial import Trial, optuna_prune
from tfcore.train.request import VERSION, Pruning, TrainRequest
from tfcore.train.result import write
from tfcore.train.session import Callback, TrainingSession
from tfcore.train.steps.eager import eagerly
from tfcore.train.strategy import chosen

__all__ = ["VERSION", "train"]


def train(
    request: TrainRequest,
    out: Path,
    monitor: Monitor,
    *,
    remote: RemoteFiles | None = None,
    feed: Feed | None = None,
    pruning: Pruning | None = None,
) -> dict[str, Any]:
    """Train as `request` says; see the module. With a `feed`, on its rows instead of the request's examples.

    Args:
        remote: how shards that are in a bucket yet come here while others are trained on; changes no result.
        pruning: the study that may end a trial early; not asked where several processes train.

    Returns:
        steps, rows (of one epoch), epochs, seconds, steps_per_second, final_loss, lowest_loss, best_loss and best_step
        (on the holdout), stopped ("end" or "early"), skipped (steps that were not finite), refused_images (that TensorFlow
        could not decode, each time they were read), traces, jit ("jit", "graph" or "eager"), threads, strategy, replicas,
        workers, parameters, resumed_from; of float16 also loss_scale (its last value, and the steps skipped to find it); of a
        trial holdout_loss and holdout_losses.

    Raises:
        Cancelled: on request, after a checkpoint was saved.
        Pruned: `pruning` ended the trial.
        ConfigError, DataError, StoreError: with the place and what to do.
    """
    choice = chosen(request, feed=feed, log=monitor.log)
    gpus = len(tf.config.list_physical_devices("GPU"))
    with staged(remote, monitor) as stager:
        callbacks = default_callbacks(request, None if choice.workers > 1 else pruning)
        with eagerly() if request.training.eager else contextlib.nullcontext():
            session = TrainingSession(
                request, monitor, callbacks, stager=stager, feed=feed, placed=lambda: place(choice, gpus=gpus)
            )
            session.run()
        if not session.placement.chief:
            session.wait_for_chief()  # until it has written
            return {"steps": session.step, "worker": session.placement.worker}
        result = write(session, out)
        session.wait_for_chief()
        return result


def default_callbacks(request: TrainRequest, pruning: Pruning | None = None) -> list[Callback]:
    """Return the callbacks that the request enables: history, early stopping, summaries, trial, checkpoints."""
    config = request.training
    callbacks: list[Callback] = [History()]
    early = EarlyStopping(config.early_stopping) if config.early_stopping else None
    if early:
        callbacks.append(early)
    if request.summaries and config.summaries:
        callbacks.append(Summaries(request.summaries))
    if request.trial:
        prune = optuna_prune(pruning) if pruning else None
        callbacks.append(Trial(request.trial, stops_early=early is not None, prune=prune))
    return [*callbacks, Checkpointing()]
