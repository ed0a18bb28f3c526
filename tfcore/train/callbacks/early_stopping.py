"""Early stopping: ends a training when the loss on a holdout of the train split has stopped falling.

The best weights are kept in variables of their own, which every checkpoint holds.
"""

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfcore.train.checkpoints import Variables
from tfcore.train.session import Callback, PeriodicAction, TrainingSession
from tfcore.train.settings.config import EarlyStoppingConfig


class Patience:
    """Counts evaluations without improvement. `state()` and `restore()` make it survive a kill.

    patience.update(200, 0.51)      # True: the lowest loss so far
    patience.exhausted              # False
    """

    def __init__(self, config: EarlyStoppingConfig):
        self._config = config
        self.best_loss: float | None = None
        self.best_step: int | None = None
        self.without_improvement = 0

    def update(self, step: int, loss: float) -> bool:
        """Take the holdout's loss after `step`; true when it is the best. One that is not finite never is."""
        better = math.isfinite(loss) and (self.best_loss is None or loss < self.best_loss - self._config.min_delta)
        if better:
            self.best_loss, self.best_step, self.without_improvement = loss, step, 0
        else:
            self.without_improvement += 1
        return better

    @property
    def exhausted(self) -> bool:
        return self.without_improvement >= self._config.patience

    def state(self) -> dict[str, Any]:
        return {
            "best_loss": self.best_loss,
            "best_step": self.best_step,
            "without_improvement": self.without_improvement,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.best_loss, self.best_step = state["best_loss"], state["best_step"]
        self.without_improvement = state["without_improvement"]


class EarlyStopping(Callback):
    """Looks at the loss on the holdout every so many steps; the best weights are the model's in the end."""

    name = "patience"

    def __init__(self, config: EarlyStoppingConfig):
        self.patience, self.every_steps = Patience(config), config.every_steps
        self._best: list[tf.Variable] = []

    def build(self, session: TrainingSession) -> None:
        self._best = [tf.Variable(v.value, trainable=False) for v in session.model.variables]

    def actions(self, session: TrainingSession) -> Sequence[PeriodicAction]:
        if not session.data.has_holdout:
            return []
        return [PeriodicAction(self.every_steps, lambda step: self._look(session), at_end=True)]

    def _look(self, session: TrainingSession) -> bool:
        """Evaluate and keep the best weights; true when the loss has not fallen for too long."""
        step, loss = session.step, session.evaluate()
        if self.patience.update(step, loss):
            for best, variable in zip(self._best, session.model.variables, strict=True):
                best.assign(variable.value)
        session.record_holdout(loss)
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
