"""Checks that the metrics which a pipeline names exist for the tasks that its label can have.

check_metrics(loaded, possible_tasks(pipeline.task, label, columns))      # before anything runs
"""

from collections.abc import Sequence

from flows.config.pipeline import LoadedPipeline
from headway.errors import ConfigError, HeadwayError
from headway.metrics.ranking import COVERAGE, RANKED
from headway.schema.columns import Column
from headway.tabular.expressions import parse
from headway.tabular.label import LabelConfig
from headway.tasks.table import task_of

_BY_TYPE: dict[str, tuple[str, ...]] = {
    "bytes": ("binary", "multiclass"),
    "float32": ("regression", "binary"),
    "int64": ("binary", "multiclass", "regression"),
}


def possible_tasks(task: str, label: LabelConfig, columns: tuple[Column, ...]) -> tuple[str, ...]:
    """Return the tasks that the pipeline and the label's type allow, before any row is read."""
    if task != "auto":
        return (task,)
    if (
        label.expression is not None
        and parse(label.expression).decides
        and label.columns() <= {c.name for c in columns}
    ):
        return ("binary",)
    try:
        return _BY_TYPE[label.stored(columns).type]
    except HeadwayError:  # what is wrong with the label is ingest's to say
        return _BY_TYPE["int64"]


def check_metrics(loaded: LoadedPipeline, tasks: Sequence[str]) -> None:
    """ConfigError when a metric that evaluation or the gate names exists for none of these tasks.

    Several tasks are several possibilities: the names have to fit one of them together.
    """
    pipeline, ranked = loaded.pipeline, loaded.pipeline.ndcg_at is not None
    items = pipeline.evaluation.item is not None
    if ranked and all(task_of(task).wide for task in tasks):
        raise ConfigError(
            f"ndcg_at needs an order, and the predictions of a {tasks[0]} task have none",
            where=f"{loaded.file}: evaluation.ndcg_at",
            fix="leave it out",
        )
    if pipeline.evaluation.threshold is not None and "binary" not in tasks:
        raise ConfigError(
            f"a threshold decides between two classes, and the task is {' or '.join(tasks)}",
            where=f"{loaded.file}: evaluation.threshold",
            fix="leave it out",
        )
    problems: list[ConfigError] = []
    for task in tasks:
        try:
            pipeline.gate.check(
                task,
                ranked=ranked,
                items=items,
                retrieval=pipeline.ranks_index,
                own=loaded.own_metrics,
                where=f"{loaded.file}: gate",
            )
        except ConfigError as error:
            problems.append(error)
    if len(problems) < len(tasks):
        return
    if len({str(problem) for problem in problems}) == 1:
        raise problems[0]
    ranking = (*(RANKED if ranked else ()), *((COVERAGE,) if ranked and items else ()))
    either = " or ".join(f"{task} ({', '.join((*task_of(task).metric_names, *ranking))})" for task in tasks)
    gate = pipeline.gate
    named = sorted({*gate.thresholds, *(gate.tolerance or {})} | ({gate.primary} if gate.primary else set()))
    raise ConfigError(
        f"the metrics {', '.join(named)} do not all exist for any one task that this label can have",
        where=f"{loaded.file}: gate",
        fix=f"the label's task is {either}; gate.tolerance compares "
        + "; ".join(f"{task}: {', '.join((*task_of(task).compared, *ranking))}" for task in tasks),
    )
