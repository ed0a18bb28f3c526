"""`training:` of pipeline.yaml; TensorFlow-free.

TrainingConfig(epochs=3, batch_size=256, learning_rate={"name": "cosine", "initial": 0.003, "warmup_steps": 100})
TrainingConfig(steps=2000, optimizer="adamw", early_stopping={"patience": 5})
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from headway.config import Frozen
from tfcore.augment.config import AugmentConfig
from tfcore.train.settings.knob_values import MEANINGS, fault
from tfcore.train.settings.ranking import RankingConfig
from tfcore.train.settings.retrieval import MOST_ROWS, RetrievalConfig
from tfcore.train.settings.sampling import SamplingConfig
from tfcore.train.settings.schedule import ConstantRate, CosineRate, ExponentialRate, PiecewiseRate, Schedule

_SETTINGS: dict[str, frozenset[str]] = {
    "adam": frozenset({"beta_1", "beta_2", "epsilon", "amsgrad", "weight_decay"}),
    "adamw": frozenset({"beta_1", "beta_2", "epsilon", "amsgrad", "weight_decay"}),
    "nadam": frozenset({"beta_1", "beta_2", "epsilon", "weight_decay"}),
    "adamax": frozenset({"beta_1", "beta_2", "epsilon", "weight_decay"}),
    "lion": frozenset({"beta_1", "beta_2", "weight_decay"}),
    "sgd": frozenset({"momentum", "nesterov", "weight_decay"}),
    "rmsprop": frozenset({"rho", "momentum", "epsilon", "weight_decay"}),
    "adagrad": frozenset({"epsilon", "initial_accumulator_value", "weight_decay"}),
    "ftrl": frozenset({"initial_accumulator_value", "l1_regularization_strength", "l2_regularization_strength"}),
}
"""The settings each optimizer takes, by its name."""

AnySchedule = Annotated[ConstantRate | CosineRate | ExponentialRate | PiecewiseRate, Field(discriminator="name")]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]
Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class OptimizerConfig(Frozen):
    """A Keras optimizer; a setting left out keeps Keras' default. The learning rate stands apart."""

    name: Literal["adam", "adamw", "nadam", "adamax", "lion", "sgd", "rmsprop", "adagrad", "ftrl"] = Field(
        default="adam", description="the optimizer of Keras"
    )
    beta_1: Share | None = Field(
        default=None,
        description="adam, adamw, nadam, adamax, lion: decay of the mean of the gradients; none: Keras' default",
    )
    beta_2: Share | None = Field(
        default=None,
        description="adam, adamw, nadam, adamax, lion: decay of the second mean of the gradients; none: Keras' default",
    )
    rho: Share | None = Field(
        default=None, description="rmsprop: decay of the mean of the squared gradients; none: Keras' default"
    )
    momentum: Share | None = Field(
        default=None,
        description="sgd, rmsprop: share of the last update that goes into the next one; none: Keras' default",
    )
    epsilon: Positive | None = Field(
        default=None,
        description="adam and its kin, rmsprop, adagrad: added to a divisor, so that it is not zero; none: Keras' default",
    )
    weight_decay: NotNegative | None = Field(
        default=None,
        description="share of each weight, times the learning rate, that a step takes away; none: Keras' default",
    )
    initial_accumulator_value: NotNegative | None = Field(
        default=None,
        description="adagrad, ftrl: what the sums of the squared gradients begin with; none: Keras' default",
    )
    l1_regularization_strength: NotNegative | None = Field(
        default=None, description="ftrl: penalty on the absolute values of the weights; none: Keras' default"
    )
    l2_regularization_strength: NotNegative | None = Field(
        default=None, description="ftrl: penalty on the squares of the weights; none: Keras' default"
    )
    nesterov: bool | None = Field(default=None, description="sgd: look ahead by the momentum; none: Keras' default")
    amsgrad: bool | None = Field(
        default=None, description="adam, adamw: divide by the largest second mean so far; none: Keras' default"
    )

    @model_validator(mode="after")
    def _fits_its_name(self) -> Self:
        for setting in self.settings():
            if setting not in _SETTINGS[self.name]:
                settings = ", ".join(sorted(_SETTINGS[self.name]))
                raise ValueError(f"{setting}: {self.name} has no such setting; it has {settings}")
        return self

    def settings(self) -> dict[str, Any]:
        """The settings that were given, as keyword arguments of the Keras optimizer."""
        return self.model_dump(exclude={"name"}, exclude_none=True)


LOSSES = ("squared_error", "absolute_error", "huber", "focal")
"""Losses by name, in place of the task's; `tfcore.heads.losses` has a function for each, in the same order."""


class EarlyStoppingConfig(Frozen):
    """Stop when the loss on a holdout of the train split no longer falls; the best weights are kept."""

    patience: int = Field(default=5, ge=1, description="evaluations without improvement before stopping")
    every_steps: int = Field(default=200, ge=1, description="steps between two evaluations of the holdout")
    holdout: float = Field(
        default=0.1, gt=0.0, le=0.5, description="the holdout: a share of the train rows, never trained on"
    )
    min_delta: float = Field(
        default=0.0, ge=0.0, description="a smaller fall of the loss does not count as an improvement"
    )


class TrainingConfig(Frozen):
    """Length, batches, optimizer, and how the loop runs.

    In a pipeline the keys that are left out are chosen by the number of train rows: `tfcore.train.settings.auto`.
    """

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
    learning_rate: AnySchedule = Field(default_factory=ConstantRate, description="a number, or a schedule by the step")
    clip_norm: float | None = Field(default=None, gt=0, description="largest global norm of the gradients")
    knobs: dict[str, AnySchedule] = Field(
        default_factory=dict,
        description="numbers that the step reads anew each time, a value or a schedule: label_smoothing, temperature, "
        "dropout, positive_weight, regularization, or any name that the user's model asks for",
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
    steps_per_call: int = Field(
        default=128,
        ge=1,
        le=4096,
        description="the most steps in one call of the compiled loop; fewer if steps are slow",
    )
    checkpoint_every_steps: int = Field(
        default=1000, ge=1, description="steps between two checkpoints, from which a killed training resumes"
    )
    keep_checkpoints: int = Field(
        default=2, ge=1, description="how many of the newest checkpoints to keep, to resume from"
    )
    keep_best: int = Field(
        default=0, ge=0, le=100, description="how many checkpoints to keep besides: the best by the loss on the holdout"
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
    stop_at_loss: float | None = Field(
        default=None,
        allow_inf_nan=False,
        description="end when the running mean of the training loss is no higher than this",
    )
    non_finite_limit: int = Field(
        default=10, ge=1, description="stop after this many steps in a row with a loss or gradient that is not finite"
    )
    max_refused_images: int = Field(
        default=100, ge=0, description="images that TensorFlow cannot decode are skipped, up to this many"
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
    threads: int | None = Field(default=None, ge=1, le=1024, description="TensorFlow's threads; default: every core")
    shuffle_rows: int | None = Field(
        default=None,
        ge=1,
        description="rows in a shuffle window; default: as many as fit in 48 MiB, at least 65,536. With sorted data (by "
        "time, say), windows much smaller than an epoch cost accuracy, since the last rows weigh more",
    )
    summaries: bool = Field(default=True, description="write TensorBoard summaries")

    @model_validator(mode="before")
    @classmethod
    def _left_out(cls, value: Any) -> Any:
        """Treat `batch_size: auto` like a missing batch_size."""
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
    def _constant(cls, value: Any) -> Any:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return {"name": "constant", "initial": value}
        return value

    @field_validator("knobs", mode="before")
    @classmethod
    def _constants(cls, value: Any) -> Any:
        return {name: cls._constant(knob) for name, knob in value.items()} if isinstance(value, dict) else value

    @field_validator("learning_rate")
    @classmethod
    def _rises_above_zero(cls, value: Schedule) -> Schedule:
        # down to zero is fine, at the very end
        wrong = [rate for rate in value.ends() if rate < 0] or [rate for rate in value.ends()[:1] if rate == 0]
        if wrong:
            raise ValueError(f"{wrong[0]:g} is not a learning rate; it must be above 0")
        return value

    @field_validator("knobs")
    @classmethod
    def _knobs_fit(cls, value: dict[str, Schedule]) -> dict[str, Schedule]:
        for name, schedule in value.items():
            if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
                raise ValueError(f"{name!r} is not a name for a knob: use lower-case letters, digits and _")
            if name in ("learning_rate", "clip_norm"):
                raise ValueError(f"{name} has a key of its own: training.{name}")
            for end in (*schedule.ends(), *([0.0] if schedule.warmup_steps else [])):
                if (wrong := fault(name, end)) is not None:
                    raise ValueError(f"{wrong} ({MEANINGS[name]})" if name in MEANINGS else wrong)
        return value

    @field_validator("class_weights", mode="before")
    @classmethod
    def _class_names(cls, value: Any) -> Any:
        return {str(key): weight for key, weight in value.items()} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _uncompiled(self) -> Self:
        if self.eager and (self.jit == "on" or self.strategy in ("mirrored", "multi_worker")):
            key = "jit" if self.jit == "on" else "strategy"
            raise ValueError(f"eager: steps run op by op on one device; leave out {key}: {getattr(self, key)}")
        return self

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if self.epochs is not None and self.steps is not None:
            raise ValueError("epochs and steps exclude each other; keep one")
        if self.batch_size % self.micro_batches:
            fits = next(n for n in range(self.micro_batches, 0, -1) if self.batch_size % n == 0)
            raise ValueError(
                f"micro_batches: {self.micro_batches} does not divide batch_size {self.batch_size}; {fits} does"
            )
        if self.ranking is not None and self.micro_batches > 1:
            raise ValueError("micro_batches: they would cut the groups of training.ranking; leave one of the two out")
        if self.retrieval is not None:
            if self.micro_batches > 1:
                raise ValueError("micro_batches: training.retrieval compares the items of whole batches; leave one out")
            if self.batch_size > MOST_ROWS:
                raise ValueError(f"batch_size: training.retrieval takes batches of at most {MOST_ROWS:,} rows")
            if self.augment is not None and self.augment.mixup:
                raise ValueError("retrieval: mixup makes rows of two items; leave one of the two out")
        if self.keep_best and self.early_stopping is None:
            raise ValueError("keep_best: needs the loss on a holdout; set training.early_stopping")
        if isinstance(self.class_weights, dict):
            for name, weight in self.class_weights.items():
                if not (math.isfinite(weight) and weight >= 0):
                    raise ValueError(f"class_weights.{name}: {weight} is not a number from 0 up")
        return self

    def counted(self, item: Sequence[str]) -> str | None:
        """The column whose values the transform counts for the correction of `retrieval`: the first of `model.item`."""
        return next(iter(item), None) if self.retrieval is not None and self.retrieval.correction else None

    def all_knobs(self, dropout: float = 0.0) -> dict[str, Schedule]:
        """Every knob that the step reads; `dropout` is the model's."""
        schedules: dict[str, Schedule] = {"learning_rate": self.learning_rate}
        if self.clip_norm is not None:
            schedules["clip_norm"] = ConstantRate(initial=self.clip_norm)
        if dropout:
            schedules["dropout"] = ConstantRate(initial=dropout)
        return schedules | self.knobs

    def total_steps(self, rows: int, batches: Callable[[int], int] | None = None) -> int:
        """Steps to train for, given the rows of one epoch. Part of a batch at the end counts as a whole step.

        Args:
            batches: of epoch 0, 1, ..., where it is not the rows that decide how many there are.
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
