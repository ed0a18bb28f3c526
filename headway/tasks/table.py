"""Tasks by name.

task_of("binary"), task_of("quantiles(0.1, 0.5, 0.9)")
task_of("binary") is task_of(task_of("binary"))
"""

from itertools import pairwise
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from headway.metrics.ranking import COVERAGE, RANKED
from headway.metrics.retrieval import RETRIEVAL
from headway.schema.columns import suggest
from headway.tasks.base import Task
from headway.tasks.builtin import Binary, Count, Multiclass, Quantiles, Regression

LEVELS = (0.1, 0.5, 0.9)
"""The levels that `quantiles` predicts where the name has none."""
_QUANTILES = "quantiles"
_BY_NAME: dict[str, Task] = {task.name: task for task in (Binary(), Multiclass(), Regression(), Count())}
BUILT_IN = (*_BY_NAME, _QUANTILES)
_MADE: dict[str, Task] = dict(_BY_NAME)


def task_of(task: str | Task) -> Task:
    """Returns the task of that name; a task is returned unchanged.

    Raises:
        ValueError: no task has that name.
    """
    if isinstance(task, Task):
        return task
    if task not in _MADE:
        _MADE[task] = _quantiles(task)
    return _MADE[task]


def register(task: Task) -> Task:
    """Register a user's task under its name in this process, and return it."""
    _MADE[task.name] = task
    return task


def _quantiles(name: str) -> Quantiles:
    """Returns the task for `quantiles`, or with levels `quantiles(0.1, 0.5, 0.9)`; ValueError for other names."""
    word, _, inside = name.strip().partition("(")
    if word.strip() != _QUANTILES or (inside and not inside.endswith(")")):
        raise ValueError(f"{name!r} is not a task; {suggest(name, [*BUILT_IN])}")
    try:
        levels = tuple(float(part) for part in inside[:-1].split(",")) if inside else LEVELS
    except ValueError:
        raise ValueError(f"{inside[:-1]!r} are not numbers; write quantiles(0.1, 0.5, 0.9)") from None
    if any(not 0 < level < 1 for level in levels) or any(a >= b for a, b in pairwise(levels)):
        raise ValueError(f"levels are numbers between 0 and 1 in rising order, not {inside[:-1]}")
    return Quantiles(levels)


def _known(name: str) -> str:
    # a user's task is known once its module has been loaded
    return name if ":" in name else task_of(name).name


TaskName = Annotated[str, AfterValidator(_known)]
"""The type of a task's name in requests."""
TaskOrAuto = Annotated[
    str,
    AfterValidator(lambda name: name if name == "auto" else _known(name)),
    WithJsonSchema(
        {
            "type": "string",
            "anyOf": [{"enum": ["auto", *BUILT_IN]}, {"pattern": r"^(quantiles\(.*\)|[A-Za-z_]\w*:[A-Za-z_]\w*)$"}],
        }
    ),
]
"""The type of a task's name in configs, where `auto` means that the label decides."""

_TASKS = (*_BY_NAME.values(), task_of(_QUANTILES))
ALL_METRICS: tuple[str, ...] = (
    *dict.fromkeys(name for task in _TASKS for name in task.metric_names),
    *RANKED,
    COVERAGE,
    *RETRIEVAL,
)
"""The metrics that any task reports."""
ALL_COMPARED: tuple[str, ...] = (*dict.fromkeys(name for task in _TASKS for name in task.compared), *RANKED, COVERAGE)
"""The metrics by which models can be compared."""
HIGHER_IS_BETTER = frozenset(
    {*RANKED, COVERAGE} | {metric.name for task in _TASKS for metric in task.metrics if metric.higher_is_better}
)
"""The metrics that are better when higher. All other compared metrics are better when lower."""


def direction(metric: str | None, better: str | None = None) -> int:
    """Returns 1 for a metric that is better when higher, and -1 for one that is better when lower.

    Args:
        better: "higher" or "lower", as verdicts and comparisons store it; needed for a metric of the user's own. None:
            the direction of the built-in metric.
    """
    return 1 if (better == "higher" if better else metric in HIGHER_IS_BETTER) else -1
