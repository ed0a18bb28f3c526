"""From raw columns to model inputs: configured, fitted on train statistics, run in the graph.

Names come lazily: only `Transform` and `RawColumn` need TensorFlow.

    from tfcore.transform import ColumnTransform, Transform, TransformParameters, fit
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfcore.transform.config import ColumnTransform, ImputeConfig, TransformConfig
    from tfcore.transform.layer import Transform
    from tfcore.transform.parameters import TransformParameters, TransformRequest, fit
    from tfcore.transform.raw_column import RawColumn

_HOME = {
    "ColumnTransform": "config",
    "ImputeConfig": "config",
    "RawColumn": "raw_column",
    "Transform": "layer",
    "TransformConfig": "config",
    "TransformParameters": "parameters",
    "TransformRequest": "parameters",
    "fit": "parameters",
}

__all__ = [
    "ColumnTransform",
    "ImputeConfig",
    "RawColumn",
    "Transform",
    "TransformConfig",
    "TransformParameters",
    "TransformRequest",
    "fit",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
