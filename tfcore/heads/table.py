"""The head of a task."""

from collections.abc import Sequence
from typing import Any

from headway.tasks.base import Task
from headway.tasks.builtin import Binary, Count, Multiclass, Quantiles, Regression
from headway.tasks.table import task_of
from headway.tasks.user_task import UserTask, load_task
from tfcore.heads.base import Head
from tfcore.heads.builtin import BinaryHead, CountHead, MulticlassHead, QuantilesHead, RegressionHead
from tfcore.heads.user_head import UserHead

_HEADS: tuple[tuple[type[Task], Any], ...] = (
    (Binary, BinaryHead),
    (Multiclass, MulticlassHead),
    (Count, CountHead),
    (Regression, RegressionHead),
    (Quantiles, QuantilesHead),
    (UserTask, UserHead),
)


def head_of(task: Head | Task | str, classes: Sequence[str | int] | None = None) -> Head:
    """Returns the head of a task; a head is returned unchanged.

    Args:
        classes: the label's, in the order of the model's outputs.
    """
    if isinstance(task, Head):
        return task
    task = task_of(task)
    head = next(head for kind, head in _HEADS if isinstance(task, kind))
    return head(task, classes or ())


def label_head(label: Any) -> Head:
    """Returns the head of a label's parameters: those of `tfcore.transform.parameters.LabelParameters`."""
    return head_of(label_task(label), label.classes)


def label_task(label: Any) -> Task:
    """Returns the task of a label's parameters; one of the user's own is loaded from `label.file`."""
    file = getattr(label, "file", None)
    return task_of(label.task) if file is None else load_task(label.task, file)
