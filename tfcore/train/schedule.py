"""Numbers by step: the learning rate, and the numbers of `training.schedules`.

    Schedule(name="cosine", settings={"initial": 0.01, "warmup_steps": 100})
    Schedule(name="ExponentialDecay", settings={"initial_learning_rate": 0.01, "decay_steps": 500, "decay_rate": 0.9})
    values = StepValues({"learning_rate": Schedule(name="cosine"), "label_smoothing": 0.1}, total=2000)
    values(first=0, count=32)         # {"learning_rate": float32 [32], "label_smoothing": float32 [32]}

The compiled loop gets the numbers of a call's steps as tensors. Each number depends on the step alone, so that a training
that resumes at step s goes on with the numbers of step s. Only a schedule of Keras imports TensorFlow.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator

from headway.config import Frozen
from headway.errors import ConfigError
from headway.messages import did_you_mean
from headway.tasks.base import Task
from headway.tasks.table import task_of

COSINE = "cosine"
_DECAY = {"initial_learning_rate", "decay_steps"}
REQUIRED: dict[str, set[str]] = {
    COSINE: set(),
    "CosineDecay": _DECAY,
    "CosineDecayRestarts": {"initial_learning_rate", "first_decay_steps"},
    "ExponentialDecay": _DECAY | {"decay_rate"},
    "InverseTimeDecay": _DECAY | {"decay_rate"},
    "PiecewiseConstantDecay": {"boundaries", "values"},
    "PolynomialDecay": _DECAY,
}
"""The settings that a schedule of keras.optimizers.schedules needs."""
OPTIONAL: dict[str, set[str]] = {
    COSINE: {"initial", "warmup_steps", "restart"},
    "CosineDecay": {"alpha", "warmup_target", "warmup_steps"},
    "CosineDecayRestarts": {"t_mul", "m_mul", "alpha"},
    "ExponentialDecay": {"staircase"},
    "InverseTimeDecay": {"staircase"},
    "PolynomialDecay": {"end_learning_rate", "power", "cycle"},
}
INITIAL = 0.001
"""The learning rate of a config that names none."""
_SCHEDULED = {
    "learning_rate": ("the optimizer's", 0.0, 1e6, True),
    "dropout": ("share of the built-in model's hidden units that are dropped", 0.0, 1.0, True),
    "label_smoothing": ("share of the label's weight that is spread over all classes", 0.0, 1.0, True),
    "temperature": ("what logits are divided by in the training loss", 0.0, 1e6, False),
    "positive_weight": ("weight of the positive rows of a binary label", 0.0, 1e9, True),
    "regularization": ("what the model's own losses are multiplied by", 0.0, 1e9, True),
}
"""By name: (meaning, lower bound, upper bound, whether the lower bound is allowed); the upper bound never is."""
MEANINGS = {name: meaning for name, (meaning, *_) in _SCHEDULED.items()}
"""The numbers that Headway's own training reads; any other name is for the user's model or loss."""
PROGRESS = "progress"
"""The number of steps that are done, as a share of all: what `ensemble` is told beside `training.schedules`."""
_SMALLEST, _LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("should be a number")
    return value


Number = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
Setting = bool | int | Number | tuple[int | Number, ...]


class Schedule(Frozen):
    """A number that changes with the step."""

    name: Literal[
        "cosine",
        "CosineDecay",
        "CosineDecayRestarts",
        "ExponentialDecay",
        "InverseTimeDecay",
        "PiecewiseConstantDecay",
        "PolynomialDecay",
    ] = Field(
        description="cosine: from initial down to 0 at the end of the training, after warmup_steps, and once before at the step "
        "restart; else a schedule of keras.optimizers.schedules"
    )
    settings: dict[str, Setting] = Field(
        default_factory=dict, description="initial and warmup_steps of cosine; else the arguments of Keras' schedule"
    )

    @model_validator(mode="after")
    def _fits_its_name(self) -> Self:
        check_settings(self.name, self.settings, REQUIRED[self.name] | OPTIONAL.get(self.name, set()))
        if lacking := sorted(REQUIRED[self.name] - self.settings.keys()):
            raise ValueError(f"settings: {self.name} needs {', '.join(lacking)}")
        if self.name == COSINE:
            if type(self.warmup_steps) is not int or self.warmup_steps < 0:
                raise ValueError(f"settings.warmup_steps: {self.warmup_steps} is not a number of steps")
            if type(self.restart_step) is not int or self.restart_step < 0:
                raise ValueError(f"settings.restart: {self.restart_step} is not a step")
            if type(self.initial) not in (int, float):
                raise ValueError(f"settings.initial: {self.initial} is not a number")
        return self

    @property
    def initial(self) -> Any:
        """The highest value of the schedule `cosine`, from which it falls."""
        return self.settings.get("initial", INITIAL)

    @property
    def warmup_steps(self) -> Any:
        """The number of steps in which the schedule `cosine` rises from near zero."""
        return self.settings.get("warmup_steps", 0)

    @property
    def restart_step(self) -> Any:
        """The step at which the schedule `cosine`, fallen to 0, begins a second time; 0: it does not."""
        return self.settings.get("restart", 0)


Scheduled = Number | Schedule


def check_settings(name: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise ValueError for a setting in `given` that is not among `known`, the settings that `name` of Keras has."""
    for setting in given:
        if setting not in known:
            has = did_you_mean(setting, [*known], f"it has {', '.join(sorted(known))}")
            raise ValueError(f"settings.{setting}: {name} has no such setting; {has}")


def cosine(schedule: Schedule, first: int, count: int, total: int) -> NDArray[np.float32]:
    """Returns the values of `schedule` at steps first .. first + count - 1 of `total`, counted from 0; float32 [count].

    A warm-up rises from near zero, then half a cosine falls to 0. With a restart before the end both happen twice. The
    values are computed in float64."""
    warmup, restart = schedule.warmup_steps, schedule.restart_step if schedule.restart_step < total else 0
    step = np.arange(first, first + count, dtype=np.float64)
    again = step >= restart
    length = np.where(again, total - restart, restart)
    step = step - restart * again
    done = np.minimum(np.maximum(step - warmup, 0.0) / np.maximum(length - warmup, 1), 1.0)
    rate = schedule.initial * 0.5 * (1.0 + np.cos(np.pi * done))
    if warmup:
        rate = rate * np.minimum((step + 1) / warmup, 1.0)
    return rate.astype(np.float32)


def fault(name: str, value: float) -> str | None:
    """Returns why the scheduled number `name` cannot have this value; None if it can."""
    if not math.isfinite(value):
        return f"{name} is {value}, which is not a finite number"
    if abs(value) > _LARGEST or (value and abs(value) < _SMALLEST):
        return f"{name} is {value:g}, which float32 does not hold; it would be {'0' if abs(value) < 1 else 'infinite'}"
    if name in _SCHEDULED:
        _, low, high, closed = _SCHEDULED[name]
        if not (low < value < high or (closed and value == low)):
            return f"{name} is {value:g}; it must be {'at least' if closed else 'above'} {low:g} and below {high:g}"
    return None


def check_schedules(names: Iterable[str], task: Task | str, *, user: bool) -> None:
    """Raise ConfigError for a scheduled number that the training does not read.

    Args:
        user: whether the model, loss or task is the user's own, which may read other names.
    """
    kind = task_of(task)
    for name in names:
        if name == "positive_weight" and (kind.per_class or not kind.has_classes):
            problem = f"{name} is for a binary label, and this one is {kind.name}"
        elif name in ("label_smoothing", "temperature") and not kind.has_classes:
            problem = f"{name} is for a label with classes, and this one is a number"
        elif name == PROGRESS:
            problem = f"{name} is the share of the steps that are done"
        elif name not in MEANINGS and not user:
            problem = f"nothing reads {name!r}; the built-in models know {', '.join(sorted(MEANINGS))}"
        else:
            continue
        raise ConfigError(problem, where=f"training.schedules.{name}", fix="leave it out")


Values = Mapping[str, NDArray[np.float32]]


class StepValues:
    """The scheduled numbers of a training of `total` steps; see the module.

    Args:
        progress: whether the numbers include `PROGRESS`, the share of the steps that are done.

    Attributes:
        initial_progress: the progress at step 0: 0.0, or more after a warm start.
    """

    def __init__(self, schedules: Mapping[str, Scheduled], total: int, *, progress: bool = False):
        self._of = {name: _of(name, schedule, total) for name, schedule in schedules.items()}
        self.initial_progress, self._total = 0.0, total
        if progress:
            self._of[PROGRESS] = self._progress
        self.names = list(self._of)

    def __call__(self, first: int, count: int) -> Values:
        """Returns the values of each number at steps first .. first + count - 1, float32 [count] by name.

        Raises:
            ConfigError: a schedule of Keras gives a value that the number cannot have.
        """
        return {name: of(first, count) for name, of in self._of.items()}

    def at(self, step: int) -> dict[str, float]:
        """Returns the value of each number at `step`, except for the progress, which follows from the step."""
        return {name: float(values[0]) for name, values in self(step, 1).items() if name != PROGRESS}

    def _progress(self, first: int, count: int) -> NDArray[np.float32]:
        done = np.arange(first, first + count) / self._total
        return (self.initial_progress + (1.0 - self.initial_progress) * done).astype(np.float32)


def _of(name: str, schedule: Scheduled, total: int) -> Callable[[int, int], NDArray[np.float32]]:
    if not isinstance(schedule, Schedule):
        return lambda first, count: np.full(count, schedule, np.float32)
    if schedule.name == COSINE:
        return lambda first, count: cosine(schedule, first, count, total)
    where = f"training.{'' if name == 'learning_rate' else 'schedules.'}{name}"
    import keras  # here, since a config is read without TensorFlow
    import tensorflow as tf

    try:
        made = getattr(keras.optimizers.schedules, schedule.name)(**schedule.settings)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{schedule.name} of Keras refuses its settings: {error}", where=where) from None

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)], autograph=False)
    def by_step(steps: tf.Tensor) -> tf.Tensor:
        return tf.map_fn(lambda step: tf.cast(made(step), tf.float32), steps, fn_output_signature=tf.float32)

    def of(first: int, count: int) -> NDArray[np.float32]:
        values: NDArray[np.float32] = by_step(tf.range(first, first + count, dtype=tf.int64)).numpy()
        for step, value in ((first + int(i), float(values[i])) for i in (values.argmin(), values.argmax())):
            if (wrong := fault(name, value)) is not None:
                raise ConfigError(f"{wrong}: what {schedule.name} gives at step {step:,}", where=where)
        return values

    return of
