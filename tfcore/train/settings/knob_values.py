"""Knobs: numbers that a training rereads at every step, from a schedule or set by hand, without a retrace.

    knobs = Knobs({"learning_rate": CosineRate(...), "label_smoothing": ConstantRate(initial=0.1)}, total=2000)
    knobs.values(first=0, count=32)          # {"learning_rate": float32 [32], "label_smoothing": float32 [32]}
    knobs.change(640, {"learning_rate": 1e-4})    # from step 640 on; None goes back to the schedule

What a knob was set to by hand goes into the checkpoint and the history: a resumed training continues with it, and nobody
takes a training for one that its config alone explains. TensorFlow-free.
"""

import difflib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.errors import ConfigError
from headway.tasks.base import Task
from headway.tasks.table import task_of
from tfcore.train.settings.schedule import Schedule

_KNOBS = {
    "learning_rate": ("the optimizer's", 0.0, 1e6, False),
    "clip_norm": ("the largest global norm of the gradients", 0.0, 1e9, False),
    "dropout": ("share of the built-in model's hidden units that are dropped", 0.0, 1.0, True),
    "label_smoothing": ("share of the label's weight that is spread over all classes", 0.0, 1.0, True),
    "temperature": ("what logits are divided by in the training loss", 0.0, 1e6, False),
    "positive_weight": ("weight of the positive rows of a binary label", 0.0, 1e9, True),
    "regularization": ("what the model's own losses are multiplied by", 0.0, 1e9, True),
}
"""(meaning, from, up to, whether `from` itself is allowed); `up to` never is."""
MEANINGS = {name: meaning for name, (meaning, *_) in _KNOBS.items()}
"""The knobs that Headway's own training reads; any other name is for the user's model."""
_SMALLEST, _LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


def fault(name: str, value: float) -> str | None:
    """Return why a knob cannot have this value; None when it can."""
    if not math.isfinite(value):
        return f"{name} is {value}, which is not a finite number"
    if abs(value) > _LARGEST or (value and abs(value) < _SMALLEST):
        return f"{name} is {value:g}, which float32 does not hold; it would be {'0' if abs(value) < 1 else 'infinite'}"
    if name in _KNOBS:
        _, low, high, closed = _KNOBS[name]
        if not (low < value < high or (closed and value == low)):
            return f"{name} is {value:g}; it must be {'at least' if closed else 'above'} {low:g} and below {high:g}"
    return None


class Knobs:
    """The knobs of a training; see the module. `changes` holds the settings by hand: {"step", "knob", "value"}, where
    the value None means back to the schedule."""

    def __init__(self, schedules: Mapping[str, Schedule], total: int):
        self._schedules, self._total = dict(schedules), total
        self._set: dict[str, float] = {}
        self.changes: list[dict[str, Any]] = []

    @property
    def names(self) -> list[str]:
        return list(self._schedules)

    def values(self, first: int, count: int) -> dict[str, NDArray[np.float32]]:
        """Each knob at steps first .. first + count - 1; float32 [count]."""
        return {
            name: np.full(count, self._set[name], np.float32)
            if name in self._set
            else schedule.rates(first, count, self._total)
            for name, schedule in self._schedules.items()
        }

    def at(self, step: int) -> dict[str, float]:
        """Each knob at one step."""
        return {name: float(values[0]) for name, values in self.values(step, 1).items()}

    def change(self, step: int, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Set knobs from `step` on; returns the changes.

        Raises:
            ConfigError: there is no such knob in this training, or the value is none for it. Nothing is changed then.
        """
        for name, value in values.items():
            check(name, value, self._schedules)
        changes = []
        for name, value in values.items():
            if self._set.get(name) == value:
                continue
            if value is None:
                self._set.pop(name, None)
            else:
                self._set[name] = float(value)
            changes.append({"step": step, "knob": name, "value": value})
        self.changes += changes
        return changes

    def state(self) -> dict[str, Any]:
        return {"set": dict(self._set), "changes": list(self.changes)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._set, self.changes = dict(state["set"]), list(state["changes"])


def check(name: str, value: Any, knobs: Mapping[str, Any] | list[str]) -> None:
    """Raise ConfigError unless `name` is a known knob and takes `value` (None: back to its schedule)."""
    if name not in knobs:
        close = difflib.get_close_matches(name, list(knobs), 1)
        off = MEANINGS.get(name)
        fix = f"did you mean {close[0]!r}?" if close else f"there is: {', '.join(knobs)}"
        if off is not None:
            fix = "what is not configured is not in the compiled step: set it in the pipeline and run again"
        raise ConfigError("this training has no such knob", where=f"knob {name!r}", fix=fix)
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{value!r} is not a number", where=f"knob {name!r}", fix=f"for example {name}=0.1")
    try:
        number = float(value)
    except OverflowError:  # an int of hundreds of digits
        number = math.inf if value > 0 else -math.inf
    if (wrong := fault(name, number)) is not None:
        raise ConfigError(wrong, where=f"knob {name!r}")


def check_knobs(knobs: Mapping[str, Any], task: Task | str, *, user: bool) -> None:
    """Raise ConfigError for a knob that the training does not read."""
    kind = task_of(task)
    for name in knobs:
        if name in ("positive_weight",) and (kind.per_class or not kind.has_classes):
            problem = f"{name} is for a binary label, and this one is {kind.name}"
        elif name in ("label_smoothing", "temperature") and not kind.has_classes:
            problem = f"{name} is for a label with classes, and this one is a number"
        elif name not in MEANINGS and not user:
            problem = f"nothing reads {name!r}; the built-in models know {', '.join(sorted(MEANINGS))}"
        else:
            continue
        raise ConfigError(problem, where=f"training.knobs.{name}", fix="leave it out")
