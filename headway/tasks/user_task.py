"""A task of the user's own: a class in a Python file beside the pipeline, named by `task: module:Class`.

    class Ordinal:
        label = "number"                         # or "classes": how the label column is read
        outputs = 4                              # columns of the model's output; default 1, with classes one for each
        metrics = {"off_by_one": off_by_one}     # functions of (label, prediction, columns); the first one decides
        higher_is_better = ("off_by_one",)       # of the others less is better

        def loss(self, batch, outputs): ...      # TensorFlow: float32 [rows]
        def predictions(self, outputs): ...      # optional: [rows] or [rows, width]; default: the outputs themselves
        def train_step(self, model, batch): ...  # optional: (loss, gradients) of one batch

A metric is called `module:name` in reports and in the gate's config. `batch` has the model's inputs, "label" and "weight",
each [rows, ...]; `outputs` is float32 [rows, outputs].
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headway.errors import ConfigError
from headway.metrics import tables
from headway.metrics.base import Rows
from headway.metrics.tables import Table
from headway.metrics.user_metric import UserMetric
from headway.tasks.base import ROUNDING, LabelFacts, Output, Task
from headway.tasks.table import register
from headway.user_code.files import digest
from headway.user_code.loading import load_instance

OWN_OUTPUT = "prediction"
"""The name of the exported model's output that holds the prediction of a user's task."""
_LOADED: dict[tuple[str, str, str], UserTask] = {}


class UserTask(Task):
    """A task whose loss, metrics and predictions come from an object of the user's own.

    Raises:
        ConfigError: the object lacks a loss or metrics, or an attribute has a value that is not allowed.
    """

    def __init__(self, name: str, definition: Any, file: Path):
        self.name, self.definition, self.file = name, definition, file
        label = getattr(definition, "label", "number")
        if label not in ("number", "classes"):
            raise self._refused(f"label is {label!r}", 'write label = "number" or label = "classes"')
        if not callable(getattr(definition, "loss", None)):
            raise self._refused("it has no loss", "def loss(self, batch, outputs): a float32 tensor [rows]")
        functions = getattr(definition, "metrics", None)
        if not isinstance(functions, dict) or not functions or not all(map(callable, functions.values())):
            raise self._refused("it has no metrics", 'metrics = {"name": function of (label, prediction, columns)}')
        best = tuple(getattr(definition, "higher_is_better", ()))
        if unknown := [metric for metric in best if metric not in functions]:
            raise self._refused(f"higher_is_better names {unknown[0]!r}", f"its metrics are: {', '.join(functions)}")
        self.has_classes = label == "classes"
        self.per_class = False
        self.count: int = getattr(definition, "outputs", 0)
        """The columns of the model's output; 0: one for each class, or one."""
        own = callable(getattr(definition, "predictions", None))
        self.width: int = getattr(definition, "width", 1 if own else self.count)
        """The number of values in one row's prediction."""
        for attribute, number in (("outputs", self.count), ("width", self.width)):
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                raise self._refused(f"{attribute} is {number!r}", f"write {attribute} = 3, say")
        self.wide = self.width > 1
        self.metrics = tuple(
            UserMetric(f"{name.partition(':')[0]}:{metric}", function, "higher" if metric in best else "lower", file)
            for metric, function in functions.items()
        )
        self.primary = self.metrics[0].name
        self.tolerances = {self.primary: "1%"}

    def _refused(self, problem: str, fix: str) -> ConfigError:
        return ConfigError(f"the task {self.name}: {problem}", where=str(self.file), fix=fix)

    def constant(self, facts: LabelFacts, rows: int, metric: str = "loss") -> None:
        """Returns None, since Headway does not know what the user's predictions mean."""

    def tables_for(self, rows: Rows) -> tuple[Table, ...]:
        """Returns the tables that the values allow. Labels 0 or 1 allow the tables of a binary task if predictions are
        probabilities; else, if the labels are classes, the tables that need only the order of scores. One probability per class
        allows the tables of classes. Other numbers allow residuals."""
        label, prediction = rows.label, rows.prediction
        probable = bool(((prediction >= -ROUNDING) & (prediction <= 1 + ROUNDING)).all())
        if self.wide:
            whole = probable and self.has_classes and bool((label < self.width).all())
            return tables.CLASSES if whole and bool((abs(prediction.sum(1) - 1) < 1e-3).all()) else ()
        if bool(((label == 0) | (label == 1)).all()) and (probable or self.has_classes):
            return tables.BINARY if probable else tables.BY_ORDER
        return () if self.has_classes else (tables.RESIDUALS,)

    def outputs(self, classes: Sequence[str | int] = ()) -> tuple[Output, ...]:
        return (Output("prediction", "float32", (self.width,) if self.wide else ()),)


def load_task(name: str, file: Path) -> UserTask:
    """Load the task `module:Class` from a file, register it under its name in this process, and return it.

    Raises:
        ConfigError: the file or the class is missing or does not run, or the class is not a task.
    """
    key = (name, str(file.absolute()), digest(file) if file.is_file() else "")
    if key not in _LOADED:
        _LOADED[key] = UserTask(name, load_instance(file, name.partition(":")[2]), file)
    register(_LOADED[key])
    return _LOADED[key]
