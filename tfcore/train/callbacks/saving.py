"""The checkpoints of a training: what one holds, when one is taken, and going on from one.

save(training, step, began)              # once for a step; save_best where the carve's loss is among the best
resume(training, checkpoints.newest())   # at the step it was taken after, with the knobs, the history and the patience
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headway.messages import counted
from tfcore.train.callbacks.checkpoint import Found, Variables

if TYPE_CHECKING:
    from tfcore.train.stage import _Training


def variables(training: _Training) -> Variables:
    """What a checkpoint holds: the learner's, and the best weights so far."""
    return training.learner.variables() | ({"best": training.best} if training.best else {})


def save_best(training: _Training, step: int, began: float) -> None:
    """`save`, where the carve's loss is among the best."""
    assert training.checkpoints is not None and training.carved is not None
    if training.checkpoints.among_best(training.carved[1]):
        save(training, step, began)


def save(training: _Training, step: int, began: float) -> None:
    """Take the checkpoint of `step`, once; the loop began at `began` (time.monotonic)."""
    if training.checkpoints is None or training.learner.mode is None or training.saved == step:
        return  # nowhere to, nothing ran yet, or it is there
    state = {
        "jit": training.learner.mode,
        "threads": training.threads,
        "devices": training.placement.facts(),
        "seconds": training.seconds + time.monotonic() - began,
        "recorder": training.recorder.state(),
        "ending": training.learner.ending.state(),
        "knobs": training.knobs.state(),
        "patience": training.patience.state() if training.patience else None,
    }
    loss = training.carved[1] if training.carved and training.carved[0] == step else None
    training.checkpoints.save(step, variables(training), state, loss=loss)
    training.saved = step


def resume(training: _Training, found: Found) -> None:
    """Go on from a checkpoint, and warn of what may change the last bits."""
    assert training.checkpoints is not None
    with training.placement.scope():
        training.checkpoints.restore(found, variables(training))
    training.start = training.reached = found.step
    training.seconds = found.state["seconds"]
    training.knobs.restore(found.state["knobs"])
    training.recorder.restore(found.state["recorder"])
    training.learner.ending.restore(found.state.get("ending", {}))
    if training.patience and found.state["patience"]:
        training.patience.restore(found.state["patience"])
    training.monitor.log(f"resumed at step {found.step:,} of {training.total:,}")
    if found.state["threads"] != training.threads:
        training.monitor.log(
            f"warning: the checkpoint was taken with {counted(found.state['threads'], 'thread')} and {training.threads} run now, "
            "so the last bits of the weights may differ from an uninterrupted training's"
        )
    now = training.placement.facts()
    if (then := found.state.get("devices", now)) != now:
        training.monitor.log(
            f"warning: the checkpoint was taken with {then['strategy']} and {counted(then['replicas'], 'replica')}, and now "
            f"it is {now['strategy']} and {now['replicas']}: the last bits of the weights may differ from an uninterrupted "
            "training's"
        )
