"""Everything that imports TensorFlow: transforms in the graph, input pipeline, training, evaluation, export.

Importing the package imports none of it: names come lazily, and the configs need no TensorFlow at all.

    from tfcore import Labeler, Shards, Transform, TransformParameters, training_dataset
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfcore.dataset import evaluation_dataset, safe, training_dataset
    from tfcore.decode import Labeler
    from tfcore.feeds import Feed
    from tfcore.models_config import ModelConfig
    from tfcore.shards import Carve, Shards
    from tfcore.train.config import TrainingConfig
    from tfcore.transform.graph import RawColumn, Transform
    from tfcore.transform.parameters import TransformParameters

_HOME = {
    "Carve": "shards",
    "Feed": "feeds",
    "Labeler": "decode",
    "ModelConfig": "models_config",
    "RawColumn": "transform.graph",
    "Shards": "shards",
    "Transform": "transform.graph",
    "TransformParameters": "transform.parameters",
    "TrainingConfig": "train.config",
    "evaluation_dataset": "dataset",
    "safe": "dataset",
    "training_dataset": "dataset",
}

__all__ = [
    "Carve",
    "Feed",
    "Labeler",
    "ModelConfig",
    "RawColumn",
    "Shards",
    "TrainingConfig",
    "Transform",
    "TransformParameters",
    "evaluation_dataset",
    "safe",
    "training_dataset",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
