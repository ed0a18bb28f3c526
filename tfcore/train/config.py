"""`training:` of pipeline.yaml; TensorFlow-free.

    TrainingConfig(epochs=3, batch_size=256, learning_rate={"name": "cosine", "settings": {"initial": 0.003}})
    TrainingConfig(steps=2000, optimizer={"name": "adamw", "settings": {"weight_decay": 0.01}}, early_stopping={"patience": 5})

`ranking` and `retrieval` make the objective (1 - share) * the rows' loss + share * a second loss. For `ranking` this is the
pairwise loss of the groups in a batch (Sculley, "Combined regression and ranking", 2010; `tfcore.train.ranking`). For
`retrieval` it is a softmax loss over the items of a batch, where each row with a label above 0 counts by its label
(`tfcore.train.retrieval`). The model still predicts the same probabilities or numbers, which are evaluated as always.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from headway.config import Frozen, refuse_idle
from headway.errors import ConfigError, DataError
from headway.schema.columns import column_yaml
from headway.tasks.base import Task
from headway.tasks.table import task_of
from tfcore.train.schedule import COSINE, INITIAL, MEANINGS, Number, Schedule, Scheduled, check_settings, fault

Rate = Annotated[float, Field(gt=0.0, le=1000.0)]


class SamplingConfig(Frozen):
    """The sampling of an epoch's rows by class: exactly one of `negatives`, `rates` and `balance` is given."""

    negatives: Annotated[float, Field(gt=0.0, le=1.0)] | None = Field(
        default=None,
        description="share of the negative rows of a binary label that an epoch keeps; each epoch draws others",
    )
    rates: dict[str, Rate] | None = Field(
        default=None, description="how often a row of a class occurs in an epoch; 0.1: one row in ten, 3: three times"
    )
    balance: Literal["over", "under"] | None = Field(
        default=None, description="as many rows of each class as the largest has (repeated), or the smallest (left out)"
    )
    correct: Literal["logits", "weights", "none"] = Field(
        default="logits", description="how probabilities stay calibrated; none: they are those of the sample"
    )

    @field_validator("rates", mode="before")
    @classmethod
    def _class_names(cls, value: Any) -> Any:
        return {str(key): rate for key, rate in value.items()} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(way is not None for way in (self.negatives, self.rates, self.balance)) != 1:
            raise ValueError("give one of negatives: 0.1, rates: {class: 0.1}, and balance: over or under")
        return self


RANKING_VERSION = 4
"""A part of the key of trainings with ranking: to be raised by a change of what they write for the same request."""

_RANKING = "training.ranking"
LARGE_BATCH = 256
"""From this batch size on, ranking gains more by the op in C++, which only uncompiled steps can use, than by XLA."""
LEAST_STEPS, LEAST_STEPS_OF_MEMBERS, LEAST_STEPS_ON_GPU, LEAST_ROWS = 2_500, 800, 700, 2_500_000
"""The steps, or the rows of all steps together, from which compiled steps repay their compilation."""


def repays_compiling(steps: int, batch: int, *, gpu: bool = False, members: bool = False) -> bool:
    """Returns whether a training of `steps` batches of `batch` rows ends sooner with XLA, in spite of the time to compile.

    Args:
        members: the model is an ensemble, whose uncompiled steps are many small products.
    """
    least = LEAST_STEPS_OF_MEMBERS if members else LEAST_STEPS
    return steps >= (LEAST_STEPS_ON_GPU if gpu else least) or steps * batch >= LEAST_ROWS


def logit_offsets(rates: Sequence[float], task: Task | str) -> list[float]:
    """Returns how much sampling by `rates` shifts the logits: one number for a binary label, else one for each class."""
    if task_of(task).per_class:
        return [math.log(rate) for rate in rates]
    return [math.log(rates[1] / rates[0])]


class AugmentConfig(Frozen):
    """The augmentation of training rows; evaluation, replay and the exported model never apply it."""

    flip: Literal["none", "horizontal", "vertical", "both"] = Field(
        default="none", description="mirror an image with probability a half, in each direction named"
    )
    crop: int = Field(
        default=0, ge=0, le=1024, description="pixels of padding on each side, then a crop of the old size"
    )
    padding: Literal["constant", "reflect"] = Field(
        default="constant", description="pad with black, or with mirrored pixels"
    )
    mixup: float = Field(
        default=0.0, ge=0.0, le=8.0, description="alpha of the Beta distribution that two rows are averaged by; 0: off"
    )

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self == AugmentConfig.model_construct(padding=self.padding):
            raise ValueError("augment has no setting; leave it out, or give one: flip: horizontal, mixup: 0.2")
        if not self.crop:
            refuse_idle(self, ("padding",), "with a crop")
        return self

    def check(self, shortest: int | None) -> None:
        """Raise ConfigError for a setting that needs an image where there is none, or a larger image.

        Args:
            shortest: the length of the shortest side among all image inputs, in pixels; None: no input is an image.
        """
        for name, used in {"flip": self.flip != "none", "crop": self.crop > 0}.items():
            if used and shortest is None:
                fix = "give one {image: {height: 96, width: 96}}, or leave it out"
                raise ConfigError("no column is an image", where=f"training.augment.{name}", fix=fix)
        if self.padding == "reflect" and shortest is not None and self.crop >= shortest:
            raise ConfigError(
                f"{self.crop} pixels of padding cannot mirror an image whose shortest side has {shortest}",
                where="training.augment.crop",
                fix=f"say {shortest - 1} at most, or padding: constant",
            )


class RankingConfig(Frozen):
    """`ranking`: the objective includes the order of rows within a group, given by the column with `role: group`."""

    share: float = Field(
        default=0.5, gt=0.0, lt=1.0, description="its part of the objective; the rest is the loss of the rows"
    )
    kind: Literal["logistic", "lambdarank"] = Field(
        default="logistic", description="logistic: all pairs count alike; lambdarank: by how much a pair changes NDCG"
    )
    k: int | None = Field(default=None, ge=1, description="lambdarank: only the first k ranks count; default: all")

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        if self.k is not None and self.kind != "lambdarank":
            raise ValueError(f"k: only lambdarank has it, not {self.kind}")
        return self

    def check(self, task: str | None, *, group: str | None) -> None:
        """Raise ConfigError if there is no group column, or predictions of the task cannot be ordered.

        Args:
            task: the task's name; None: not known yet.
            group: the name of the group column; None: there is none.
        """
        if group is None:
            raise ConfigError(
                "needs a column with role: group",
                where=_RANKING,
                fix=f"{column_yaml('NAME', 'group')}, as a query's id",
            )
        if task is not None and task_of(task).wide:
            raise ConfigError(
                f"the predictions of a {task} task have no order", where=_RANKING, fix="rank a binary label or a number"
            )

    def check_gains(self, least: float) -> None:
        """Raise DataError if `least`, the smallest label, is negative: lambdarank's gain is 2^label - 1."""
        if least < 0:
            raise DataError(
                f"lambdarank gives a label the gain 2^label - 1, and one is {least:g}",
                where=_RANKING,
                fix="grades from 0 up as the label, or kind: logistic",
            )


RETRIEVAL_VERSION = 1
"""A part of the key of trainings with retrieval: to be raised by a change of what they write for the same request."""
MOST_ROWS = 8192
"""The most rows of a batch with retrieval, which compares all users with all items: a matrix of 256 MiB."""


class RetrievalConfig(Frozen):
    """`retrieval`, for two_towers: the objective includes the choice of a row's item among all items of the batch."""

    share: float = Field(
        default=0.5, gt=0.0, le=1.0, description="its part of the objective; the rest is the loss without it"
    )
    correction: bool = Field(
        default=True, description="subtract the logarithm of an item's share of the train rows from its logit"
    )


_DECAY = frozenset({"weight_decay"})
_ADAM = _DECAY | {"beta_1", "beta_2", "epsilon"}
SETTINGS: dict[str, frozenset[str]] = {
    "adam": _ADAM | {"amsgrad"},
    "adamw": _ADAM | {"amsgrad"},
    "nadam": _ADAM,
    "adamax": _ADAM,
    "lion": _DECAY | {"beta_1", "beta_2"},
    "sgd": _DECAY | {"momentum", "nesterov"},
    "rmsprop": _DECAY | {"rho", "momentum", "epsilon", "centered"},
    "adagrad": _DECAY | {"epsilon", "initial_accumulator_value"},
    "ftrl": _DECAY
    | {"learning_rate_power", "initial_accumulator_value", "beta"}
    | {"l1_regularization_strength", "l2_regularization_strength", "l2_shrinkage_regularization_strength"},
}
"""The settings that each optimizer takes: Keras' own, less those that a training has keys for or that come after it."""


class OptimizerConfig(Frozen):
    """A Keras optimizer by name, with its settings; the learning rate is not one of them but a key of `training:`."""

    name: Literal["adam", "adamw", "nadam", "adamax", "lion", "sgd", "rmsprop", "adagrad", "ftrl"] = Field(
        default="adam", description="the optimizer of Keras"
    )
    settings: dict[str, bool | Number] = Field(
        default_factory=dict, description="arguments of Keras' optimizer, such as weight_decay; else Keras' defaults"
    )

    @model_validator(mode="after")
    def _fits_its_name(self) -> Self:
        check_settings(self.name, self.settings, SETTINGS[self.name])
        return self


LOSSES = ("squared_error", "absolute_error", "huber", "focal")
"""Losses by name, in place of the task's; `tfcore.heads.losses` has a function for each, in the same order."""


class EarlyStoppingConfig(Frozen):
    """Stop when the loss on the holdout, a share of the train rows, no longer falls; the best weights are kept."""

    patience: int = Field(default=5, ge=1, description="evaluations without improvement before stopping")
    every_steps: int = Field(default=200, ge=1, description="steps between two evaluations of the holdout")
    holdout: float = Field(
        default=0.1, gt=0.0, le=0.5, description="the holdout: a share of the train rows, never trained on"
    )
    min_delta: float = Field(
        default=0.0, ge=0.0, description="a smaller fall of the loss does not count as an improvement"
    )


class TrainingConfig(Frozen):
    """The config of a training: length, batches, optimizer, and how the loop runs.

    In a pipeline `tfcore.train.auto` chooses values for the keys that are left out, by the number of train rows."""

    epochs: float | None = Field(
        default=None,
        gt=0,
        description="passes over the train rows; without it and steps the number of train rows decides",
    )
    steps: int | None = Field(default=None, ge=1, description="optimizer steps, instead of epochs")
    batch_size: int = Field(
        default=256, ge=1, le=2**20, description="rows of one optimizer step, on all devices together"
    )
    optimizer: OptimizerConfig = Field(
        default_factory=OptimizerConfig, description="the optimizer, by its name or with its settings"
    )
    learning_rate: Scheduled = Field(
        default=INITIAL, description="a number, cosine, or a schedule of Keras by its name and settings"
    )
    clip_norm: float | None = Field(default=None, gt=0, description="largest global norm of the gradients")
    schedules: dict[str, Scheduled] = Field(
        default_factory=dict,
        description="numbers by step, each a number or a schedule: label_smoothing, temperature, dropout, positive_weight, "
        "regularization, or any name that the user's model or loss reads",
    )
    loss: Annotated[str, Field(pattern=rf"^({'|'.join(LOSSES)}|[A-Za-z_]\w*:[A-Za-z_]\w*)$")] | None = Field(
        default=None,
        description=f"{', '.join(LOSSES)}, or module:function of (batch, outputs) that gives one number per row; "
        "default: the task's",
    )
    warm_start: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")] | None = Field(
        default=None,
        description="start with the weights of a version: champion, previous, an alias or a number; without a champion, "
        "as usual",
    )
    class_weights: Literal["balanced"] | dict[str, float] | None = Field(
        default=None, description="loss weight of each class; balanced: inversely to how often it occurs"
    )
    sampling: SamplingConfig | None = Field(
        default=None, description="leave rows of some classes out of an epoch, or repeat them"
    )
    augment: AugmentConfig | None = Field(default=None, description="vary training rows, images and tables alike")
    ranking: RankingConfig | None = Field(
        default=None, description="learn the order within groups too: the column with role group"
    )
    retrieval: RetrievalConfig | None = Field(
        default=None, description="two_towers: learn which of the items in a batch a user wants"
    )
    early_stopping: EarlyStoppingConfig | None = Field(
        default=None,
        description="end when the loss on a holdout of the train rows gets no better, and keep the best weights; none: "
        "train to the end",
    )
    checkpoint_every_steps: int = Field(
        default=1000, ge=1, description="steps between two checkpoints, from which a killed training resumes"
    )
    micro_batches: int = Field(
        default=1,
        ge=1,
        description="compute a batch in this many parts, one after another, to save memory; the step is that of the whole "
        "batch",
    )
    precision: Literal["float32", "tf32", "bfloat16", "float16"] = Field(
        default="float32",
        description="what layers compute in while training; tf32: a GPU rounds the factors of products to 10 bits; float16 "
        "with a loss scale. Variables, evaluation and the exported model are float32",
    )
    deterministic: bool = Field(
        default=True,
        description="the same training gives the same bits each time; false lets a GPU add in any order, which is faster "
        "for some models",
    )
    strategy: Literal["auto", "cpu", "gpu", "mirrored", "multi_worker"] = Field(
        default="auto",
        description="auto: where the training ends first by its number of steps and what each computes: the CPU, a GPU, or "
        "mirrored over several; multi_worker: one worker of the cluster that TF_CONFIG names",
    )
    jit: Literal["auto", "on", "off"] = Field(
        default="auto", description="XLA: on, off, or auto, which compiles long trainings and falls back if XLA refuses"
    )
    eager: bool = Field(
        default=False,
        description="run steps and input pipeline op by op in Python, slowly, for print and breakpoint() of your own; the "
        "first op whose output is not finite is an error",
    )
    summaries: bool = Field(default=True, description="write TensorBoard summaries")

    @model_validator(mode="before")
    @classmethod
    def _left_out(cls, value: Any) -> Any:
        """Drop the keys with the value `auto`, so that they count as left out; `jit` and `strategy` keep that value."""
        if not isinstance(value, dict):
            return value
        return {name: setting for name, setting in value.items() if setting != "auto" or name in ("jit", "strategy")}

    @field_validator("warm_start", mode="before")
    @classmethod
    def _number(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("optimizer", mode="before")
    @classmethod
    def _optimizer_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @field_validator("jit", mode="before")
    @classmethod
    def _jit_switch(cls, value: Any) -> Any:
        return ("off", "on")[value] if isinstance(value, bool) else value  # YAML takes the words for booleans

    @field_validator("early_stopping", mode="before")
    @classmethod
    def _early_stopping_switch(cls, value: Any) -> Any:
        return {} if value is True else None if value is False else value

    @field_validator("learning_rate", mode="before")
    @classmethod
    def _cosine(cls, value: Any) -> Any:
        return {"name": COSINE} if value == COSINE else value

    @field_validator("learning_rate")
    @classmethod
    def _rises_above_zero(cls, value: Scheduled) -> Scheduled:
        rate = value if not isinstance(value, Schedule) else value.initial if value.name == COSINE else None
        if rate is not None and not rate > 0:
            raise ValueError(f"{rate:g} is not a learning rate; it must be above 0")
        return value

    @field_validator("schedules")
    @classmethod
    def _schedules_fit(cls, value: dict[str, Scheduled]) -> dict[str, Scheduled]:
        for name, scheduled in value.items():
            if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
                raise ValueError(f"{name!r} is not a name: use lower-case letters, digits and _")
            if name in ("learning_rate", "clip_norm"):
                raise ValueError(f"{name} has a key of its own: training.{name}")
            if not isinstance(scheduled, Schedule):
                ends = [scheduled]
            elif scheduled.name != COSINE:
                continue  # what Keras gives is checked as it runs
            elif "initial" not in scheduled.settings:
                raise ValueError(f"{name}: cosine needs settings: {{initial: ...}}")
            else:
                ends = [scheduled.initial, 0.0]
            for end in ends:
                if (wrong := fault(name, end)) is not None:
                    raise ValueError(f"{wrong} ({MEANINGS[name]})" if name in MEANINGS else wrong)
        return value

    @field_validator("class_weights", mode="before")
    @classmethod
    def _class_names(cls, value: Any) -> Any:
        return {str(key): weight for key, weight in value.items()} if isinstance(value, dict) else value

    @field_validator("class_weights")
    @classmethod
    def _weights(cls, value: Any) -> Any:
        for name, weight in value.items() if isinstance(value, dict) else ():
            if not (math.isfinite(weight) and weight >= 0):
                raise ValueError(f"{name}: {weight} is not a number from 0 up")
        return value

    @model_validator(mode="after")
    def _compose(self) -> Self:
        """Raise ValueError, with the reason, for settings that exclude each other."""
        parts, mixup = self.micro_batches > 1, bool(self.augment and self.augment.mixup)
        ranking, retrieval, several = self.ranking is not None, self.retrieval is not None, ("mirrored", "multi_worker")
        fits = next(n for n in range(self.micro_batches, 0, -1) if self.batch_size % n == 0)
        for refused, reason in (
            (self.epochs is not None and self.steps is not None, "epochs and steps exclude each other; keep one"),
            (self.eager and self.jit == "on", "eager: steps run op by op on one device; leave out jit: on"),
            (
                self.eager and self.strategy in several,
                f"eager: steps run op by op on one device; leave out strategy: {self.strategy}",
            ),
            (
                fits != self.micro_batches,
                f"micro_batches: {self.micro_batches} does not divide batch_size {self.batch_size}; {fits} does",
            ),
            (
                ranking and parts,
                "micro_batches: they would cut the groups of training.ranking; leave one of the two out",
            ),
            (
                ranking and self.strategy in several,
                f"strategy: {self.strategy} splits the rows of a batch over devices, which would cut the groups of "
                "training.ranking; train on one device (cpu or gpu), or leave ranking out",
            ),
            (
                retrieval and self.strategy in several,
                f"strategy: {self.strategy} splits the rows of a batch over devices, and training.retrieval compares a row with "
                "all items of its batch; train on one device (cpu or gpu), or leave retrieval out",
            ),
            (ranking and mixup, "ranking: mixup makes rows of two groups; leave one of the two out"),
            (
                retrieval and parts,
                "micro_batches: training.retrieval compares the items of whole batches; leave one out",
            ),
            (retrieval and mixup, "retrieval: mixup makes rows of two items; leave one of the two out"),
            (
                retrieval and self.batch_size > MOST_ROWS,
                f"batch_size: training.retrieval takes batches of at most {MOST_ROWS:,} rows",
            ),
        ):
            if refused:
                raise ValueError(reason)
        return self

    def counted_column(self, item: Sequence[str]) -> str | None:
        """Returns the column whose values the transform has to count for `retrieval.correction`: the first of `item`,
        the columns of `model.item`. None if there is no such correction, or `item` is empty."""
        return next(iter(item), None) if self.retrieval is not None and self.retrieval.correction else None

    def total_steps(self, rows: int, batches: Callable[[int], int] | None = None) -> int:
        """Returns the number of steps to train, where an epoch has `rows` rows. A last batch that is not full is a step, too.

        Args:
            batches: a function from the index of an epoch to its number of batches; None: they follow from `rows`.
        """
        if self.steps is not None:
            return self.steps
        epochs = 3.0 if self.epochs is None else self.epochs
        if batches is not None:
            whole = int(epochs)
            part = math.ceil((epochs - whole) * batches(whole) - 1e-9) if epochs > whole else 0
            return max(1, sum(map(batches, range(whole))) + part)
        # the tiny slack keeps 0.1 * 10 epochs from costing a step through rounding
        return max(1, math.ceil(epochs * rows / self.batch_size - 1e-9))
