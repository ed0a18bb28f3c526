"""Training: many steps in one compiled program, exact resume, early stopping on a holdout of train.

Names come lazily: `config` and `schedule` need no TensorFlow, the rest does.

    from tfcore.train import TrainingConfig, TrainRequest, train
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfcore.train.request import TrainRequest
    from tfcore.train.settings.config import TrainingConfig
    from tfcore.train.stage import train

_HOME = {"TrainingConfig": "settings.config", "TrainRequest": "request", "train": "stage"}

__all__ = ["TrainRequest", "TrainingConfig", "train"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
