"""The request of the training stage, and what people read of its answer; TensorFlow-free.

TrainRequest(examples=[...], transform={...}, model={"name": "mlp"}, training={"epochs": 3}, checkpoints="/...")
Trained.model_validate(result).best_step
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from headway.config import Frozen, Result
from headway.tabular.splits import SplitConfig
from tfcore.data.examples import Examples
from tfcore.models.config import ModelConfig
from tfcore.train.settings.config import TrainingConfig
from tfcore.transform.parameters import TransformParameters

VERSION = 5
"""Raised by whoever changes what training writes for the same request."""


LOOKS = 20
"""At the holdout of a trial, over its whole training."""


class Latest(Frozen):
    """The split is by time: the holdout is the latest of the train rows."""

    column: str | None = Field(description="the latest by its values; None, or not stored: the last of the window")

    @classmethod
    def of(cls, split: SplitConfig) -> Latest | None:
        """None: the split is not by time."""
        return cls(column=split.column) if split.mode == "time" or split.eval_from is not None else None


class TrialConfig(Frozen):
    """A training that is one of several tried with other settings, and is judged by a holdout of the train rows."""

    holdout: float = Field(gt=0.0, le=0.5, description="the holdout: a share of the train rows, never trained on")


class WarmStart(Frozen):
    """The earlier model whose weights a training begins with."""

    version: int
    trained: Path
    """Output of its train stage."""
    transform: TransformParameters
    model: ModelConfig


class Pruning(Frozen):
    """The Optuna study that may end a trial early."""

    journal: Path
    study: str
    trial: int
    pruner: Literal["median", "hyperband"]


class TrainRequest(Frozen):
    """Everything a training is a function of, and where it keeps what should survive a kill."""

    examples: tuple[Examples, ...] = Field(default=(), description="none where the rows come from a feed")
    transform: TransformParameters
    model: ModelConfig = Field(default_factory=ModelConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    seed: int = Field(default=0, ge=0, lt=2**31)
    module: Path | None = Field(default=None, description="the user's Python file, for module:function models")
    loss: Path | None = Field(default=None, description="the user's Python file, for a module:function loss")
    preprocess: Path | None = Field(default=None, description="the user's Python file, for a preprocess function")
    checkpoints: Path | None = Field(default=None, description="a folder that outlives a killed run; None: no resume")
    summaries: Path | None = Field(default=None, description="a folder for TensorBoard; None: none")
    trial: TrialConfig | None = Field(default=None, description="a trial of a study; None: an ordinary training")
    warm_start: WarmStart | None = Field(default=None, description="the model to begin with; None: initial weights")
    latest: Latest | None = Field(default=None, description="the split is by time; None: it is not")
    control: Path | None = Field(default=None, description="a file that may change knobs while training runs")


class WarmStarted(Result):
    """The weights that a training began with."""

    says: str


class Trained(Result):
    """What a training came to; None and 0 where there is nothing to say."""

    steps: int = 0
    epochs: float | None = None
    rows: int | None = None
    """Seen, of train."""
    seconds: float = 0.0
    steps_per_second: float | None = None
    parameters: int | None = None
    final_loss: float | None = None
    best_loss: float | None = None
    """On the holdout."""
    best_step: int | None = None
    stopped: str | None = None
    skipped: int | None = None
    strategy: str | None = None
    jit: str | None = None
    warm_start: WarmStarted | None = None
