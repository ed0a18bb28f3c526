"""`training: auto`: the settings that a pipeline leaves out, chosen by the size of the train split; TensorFlow-free.

    facts = Facts(rows=1_200, width=12, task="binary")
    training, model = resolve(TrainingConfig(), ModelConfig(), facts)
    training.steps, training.batch_size, model.hidden          # 1000, 32, (100, 70, 50, 25)

A key that the pipeline gives stays as it is; each key left out is chosen by itself. From `LARGE` rows on the training's keys
have the defaults of their config. The values follow from measurements: bench/models.py and docs/pipeline.md.
"""

import math
from typing import Any, TypeVar

from pydantic import Field

from headway.config import Frozen
from headway.errors import ConfigError
from headway.messages import counted
from headway.tasks.table import TaskName
from tfcore.models.config import VALUE_L1, ModelConfig
from tfcore.train.config import EarlyStoppingConfig, TrainingConfig
from tfcore.train.schedule import COSINE, Schedule

LARGE = 256_000
"""From this many train rows on, three epochs of batches of 256 are as many steps as the longest automatic training."""
FEW = 20_000
"""Below this many train rows the penalties alone keep a model from learning rows by heart; from it on a holdout helps them."""
HOLDOUT = 20_000
"""From this many train rows on a holdout ends the training; below it the penalties do: a holdout of so few rows is noisy, and
the rows are missed in the training."""
LEAST_HOLDOUT = 100
"""The same for models without penalties: a user's, or one of images."""
EPOCHS, LEAST_STEPS, MOST_STEPS = 25, 1000, 3000
MOST_EPOCHS = 200
"""So many passes over a small table are enough, also where they are fewer than `LEAST_STEPS`: the learning rate is higher by as
much, so that weights get as far."""
SMALL_BATCH = 32
LEAST_STEPS_OF_IMAGES = 300
"""Their steps are slow."""
RATE, WARMUP = 0.002, 0.05
SOFT_CLIP = 4.0
ROWS_PER_ID, LEAST_IDS = 20, 50
"""Hidden layers learn columns of fewer rows per id by heart; the linear part shrinks each id by its penalty."""
MANY_ROWS_PER_ID, MANY_LINEAR_L2 = 1_000, 100.0
"""The same of `FEW` rows or more, and the linear part's L2 penalty, times the rows. Hidden layers that saw 4,000 tail numbers of
100,000 flights learned them by heart within two epochs: AUC 0.70, and 0.74 so."""
WIDE = 0.5
"""Inputs per train row from which on most of them can only be noise to so few rows: a sparse linear model is what they tell."""
LEAST_WIDE = 200
SPARSE, WIDE_L2 = 0.5, 0.1
"""The L1 penalty of a wide table, as a share of 0.5 * sqrt(2 ln(inputs) / rows), below which no weight of pure noise is 0 (the
universal threshold of the lasso, for a logistic loss); and the L2 penalty that keeps its hidden layers still."""
LEARNED = 0.71
"""Of `stacked`: 8 of its 9 losses, and of each 4 of 5 rows, teach the linear part."""
L2_PER_INPUT, MOST_L2 = 0.08, 0.01
"""The hidden layers' L2 penalty per input and train row, and its bound: many inputs are learned by heart sooner than few. On
8,000 rows of 600 columns, 10 of them informative, the AUC went from 0.756 to 0.796, that of a logistic regression."""
PATIENCE, LOOKS = 10, 40
"""Evaluations of the holdout: how many without improvement end the training, and how many there are in all."""
_BATCHES = ((2_000, 32), (8_000, 64), (32_000, 128))
"""(below so many rows, the batch size); else that of the config."""
_HIDDEN = ((500, (16,)), (1_000, (32, 16)))
_ADAM = ("adam", "adamw", "nadam")
_PENALTIES = {"l2", "linear_l2", "linear_l1", "value_l1"}

Config = TypeVar("Config", TrainingConfig, ModelConfig)


class Facts(Frozen):
    """The size of the data and the task, by which the settings are chosen."""

    rows: int = Field(ge=0, description="of the train split")
    width: int = Field(ge=0, description="inputs of the model: numbers, and categories of one id each")
    task: TaskName
    images: bool = Field(default=False, description="whether an input is an image")


def resolve(training: TrainingConfig, model: ModelConfig, facts: Facts) -> tuple[TrainingConfig, ModelConfig]:
    """Both configs with every key that was left out chosen by the size of the data.

    What comes out has every key set, so that resolving it again changes nothing, and an explicit spelling of the same
    values is the same config.

    Raises:
        ConfigError: `model.scaled_penalties` with a loss that is not a share of the label's variance.
    """
    if (problem := unscalable(training, model, facts)) is not None:
        raise ConfigError(problem, where="model.scaled_penalties", fix="leave it out")
    if not facts.rows:
        return _explicit(training), _explicit(model)
    model = _model(model, facts, squared=_squared(training.loss))
    if facts.rows >= LARGE:
        return _explicit(training), _explicit(model)
    return _training(training, facts, penalized=model.l2 > 0 or model.name == "stacked"), _explicit(model)


def unscalable(training: TrainingConfig, model: ModelConfig, facts: Facts | None = None) -> str | None:
    """What keeps `model.scaled_penalties: true` from working; None: nothing, or it is not set."""
    if not model.scaled_penalties:
        return None
    what = None
    if not _squared(training.loss):
        what = f"training.loss is {training.loss}"
    elif facts is not None and facts.task != "regression":
        what = f"the task is {facts.task}"
    return what and f"needs the squared error of one regression label, and {what}"


def _squared(loss: str | None) -> bool:
    """Whether it is the built-in squared error, where the task is a regression."""
    return loss in (None, "squared_error")


def _training(training: TrainingConfig, facts: Facts, *, penalized: bool) -> TrainingConfig:
    settings, chosen = training.model_fields_set, dict[str, Any]()
    batch = training.batch_size
    if "batch_size" not in settings:
        batch = chosen["batch_size"] = _batch(training, facts.rows)
    timed = training.epochs is not None or training.steps is not None
    asked = training.learning_rate  # `cosine` without settings leaves them to be chosen
    cosine = isinstance(asked, Schedule) and asked.name == COSINE and not asked.settings
    rated = ("learning_rate" not in settings or cosine) and training.optimizer.name in _ADAM
    rate = RATE
    if not timed:
        steps, least = round(EPOCHS * facts.rows / batch), LEAST_STEPS_OF_IMAGES if facts.images else LEAST_STEPS
        # tried with the small batches that are chosen here
        small = chosen.get("batch_size") == SMALL_BATCH and "early_stopping" not in settings
        if penalized and rated and small and not facts.images:
            least = min(LEAST_STEPS, MOST_EPOCHS * math.ceil(facts.rows / batch))
            rate = _rounded(RATE * LEAST_STEPS / least)
        chosen["steps"] = min(max(steps, least), MOST_STEPS)
    steps = training.model_copy(update=chosen).total_steps(facts.rows)
    if not timed and "early_stopping" not in settings and facts.rows >= (HOLDOUT if penalized else LEAST_HOLDOUT):
        chosen["early_stopping"] = EarlyStoppingConfig(
            patience=PATIENCE, every_steps=max(1, steps // LOOKS), holdout=0.1 if facts.rows >= 1_000 else 0.2
        )
    if rated:
        warmup = max(1, round(WARMUP * steps))
        chosen["learning_rate"] = Schedule(name="cosine", settings={"initial": rate, "warmup_steps": warmup})
    return _explicit(training, chosen)


def _batch(training: TrainingConfig, rows: int) -> int:
    """Choose a batch size by the rows that micro-batches divide; the config's own with ranking or retrieval, and where
    several devices are to divide it."""
    default, parts = training.batch_size, training.micro_batches
    if (
        training.ranking is not None
        or training.retrieval is not None
        or training.strategy in ("mirrored", "multi_worker")
    ):
        return default
    least = next((batch for below, batch in _BATCHES if rows < below), default)
    return next((batch for batch in (32, 64, 128) if batch >= least and batch % parts == 0), default)


def _model(model: ModelConfig, facts: Facts, *, squared: bool) -> ModelConfig:
    """Choose the model's settings: smaller below a thousand rows; with a linear part and penalties, stronger for few rows."""
    if facts.images and not facts.width and not model.user_defined and "hidden" not in model.model_fields_set:
        return _explicit(model, {"hidden": ()})  # an image's features say enough
    if model.user_defined or facts.images or (model.name == "two_towers" and facts.rows >= FEW):
        return model
    rows, chosen = facts.rows, dict[str, Any]()
    linear = model.linear or "linear" not in model.model_fields_set
    of_width = min(MOST_L2, L2_PER_INPUT * facts.width / rows)
    if model.recurring_numbers and linear:
        least = VALUE_L1[facts.task in ("binary", "multiclass")] * (LEARNED if model.name == "stacked" else 1.0)
        chosen["value_l1"] = _rounded(least / math.sqrt(rows))
    if rows >= FEW:
        ids = {"most_ids": max(LEAST_IDS, rows // MANY_ROWS_PER_ID)}
        of_hidden = 0.0 if model.name == "stacked" else _rounded(of_width)
        chosen |= {"linear": True, "linear_l2": _rounded(MANY_LINEAR_L2 / rows), "l2": of_hidden}
        return _left_out(model, chosen | (ids if linear else {}))
    if model.name == "two_towers":  # a product of embeddings: what few rows can tell
        chosen = {"hidden": (), "linear_l2": _rounded(1.0 / rows), "l2": _rounded(5.0 / rows + 3000.0 / rows**2)}
        return _left_out(model, chosen)
    chosen["hidden"] = next((hidden for below, hidden in _HIDDEN if rows < below), model.hidden)
    chosen["linear"], chosen["soft_clip"] = True, SOFT_CLIP
    if facts.task == "regression" and squared:
        # a penalty that the user gives keeps the meaning that it has without
        chosen["scaled_penalties"] = not model.model_fields_set & _PENALTIES
    if linear:
        chosen["most_ids"] = max(LEAST_IDS, rows // ROWS_PER_ID)
    # the linear part's is that of a logistic regression with C=1 and of a ridge with alpha=1, per row
    chosen["linear_l2"] = _rounded(1.0 / rows)
    chosen["l2"] = _rounded(max(5.0 / rows + 3000.0 / rows**2, of_width))
    sparse = "linear_l1" not in model.model_fields_set or model.linear_l1 > 0
    if linear and sparse and facts.width > WIDE * rows and facts.width > LEAST_WIDE:
        chosen["linear_l1"] = _rounded(SPARSE * 0.5 * math.sqrt(2 * math.log(facts.width) / rows))
        chosen["l2"] = max(chosen["l2"], WIDE_L2)
        chosen.pop("value_l1", None)
    if model.name == "stacked":
        del chosen["l2"]
    return _left_out(model, chosen)


def _left_out(model: ModelConfig, chosen: dict[str, Any]) -> ModelConfig:
    """The model with the chosen values of keys that it does not give."""
    return _explicit(model, {name: value for name, value in chosen.items() if name not in model.model_fields_set})


def _rounded(value: float) -> float:
    """Round to three digits, so that a value copied from the output is exactly the value used."""
    return float(f"{value:.3g}")


def _explicit(config: Config, chosen: dict[str, Any] | None = None) -> Config:
    """The config with the chosen values and every key set."""
    values = {name: getattr(config, name) for name in type(config).model_fields} | (chosen or {})
    return type(config)(**values)


def described(training: TrainingConfig, model: ModelConfig) -> str:
    """The resolved values in one line, as a plan and a run show them."""
    epochs = training.epochs or 3.0
    length = f"{epochs:g} epoch" + "s" * (epochs != 1)
    if training.steps is not None:
        length = counted(training.steps, "step")
    rate = training.learning_rate
    said, warm = "constant learning rate", f" {rate:g}" if not isinstance(rate, Schedule) else ""
    if isinstance(rate, Schedule):
        said = f"{rate.name} learning rate"
        if rate.name == COSINE:
            after = f" after {counted(rate.warmup_steps, 'step')} of warm-up" if rate.warmup_steps else ""
            warm = f" {rate.initial:g}{after}"
    early = training.early_stopping
    stop = (
        f"early stopping on a holdout of {early.holdout:.0%} every {early.every_steps:,} steps, patience {early.patience}"
        if early
        else "no holdout"
    )
    parts = [
        f"{length} of {training.batch_size} rows",
        f"{training.optimizer.name}, {said}{warm}",
        stop,
        model.name,
    ]
    if not model.user_defined:
        parts.append(f"hidden {', '.join(map(str, model.hidden)) or 'none'}")
        if model.quantile_bins:
            parts.append(f"numbers in {counted(model.quantile_bins, 'bin')}")
        if model.linear:
            parts.append("a linear part")
        if model.l2 or model.linear_l2 or model.linear_l1:
            sparse = f", l1 {model.linear_l1:g}" if model.linear_l1 else ""
            sparse += f", l1 of values {model.value_l1:g}" if model.value_l1 else ""
            scaled = ", times the unexplained share of the variance" if model.scaled_penalties else ""
            parts.append(f"l2 {model.l2:g} (linear part {model.linear_l2:g}{sparse}){scaled}")
    return "; ".join(parts)
