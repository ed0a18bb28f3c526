"""The request of the export stage, and its answer; TensorFlow-free.

ExportRequest(trained="/...", transform={...}, model={"name": "mlp"}, card=CardFacts(model="flights"))
"""

from __future__ import annotations

from pathlib import Path

from headway.config import Frozen, Result
from tfcore.export.metadata import Format, OtherFormats
from tfcore.export.model_card import CardFacts
from tfcore.models.config import ModelConfig
from tfcore.transform.parameters import TransformParameters


class ExportRequest(Frozen):
    """A trained model: where its weights are and what it was built from."""

    trained: Path
    """Output of the train stage, with the weights."""
    transform: TransformParameters
    model: ModelConfig
    module: Path | None = None
    """The user's Python file, if the model is a function of it."""
    preprocess: Path | None = None
    """The user's Python file, if there is a preprocess function."""
    seed: int = 0
    card: CardFacts | None = None
    """What the model card says beyond what the model itself shows."""
    formats: tuple[Format, ...] = ()
    """In which other formats the model is written."""


class Exported(Result):
    """What an export wrote."""

    saved_model: str
    """A folder of the output."""
    formats: OtherFormats | None = None
    """The model in other formats."""
