"""Class weights: how much the rows of each class count in the loss; TensorFlow-free.

class_weights("balanced", ["0", "1"], {"0": 75, "1": 25})      # [0.667, 2.0]
class_weights({"1": 3.0}, ["0", "1"], None)                    # [1.0, 3.0]
"""

from collections.abc import Mapping, Sequence

from headway.errors import ConfigError
from headway.tasks.base import Task
from headway.tasks.table import task_of


def class_weights(
    setting: str | Mapping[str, float] | None,
    classes: Sequence[str],
    counts: Mapping[str, int] | None,
    task: Task | str = "binary",
) -> list[float] | None:
    """The loss weight of each class, or None for no weights.

    Args:
        setting: "balanced" (rows / (classes * rows of the class)), or a weight by class (1 where left out).
        classes: their names in the order of the model's outputs.
        counts: rows of each class in the train split, for "balanced".
    """
    if setting is None:
        return None
    if not task_of(task).has_classes:
        raise ConfigError(f"a {task_of(task).name} label has no classes", where="training.class_weights")
    if isinstance(setting, str):
        if not counts:
            raise ConfigError("balanced needs the label's counts", where="training.class_weights")
        present = [name for name in classes if counts.get(name)]
        rows = sum(counts[name] for name in present)
        return [rows / (len(present) * counts[name]) if name in present else 0.0 for name in classes]
    return by_class(setting, classes, "training.class_weights")


def by_class(given: Mapping[str, float], classes: Sequence[str], where: str) -> list[float]:
    """The number given for each class, 1 where there is none; ConfigError where a name is not a class."""
    unknown = [name for name in given if name not in classes]
    if unknown:
        fix = f"the classes are: {', '.join(list(classes)[:20])}"
        raise ConfigError(f"{unknown[0]!r} is not a class of the label", where=where, fix=fix)
    return [float(given.get(name, 1.0)) for name in classes]
