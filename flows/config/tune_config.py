"""The section `tune:` of pipeline.yaml: the settings that `headway tune` varies, and how it judges trials.

TuneConfig(space={"training.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}, "model.hidden": [[64], []]})
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from headway.config import Frozen
from headway.storage.fingerprint import canonical

if TYPE_CHECKING:
    from optuna import Trial

Number = Annotated[float, Field(allow_inf_nan=False)]


class Range(Frozen):
    """A range of numbers from `low` to `high`; only whole numbers if both ends are whole."""

    low: int | Number = Field(description="the least value that is tried")
    high: int | Number = Field(description="the greatest value that is tried")
    log: bool = Field(default=False, description="draw the logarithm evenly: for numbers over several powers of ten")

    @model_validator(mode="after")
    def _rises(self) -> Range:
        if not self.low < self.high:
            raise ValueError(f"low {self.low:g} is not below high {self.high:g}")
        if self.log and self.low <= 0:
            raise ValueError(f"low {self.low:g} has no logarithm; log needs numbers above 0")
        return self

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    def ends(self) -> tuple[Any, ...]:
        return (self.low, self.high)

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}" + (", log" if self.log else "")


Choices = tuple[Any, ...]
Space = dict[str, Range | Choices]

REFUSED = {
    "training.loss": "trials would be judged by different losses",
    "training.class_weights": "it weighs the holdout's rows too, so trials would be judged by different losses",
    "training.ranking": "the holdout's loss is that of single rows, and says nothing of their order",
    "training.retrieval": "the holdout's loss is that of single rows, and says nothing of the best items",
    "training.schedules.label_smoothing": "trials would be judged by different losses",
    "training.schedules.positive_weight": "trials would be judged by different losses",
    "training.early_stopping.holdout": "trials would be judged on different rows",
}
"""Keys below `training` that cannot be in a space, and why."""
RATE_BELOW, RATE_ABOVE, PENALTY_RANGE = 8, 5, 30
LEAST_BATCH, MOST_DROPOUT = 16, 0.4
_HIDDEN = ((32,), (64, 32), (128, 64), (256, 128), (100, 70, 50, 25))


class TuneConfig(Frozen):
    """The config of `headway tune`: the space that it searches, and the holdout of train rows that judges trials."""

    space: Space = Field(
        default_factory=dict,
        description="keys of training and model; each a list of choices, or {low, high} with log: true where it spans "
        "powers of ten. Left out: chosen for a built-in model",
    )
    trials: int = Field(
        default=20,
        ge=1,
        le=10_000,
        description="trials of the whole study; another headway tune runs those that are missing",
    )
    holdout: float = Field(
        default=0.2,
        gt=0.0,
        le=0.5,
        description="share of the train rows that judges trials; that of early stopping if there is one",
    )
    pruner: Literal["median", "hyperband", "none"] = Field(
        default="median",
        description="which trials end early: those worse than the median at the same point; none: none",
    )

    @field_validator("space")
    @classmethod
    def _keys(cls, value: Space) -> Space:
        for key, values in value.items():
            if not re.fullmatch(r"(training|model)(\.[A-Za-z_]\w*)+", key):
                raise ValueError(f"{key}: a space varies keys of training and model, such as training.batch_size")
            for refused, why in REFUSED.items():
                if key == refused or key.startswith(f"{refused}."):
                    raise ValueError(f"{key}: {why}; leave it out")
            if isinstance(values, tuple) and len(values) < 2:
                raise ValueError(f"{key}: a list needs two choices or more; set a single value in the pipeline itself")
            if isinstance(values, tuple) and len({repr(choice) for choice in values}) < len(values):
                raise ValueError(f"{key}: a choice stands twice")
            if isinstance(values, Range) and not all(math.isfinite(end) for end in values.ends()):
                raise ValueError(f"{key}: the ends must be finite")
        return value


def default_space(training: Mapping[str, Any], model: Mapping[str, Any] | None) -> Space:
    """Returns the default space: learning rate and batch size, and a built-in model's layers, dropout and L2 penalty.

    Args:
        training: the resolved settings of the training; the ranges lie around these values.
        model: the resolved settings of a built-in model; None: the model is the user's own.
    """
    rate, batch, space = training["learning_rate"], training["batch_size"], Space()
    if isinstance(rate, dict):
        names = [name for name in ("initial", "initial_learning_rate") if name in rate["settings"]]
        keys = {f"training.learning_rate.settings.{name}": rate["settings"][name] for name in names}
    else:
        keys = {"training.learning_rate": rate}
    for key, now in keys.items():
        if now > 0:
            space[key] = Range(low=_rounded(now / RATE_BELOW), high=_rounded(now * RATE_ABOVE), log=True)
    least = max(LEAST_BATCH, training.get("micro_batches", 1))
    batches = [size for size in (batch // 2, batch, batch * 2) if size >= least]
    if len(batches) > 1:
        space["training.batch_size"] = tuple(batches)
    if model is None:
        return space
    hidden = [list(units) for units in _HIDDEN]
    if model["hidden"]:
        space["model.hidden"] = tuple(hidden if model["hidden"] in hidden else [model["hidden"], *hidden])
        space["model.dropout"] = Range(low=0.0, high=MOST_DROPOUT)
    if model["name"] == "ensemble":  # it chooses its decay
        return space
    penalty = model.get("l2", 0.0) or 1e-6
    space["model.l2"] = Range(low=_rounded(penalty / PENALTY_RANGE), high=_rounded(penalty * PENALTY_RANGE), log=True)
    return space


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def suggest(trial: Trial, space: Space) -> dict[str, Any]:
    """Returns {key: value}, the settings that Optuna chooses in the space for the trial."""
    point: dict[str, Any] = {}
    for key, values in space.items():
        if not isinstance(values, Range):
            # a choice may be a list: Optuna keeps its JSON
            by_text = {canonical(choice): choice for choice in values}
            point[key] = by_text[trial.suggest_categorical(key, list(by_text))]
        elif values.whole:
            point[key] = trial.suggest_int(key, int(values.low), int(values.high), log=values.log)
        else:
            # to four digits, so that a value copied from the table is the value used
            drawn = trial.suggest_float(key, float(values.low), float(values.high), log=values.log)
            point[key] = min(max(float(f"{drawn:.4g}"), float(values.low)), float(values.high))
    return point
