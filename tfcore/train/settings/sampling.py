"""Resampling rates per class, and the correction of their effect; TensorFlow-free.

    rates = class_rates(SamplingConfig(negatives=0.1), ["0", "1"], {"0": 900, "1": 100})     # [0.1, 1.0]
    logit_offsets(rates, "binary")                                                           # [2.303]

A model that is trained on a tenth of the negatives predicts ten times the odds. `correct: logits` adds the logarithm
of the classes' rates to its output while it trains (and only then), so that what it puts out by itself keeps to the
rows as they are: calibrated, without a correction after training (the offset is that of prior correction in King and
Zeng, "Logistic regression in rare events data", 2001). `correct: weights` lets each row count 1 / rate times instead.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from headway.config import Frozen
from headway.errors import ConfigError
from headway.tasks.base import Task
from headway.tasks.table import task_of
from tfcore.losses.class_weights import by_class

Rate = Annotated[float, Field(gt=0.0, le=1000.0)]
_WHERE = "training.sampling"


class SamplingConfig(Frozen):
    """The sampling of an epoch's rows by class: one of `negatives`, `rates` and `balance`."""

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


def class_rates(
    config: SamplingConfig, classes: Sequence[str], counts: Mapping[str, int] | None, task: Task | str
) -> list[float]:
    """How often a row of each class comes in an epoch, on average.

    Args:
        classes: their names in the order of the model's outputs.
        counts: rows of each class in the train split, for `balance`.

    Raises:
        ConfigError: naming the key.
    """
    task = task_of(task)
    if not task.has_classes:
        raise ConfigError(f"a {task.name} label has no classes", where=_WHERE)
    if config.negatives is not None:
        if task.per_class:
            fix = "say rates: {class: share} instead"
            raise ConfigError(f"a {task.name} label has no negatives", where=f"{_WHERE}.negatives", fix=fix)
        return [config.negatives, 1.0]
    if config.rates is not None:
        return by_class(config.rates, classes, f"{_WHERE}.rates")
    if not counts:
        raise ConfigError("balance needs the label's counts", where=f"{_WHERE}.balance")
    held = [counts[name] for name in classes if counts.get(name)]
    target = max(held) if config.balance == "over" else min(held)
    return [target / counts[name] if counts.get(name) else 1.0 for name in classes]


def logit_offsets(rates: Sequence[float], task: Task | str) -> list[float]:
    """Return the sample's shift of the log odds of a binary label [1], or of the logits of the classes [classes]."""
    if task_of(task).per_class:
        return [math.log(rate) for rate in rates]
    return [math.log(rates[1] / rates[0])]
