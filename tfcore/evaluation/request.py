"""The request of the evaluation stage, and its answer; TensorFlow-free.

EvaluateRequest(model={"kind": "trained", "path": "/...", "config": {"name": "mlp"}}, transform={...}, examples=[...])
Evaluated.model_validate(result).of("auc").value
Evaluated.model_validate(result).importance.columns[0].permuted
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from headway.config import Frozen, Result
from headway.evaluation.measured import Interval, Metrics
from headway.stages.refs import Examples, Ref
from headway.stages.stage_class import Key
from tfcore.models.config import ModelConfig
from tfcore.transform.parameters import OfTransform

VERSION = 9
"""The version of the stage, to be increased when it writes something else for the same request."""


class TrainedModel(Frozen):
    """The output of a training, and the settings from which its model is rebuilt."""

    kind: Literal["trained"] = "trained"
    path: Ref[Any]
    config: ModelConfig = Field(default_factory=ModelConfig)
    seed: int = 0
    module: Path | None = None
    preprocess: Path | None = None
    """The user's Python file, if there is a preprocess function."""

    def as_key(self) -> object:
        return {"train": self.path}


class SavedModel(Frozen):
    """A published model version, which is called with raw columns through its signature."""

    kind: Literal["saved_model"] = "saved_model"
    path: Ref[Any]
    version: int | None = None
    export: str | None = None
    """The fingerprint of the export stage's output that was published as this version."""

    def as_key(self) -> object:
        return {"version": self.version, "export": self.export}


class ColumnImportance(Result):
    column: str
    permuted: float | None = None
    """How much worse the metric is with the column's values permuted."""
    interval: Interval | None = None


class Importance(Result):
    """How much each raw column matters to a model."""

    metric: str
    value: float | None = None
    """The metric of the model as it is."""
    rows: int = 0
    columns: tuple[ColumnImportance, ...] = ()
    """The importance of each column, the most important first."""


class Evaluated(Metrics):
    """The answer of the evaluation stage: one model's pass over the rows of a split."""

    rows: int = 0
    predictions: str | None = None
    """The name of the file with the predictions in the output."""
    baselines: dict[str, str] = Field(default={})
    """{baseline: the name of the file with its predictions in the output}"""
    incompatible: str | None = None
    """Why a SavedModel cannot score these rows; None: the rows were scored."""
    importance: Importance | None = None
    """The importance of columns, on a small sample; None if that would take long, and for a user's own task."""


class EvaluateRequest(OfTransform[Evaluated]):
    """The request of the evaluation stage: which model predicts which rows."""

    name, version, runs, tensorflow, streams = "evaluate", VERSION, "tfcore.evaluation.stage:predict", True, True
    batch_size: Annotated[int, Key("config", "batch_size", always=True)] = Field(default=4096, ge=1)
    columns: Annotated[tuple[str, ...], Key(always=True)] = Field(
        default=(), description="stored columns that the predictions keep: those of slices, the group, keys"
    )
    item: Annotated[str | None, Key()] = Field(
        default=None, description="the column that names the item of a row, for its baselines"
    )
    group: Annotated[str | None, Key()] = Field(
        default=None,
        description="one of `columns`, whose equal values belong together; its train items are left out of the ranks",
    )
    seed: Annotated[int, Key()] = Field(
        default=0, description="of the permutations that tell how much a column matters"
    )
    ranks: Annotated[int | None, Key()] = Field(
        default=None, ge=1, description="rank each row's item among all, and keep the best so many"
    )
    model: Annotated[TrainedModel | SavedModel, Field(discriminator="kind"), Key()]
    examples: Annotated[tuple[Examples, ...], Key("inputs", "examples", always=True)] = Field(
        default=(), description="none where the rows are handed over as shards"
    )
    train: tuple[Examples, ...] = Field(default=(), description="the train rows, for the item's baselines")
