"""When the loss on a holdout of the train split has stopped falling; TensorFlow-free.

patience = Patience(EarlyStoppingConfig(patience=2))
patience.update(200, 0.51)      # True: the best so far
patience.update(400, 0.52)      # False
patience.exhausted              # False: one evaluation without improvement, two are allowed
"""

from __future__ import annotations

import math
from typing import Any

from tfcore.train.settings.config import EarlyStoppingConfig


class Patience:
    """Counts evaluations without improvement. `state()` and `restore()` make it survive a kill."""

    def __init__(self, config: EarlyStoppingConfig):
        self._config = config
        self.best_loss: float | None = None
        self.best_step: int | None = None
        self.without_improvement = 0

    def update(self, step: int, loss: float) -> bool:
        """Take the holdout's loss after `step`; true when it is the best. A loss that is no number never is."""
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
