"""`training: auto`: the settings that a pipeline leaves out, chosen by the size of the train split; TensorFlow-free.

    facts = Facts(rows=1_200, width=12, task="binary")
    training, model = resolve(TrainingConfig(), ModelConfig(), facts)
    training.batch_size, model.hidden                          # 64, (128, 128)

A key that the pipeline gives stays as it is; a value is chosen for each other key. From `LARGE` train rows on, keys of
`training:` get the defaults of TrainingConfig. The values follow from measurements: bench/models.py and docs/pipeline.md.
"""

import itertools
import math
from typing import Any, TypeVar

from pydantic import Field

from headway.config import Frozen
from headway.messages import counted
from headway.tasks.table import TaskName
from tfcore.models.config import CHOOSING, MEMBERS, ModelConfig
from tfcore.train.config import EarlyStoppingConfig, TrainingConfig
from tfcore.train.schedule import COSINE, Schedule

LARGE = 256_000
"""From this many train rows on the defaults hold: their three epochs are at least `MOST_STEPS` steps of 256 rows."""
FEW = 20_000
"""Below this many train rows two_towers has no hidden layers: they suffice for a product of embeddings only."""
LEAST_HOLDOUT = 100
"""From this many train rows on, a model without penalties stops early on a holdout."""
EPOCHS, LEAST_STEPS, MOST_STEPS = 25, 1000, 3000
LEAST_STEPS_OF_IMAGES = 300
"""The least steps of a model with image inputs, whose steps are slow."""
RATE, RATE_OF_MEMBERS, WARMUP = 0.002, 0.006, 0.05
PATIENCE, LOOKS = 10, 40
"""Evaluations of the holdout: how many without improvement end the training, and how many there are in all."""
HIDDEN = (128, 128)
"""The hidden layers of a member of ensemble."""
MOST_EPOCHS, WORK, MOST_WORK = 120, 1e8, 6e12
"""Limits of ensemble's automatic length: epochs, and floating-point operations for each row and for all rows together.
They allow 40 s of two cores for 20,000 rows, two minutes for 60,000 and more."""
_NUMBERS = 8, 512
"""The width of one number's embedding, and the most of all together, by which the work is estimated."""
_BATCHES = ((2_000, 32), (8_000, 64), (32_000, 128))
"""Pairs of (number of rows, the batch size for fewer rows); from the last on the config's batch size holds."""
_BATCHES_OF_MEMBERS = ((800, 32), (3_000, 64), (12_000, 128))
_ADAM = ("adam", "adamw", "nadam")

Config = TypeVar("Config", TrainingConfig, ModelConfig)


class Facts(Frozen):
    """The size of the data and the task; the settings of a training are chosen by them."""

    rows: int = Field(ge=0, description="of the train split")
    width: int = Field(ge=0, description="inputs of the model: numbers, and categories of one id each")
    task: TaskName
    images: bool = Field(default=False, description="whether an input is an image")


def resolve(training: TrainingConfig, model: ModelConfig, facts: Facts) -> tuple[TrainingConfig, ModelConfig]:
    """Returns both configs, with a value for every key that was left out, chosen by the size of the data.

    Every key of the result is set. So resolving the result again changes nothing, and it equals a config that gives the
    same values explicitly."""
    if not facts.rows:
        return _explicit(training), _explicit(model)
    model = _model(model, facts)
    if model.name == "ensemble" and not facts.images:
        return _members_training(training, facts, model), model
    if facts.rows >= LARGE:
        return _explicit(training), model
    return _training(training, facts, penalized=model.l2 > 0), model


def _members_training(training: TrainingConfig, facts: Facts, model: ModelConfig) -> TrainingConfig:
    """Choose batch size, steps and rate of ensemble. The rate falls to 0 twice, before and after the choice of the decay."""
    settings, chosen = training.model_fields_set, dict[str, Any]()
    batch = training.batch_size
    if "batch_size" not in settings:
        batch = chosen["batch_size"] = _batch(training, facts.rows, _BATCHES_OF_MEMBERS)
    if training.epochs is None and training.steps is None:
        width, most = _NUMBERS
        sizes = [max(facts.width, min(facts.width * width, most)), *model.hidden, 1]
        flops = 6.0 * MEMBERS * sum(before * after for before, after in itertools.pairwise(sizes))
        work = min(WORK * max(facts.rows, 2_000), MOST_WORK) / facts.rows
        passes = min(MOST_EPOCHS, work / flops)
        chosen["steps"] = max(round(passes * facts.rows / batch), math.ceil(facts.rows / batch))
    steps = training.model_copy(update=chosen).total_steps(facts.rows)
    if _rated(training):
        restart = round(CHOOSING * steps)
        warmup = max(1, round(WARMUP * restart))
        rate: dict[str, Any] = {"initial": RATE_OF_MEMBERS, "warmup_steps": warmup, "restart": restart}
        chosen["learning_rate"] = Schedule(name="cosine", settings=rate)
    return _explicit(training, chosen)


def _rated(training: TrainingConfig) -> bool:
    """Returns whether to choose the learning rate: it is left out or only `cosine`, and the optimizer is one of `_ADAM`."""
    asked = training.learning_rate
    cosine = isinstance(asked, Schedule) and asked.name == COSINE and not asked.settings
    return ("learning_rate" not in training.model_fields_set or cosine) and training.optimizer.name in _ADAM


def _training(training: TrainingConfig, facts: Facts, *, penalized: bool) -> TrainingConfig:
    settings, chosen = training.model_fields_set, dict[str, Any]()
    batch = training.batch_size
    if "batch_size" not in settings:
        batch = chosen["batch_size"] = _batch(training, facts.rows, _BATCHES)
    timed = training.epochs is not None or training.steps is not None
    if not timed:
        steps, least = round(EPOCHS * facts.rows / batch), LEAST_STEPS_OF_IMAGES if facts.images else LEAST_STEPS
        chosen["steps"] = min(max(steps, least), MOST_STEPS)
    steps = training.model_copy(update=chosen).total_steps(facts.rows)
    if not timed and "early_stopping" not in settings and not penalized and facts.rows >= LEAST_HOLDOUT:
        chosen["early_stopping"] = EarlyStoppingConfig(
            patience=PATIENCE, every_steps=max(1, steps // LOOKS), holdout=0.1 if facts.rows >= 1_000 else 0.2
        )
    if _rated(training):
        warmup = max(1, round(WARMUP * steps))
        chosen["learning_rate"] = Schedule(name="cosine", settings={"initial": RATE, "warmup_steps": warmup})
    return _explicit(training, chosen)


def _batch(training: TrainingConfig, rows: int, batches: tuple[tuple[int, int], ...]) -> int:
    """Returns the batch size for `rows` train rows, a multiple of `micro_batches`. `batches` are pairs of (number of
    rows, batch size for fewer rows). With ranking, retrieval or several devices the config's size stays."""
    default, parts = training.batch_size, training.micro_batches
    if (
        training.ranking is not None
        or training.retrieval is not None
        or training.strategy in ("mirrored", "multi_worker")
    ):
        return default
    least = next((batch for below, batch in batches if rows < below), default)
    return next((batch for batch in (32, 64, 128) if batch >= least and batch % parts == 0), default)


def _model(model: ModelConfig, facts: Facts) -> ModelConfig:
    """Choose the model's settings: the hidden layers, and the penalties of two_towers."""
    if model.user_defined:
        return _explicit(model)
    if facts.images and not facts.width:
        return _left_out(model, {"hidden": ()})  # an image's features say enough
    if model.name == "ensemble":
        return _left_out(model, {"hidden": HIDDEN})
    rows = facts.rows
    if model.name == "two_towers" and rows < FEW:
        chosen = {"hidden": (), "linear_l2": _rounded(1.0 / rows), "l2": _rounded(5.0 / rows + 3000.0 / rows**2)}
        return _left_out(model, chosen)
    return _explicit(model)


def _left_out(model: ModelConfig, chosen: dict[str, Any]) -> ModelConfig:
    """Returns `model` with the values of `chosen` for those keys that `model` leaves out. Every key is then set."""
    return _explicit(model, {name: value for name, value in chosen.items() if name not in model.model_fields_set})


def _rounded(value: float) -> float:
    """Round to three digits, so that a value copied from the output is exactly the value used."""
    return float(f"{value:.3g}")


def _explicit(config: Config, chosen: dict[str, Any] | None = None) -> Config:
    """Returns the config with the values of `chosen`, and with every key set."""
    values = {name: getattr(config, name) for name in type(config).model_fields} | (chosen or {})
    return type(config)(**values)


def settings_text(training: TrainingConfig, model: ModelConfig) -> str:
    """Returns the resolved settings of a training and its model, as one line for users."""
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
            after += f", twice, from step {rate.restart_step:,} on again" if rate.restart_step else ""
            warm = f" {rate.initial:g}{after}"
    early = training.early_stopping
    stop = (
        f"early stopping on a holdout of {early.holdout:.0%} every {early.every_steps:,} steps, patience {early.patience}"
        if early
        else "no holdout"
    )
    parts = [f"{length} of {training.batch_size} rows", f"{training.optimizer.name}, {said}{warm}", stop, model.name]
    if not model.user_defined:
        parts.append(f"hidden {', '.join(map(str, model.hidden)) or 'none'}")
        if model.l2 or model.linear_l2:
            parts.append(f"l2 {model.l2:g}" + (f" (biases {model.linear_l2:g})" if model.linear_l2 else ""))
    return "; ".join(parts)
