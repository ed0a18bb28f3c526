"""The requests of the evaluation and importance stages; TensorFlow-free.

EvaluateRequest(model={"kind": "trained", "path": "/...", "config": {"name": "mlp"}}, transform={...}, examples=[...])
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from headway.config import Frozen
from tfcore.data.examples import Examples
from tfcore.models.config import ModelConfig
from tfcore.transform.parameters import TransformParameters

VERSION = 6
"""Raised by whoever changes what evaluation writes for the same request."""


class TrainedModel(Frozen):
    """A training's output, and what the model is rebuilt from."""

    kind: Literal["trained"] = "trained"
    path: Path
    config: ModelConfig = Field(default_factory=ModelConfig)
    seed: int = 0
    module: Path | None = None
    preprocess: Path | None = None
    """The user's Python file, if there is a preprocess function."""


class SavedModel(Frozen):
    """A published version; it is called through its own signature on raw columns."""

    kind: Literal["saved_model"] = "saved_model"
    path: Path


class EvaluateRequest(Frozen):
    """Which model predicts which rows."""

    model: Annotated[TrainedModel | SavedModel, Field(discriminator="kind")]
    transform: TransformParameters = Field(description="of this run: what the label is, and a trained model's inputs")
    examples: tuple[Examples, ...] = Field(default=(), description="none where the rows come from a feed")
    columns: tuple[str, ...] = Field(
        default=(), description="stored columns that the predictions keep: those of slices, the group, keys"
    )
    item: str | None = Field(default=None, description="the column that names the item of a row, for its baselines")
    group: str | None = Field(default=None, description="the column of a row's group, whose train items are left out")
    ranks: int | None = Field(
        default=None, ge=1, description="rank each row's item among all, and keep the best so many"
    )
    train: tuple[Examples, ...] = Field(default=(), description="the train rows, for the item's baselines")
    batch_size: int = Field(default=4096, ge=1)


class ImportanceRequest(Frozen):
    """Which trained model, and on which rows."""

    model: TrainedModel
    transform: TransformParameters
    examples: tuple[Examples, ...]
    group: str | None = Field(default=None, description="column whose equal values belong together")
    rows: int = Field(default=10_000, ge=20, description="at most so many rows, evenly spread over the split")
    seed: int = 0
