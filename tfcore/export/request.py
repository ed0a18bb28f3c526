"""The request of the export stage, and its answer; TensorFlow-free.

ExportRequest(trained="/...", transform={...}, model={"name": "mlp"}, card=CardFacts(model="flights"))
"""

from pathlib import Path
from typing import Annotated, Any

from headway.config import Result
from headway.stages.refs import Ref
from headway.stages.stage_class import Key
from headway.storage.fingerprint import fingerprint
from tfcore.export.model_card import CardFacts
from tfcore.models.config import ModelConfig
from tfcore.transform.parameters import OfTransform

VERSION = 10
"""The version of the stage, to be increased when it writes something else for the same request."""


class Exported(Result):
    """The answer of the export stage."""

    saved_model: str
    """The name of the SavedModel's folder in the output."""


class ExportRequest(OfTransform[Exported]):
    """The request of the export stage: a trained model's weights, and what the model is built from."""

    name, version, runs, tensorflow = "export", VERSION, "tfcore.export.saved_model:export", True
    card: Annotated[
        CardFacts | None, Key(of=lambda card: card and fingerprint(card.model_dump(mode="json")), always=True)
    ] = None
    """The facts of the run for the model card; None: no card is written."""
    trained: Annotated[Ref[Any], Key("inputs", "train")]
    model: ModelConfig
    module: Path | None = None
    """The user's Python file, if the model is a function of it."""
    preprocess: Path | None = None
    """The user's Python file, if there is a preprocess function."""
    seed: int = 0
