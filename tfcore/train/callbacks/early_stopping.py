"""Early stopping: ends a training when the loss on a holdout of the train split has stopped falling.

The best weights are kept in variables of their own, which every checkpoint holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfcore.train.checkpoints import Variables
from tfcore.train.session import Callback, PeriodicAction, TrainingSession
from tfcore.train.settings.config import EarlyStoppingConfig
from tfcore.train.settings.patience import Patience


class EarlyStopping(Callback):
    """Looks at the loss on the holdout every so many steps; the best weights are the model's in the end."""

    name = "patience"

    def __init__(self, config: EarlyStoppingConfig):
        self.patience, self.every_steps = Patience(config), config.every_steps
        self.last: tuple[int, float] | None = None
        """Step and loss of the last look at the holdout."""
        self._best: list[tf.Variable] = []

    def build(self, session: TrainingSession) -> None:
        self._best = [tf.Variable(v.value, trainable=False) for v in session.model.variables]

    def actions(self, session: TrainingSession) -> Sequence[PeriodicAction]:
        return [PeriodicAction(self.every_steps, lambda step: self._look(session), at_end=True)]

    def _look(self, session: TrainingSession) -> bool:
        """Evaluate and keep the best weights; true when the loss has not fallen for too long."""
        step, loss = session.step, session.evaluate()
        if self.patience.update(step, loss):
            for best, variable in zip(self._best, session.model.variables, strict=True):
                best.assign(variable.value)
        self.last = step, loss
        session.record(holdout_loss=loss)
        if self.patience.exhausted:
            session.monitor.log(
                f"stopped at step {step}: the loss on the holdout has not fallen since step {self.patience.best_step}"
            )
        return self.patience.exhausted

    def over(self) -> bool:
        return self.patience.exhausted

    def finish(self, session: TrainingSession) -> None:
        if self.patience.best_step is not None:
            for variable, best in zip(session.model.variables, self._best, strict=True):
                variable.assign(best)

    def variables(self) -> Variables:
        return {"best": self._best}

    def state(self) -> dict[str, Any]:
        return self.patience.state()

    def restore(self, state: dict[str, Any]) -> None:
        self.patience.restore(state)
