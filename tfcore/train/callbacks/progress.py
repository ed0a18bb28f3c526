"""What is looked at while a training runs: what each call gave, the points of its history, the loss on the carve.

Every(history_steps(training), partial(point, training), at_end=True)
if look_at_carve(training, step): ...    # the loss has not fallen for too long
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tfcore.train.steps.learner import Outcome

if TYPE_CHECKING:
    from tfcore.train.stage import _Training

HISTORY_POINTS = 200


def report(training: _Training, step: int, outcome: Outcome) -> None:
    """After each call of the compiled steps."""
    training.reached = step
    training.recorder(step, outcome)
    training.guard.check()
    if training.learner.ending.reason == "loss":
        training.monitor.log(f"stopped at step {step}: the training loss has fallen to training.stop_at_loss")


def history_steps(training: _Training) -> int:
    """Steps between two points of the history: a multiple of the stack, so that calls stay whole."""
    return training.stack * max(1, math.ceil(training.total / HISTORY_POINTS / training.stack))


def point(training: _Training, step: int) -> None:
    """A point of the history, and of the summaries."""
    knobs = training.knobs.at(step - 1)
    facts = training.recorder.point(step, **knobs)
    training.summaries.write(step, loss=facts["loss"], **knobs)


def look_at_carve(training: _Training, step: int) -> bool:
    """The loss on the carve: the best weights are kept; true when it has not fallen for too long."""
    assert training.patience is not None
    loss = training.learner.evaluate(training.data.carve())
    better = training.patience.update(step, loss)
    if better:
        for best, variable in zip(training.best, training.model.variables, strict=True):
            best.assign(variable.value)
    training.carved = step, loss
    training.recorder.carve(step, loss)
    training.summaries.write(step, carve_loss=loss)
    if training.patience.exhausted:
        training.monitor.log(
            f"stopped at step {step}: the loss on the carve has not fallen since step {training.patience.best_step}"
        )
    return training.patience.exhausted
