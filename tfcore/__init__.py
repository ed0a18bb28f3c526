"""Everything that imports TensorFlow: transforms in the graph, input pipeline, training, evaluation, export.

Importing the package imports none of it: names come lazily, and the configs need no TensorFlow at all.

    from tfcore import Labeler, Shards, Transform, TransformParameters, training_dataset
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfcore.data.decode import Labeler
    from tfcore.data.pipeline import evaluation_dataset, safe, training_dataset
    from tfcore.data.shards import Holdout, Shards
    from tfcore.data.source import Feed
    from tfcore.models.config import ModelConfig
    from tfcore.train.settings.config import TrainingConfig
    from tfcore.transform.layer import Transform
    from tfcore.transform.parameters import TransformParameters
    from tfcore.transform.raw_column import RawColumn

_HOME = {
    "Holdout": "data.shards",
    "Feed": "data.source",
    "Labeler": "data.decode",
    "ModelConfig": "models.config",
    "RawColumn": "transform.raw_column",
    "Shards": "data.shards",
    "Transform": "transform.layer",
    "TransformParameters": "transform.parameters",
    "TrainingConfig": "train.settings.config",
    "evaluation_dataset": "data.pipeline",
    "safe": "data.pipeline",
    "training_dataset": "data.pipeline",
}

__all__ = [
    "Holdout",
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
