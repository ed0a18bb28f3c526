"""The request of the training stage, and the part of its result that other code reads; TensorFlow-free.

TrainRequest(examples=[...], transform={...}, model={"name": "mlp"}, training={"epochs": 3}, checkpoints="/...")
Trained.model_validate(result).best_step
"""

import contextlib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from headway.config import Frozen, Result
from headway.stages.refs import Examples, Ref
from headway.stages.stage_class import Key
from headway.tabular.splits import SplitConfig
from tfcore.models.config import ModelConfig
from tfcore.train.config import RANKING_VERSION, RETRIEVAL_VERSION, TrainingConfig
from tfcore.transform.parameters import OfTransform, TransformParameters

VERSION = 7
"""A part of the stage's key: to be raised by a change of what training writes for the same request."""


LOOKS = 20
"""How often the holdout of a trial is evaluated over its whole training."""


class TimeSplit(Frozen):
    """Says that the split is by time: the holdout then consists of the latest train rows."""

    column: str | None = Field(description="the latest by its values; None, or not stored: the last of the window")

    @classmethod
    def of(cls, split: SplitConfig) -> Self | None:
        """Returns the TimeSplit of a split that is by time; None if `split` is not by time."""
        return cls(column=split.column) if split.mode == "time" or split.eval_from is not None else None


class TrialConfig(Frozen):
    """A trial: one of several trainings with different settings, judged by a holdout of the train rows."""

    holdout: float = Field(gt=0.0, le=0.5, description="the holdout: a share of the train rows, never trained on")


class WarmStarted(Result):
    """The part of a training's result about its warm start."""

    says: str


class Trained(Result):
    """The result of a training; None or 0 where a figure is not known or does not apply."""

    steps: int = 0
    epochs: float | None = None
    rows: int | None = None
    """Train rows of one epoch, without the holdout."""
    seconds: float = 0.0
    steps_per_second: float | None = None
    parameters: int | None = None
    final_loss: float | None = None
    best_loss: float | None = None
    """The lowest loss on the holdout."""
    best_step: int | None = None
    stopped: str | None = None
    skipped: int | None = None
    strategy: str | None = None
    jit: str | None = None
    warm_start: WarmStarted | None = None


class WarmStart(Frozen):
    """The earlier model whose weights a training begins with."""

    version: int
    trained: Ref[Trained]
    transform: TransformParameters
    model: ModelConfig

    def as_key(self) -> object:
        return {"train": self.trained}


class Pruning(Frozen):
    """The Optuna study that may end a trial early."""

    journal: Path
    study: str
    trial: int
    pruner: Literal["median", "hyperband"]


class TrainRequest(OfTransform[Trained]):
    """Everything that a training's result depends on. Also its folder for checkpoints, which outlive a kill."""

    name, version, runs, tensorflow, streams = "train", VERSION, "tfcore.train.stage:train", True, True
    model: Annotated[ModelConfig, Key("config", "model", always=True)] = Field(default_factory=ModelConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    seed: Annotated[int, Key("config", "seed", always=True)] = Field(default=0, ge=0, lt=2**31)
    examples: Annotated[tuple[Examples, ...], Key("inputs", "examples", always=True)] = Field(
        default=(), description="none where the rows are handed over as shards"
    )
    trial: Annotated[TrialConfig | None, Key()] = Field(
        default=None, description="a trial of a study; None: an ordinary training"
    )
    warm_start: Annotated[WarmStart | None, Key()] = Field(
        default=None, description="the model to begin with; None: initial weights"
    )
    latest: TimeSplit | None = Field(default=None, description="the split is by time; None: it is not")
    group: str | None = Field(default=None, description="the column of a row's group")
    module: Path | None = Field(default=None, description="the user's Python file, for module:function models")
    loss: Path | None = Field(default=None, description="the user's Python file, for a module:function loss")
    preprocess: Path | None = Field(default=None, description="the user's Python file, for a preprocess function")
    checkpoints: Path | None = Field(default=None, description="a folder that outlives a killed run; None: no resume")
    summaries: Path | None = Field(default=None, description="a folder for TensorBoard; None: none")

    def key(self) -> dict[str, Any]:
        key = super().key()
        # a warm start has a key of its own
        key["config"]["training"] = self.training.model_dump(mode="json", exclude={"warm_start"})
        if self.training.ranking is not None:
            key["config"]["ranking_version"] = RANKING_VERSION
        if self.training.retrieval is not None:
            key["config"]["retrieval_version"] = RETRIEVAL_VERSION
        if (self.trial is not None or self.training.early_stopping is not None) and (self.latest or self.group):
            # what a holdout is drawn by that the examples do not say
            key["holdout"] = {"latest": self.latest.model_dump() if self.latest else None, "group": self.group}
        return key

    @property
    def own_process(self) -> bool:
        # a worker joins its cluster before it computes anything, and TensorFlow ends it some time after the others left
        return self.training.strategy == "multi_worker"

    def progress_folder(self) -> Path | None:
        return self.checkpoints


def storage_of(journal: Path) -> Any:
    """Returns the Optuna storage in the file `journal`. Makes the file's folder, and cuts off an unfinished last line."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    journal.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        written = journal.read_bytes()
        whole = written.rfind(b"\n") + 1
        if whole < len(written):
            journal.write_bytes(written[:whole])
    no_lock: Any = _NoLock()
    return JournalStorage(JournalFileBackend(str(journal), lock_obj=no_lock))


class _NoLock:
    def acquire(self) -> bool:
        return True

    def release(self) -> None: ...
