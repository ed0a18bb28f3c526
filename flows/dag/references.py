"""Finds what the gate compares with besides the champion, and checks that a pipeline's metrics exist for its task.

An early champion, the data behind a model, the facts of the labels.

    check_metrics(loaded, possible_tasks(pipeline.task, label))      # before anything runs
    reference_version(run_spec, champion, ...)                       # the version to compare with besides the champion
"""

from collections.abc import Iterable, Sequence
from typing import Any

from flows.config.pipeline import LoadedPipeline
from flows.dag.run_spec import RunSpec
from headway.errors import ConfigError, HeadwayError, StoreError
from headway.evaluation.gate import Parts, trained_on
from headway.metrics.ranking import COVERAGE, RANKED
from headway.registry.registry import Version
from headway.registry.standing import Reference, reference_of
from headway.schema.columns import LABEL, Column
from headway.statistics.summary import WindowStatistics
from headway.storage.fingerprint import fingerprint
from headway.tabular.expressions import parse
from headway.tabular.label import LabelConfig
from headway.tasks.base import LabelFacts
from headway.tasks.table import task_of
from tfcore.heads.label_parameters import LabelParameters

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


def data_of(run_spec: RunSpec, parts: Iterable[tuple[str, str]]) -> dict[str, str]:
    """A digest of the raw files of each span among these parts."""
    spans = dict.fromkeys(span for span, _ in parts)
    return {span: fingerprint({"files": [[f.bytes, f.crc32c] for f in run_spec.files(span)]}) for span in spans}


def label_facts(label: LabelParameters, statistics: WindowStatistics, column: str = LABEL) -> LabelFacts:
    """The facts of a label in a fitted transform and in the window's statistics."""
    summary = statistics.of("train").get(column)
    median = summary.median if label.median is None and summary is not None else label.median
    return LabelFacts(
        counts=label.counts or (),
        mean=label.mean,
        median=None if task_of(label.task).has_classes else median,
        quantiles=label.quantiles,
    )


def trained_parts(version: Version) -> Parts:
    """The (span, part) of every row that a version was trained on, or that the model was which it began with."""
    parts = [*version.facts.get("inherited_parts", []), *version.facts.get("train_parts", [])]
    return tuple(dict.fromkeys((span, part) for span, part in parts))


def reference_version(
    run_spec: RunSpec, champion: Version, *, task: str | None, evaluation: Parts, split: str
) -> tuple[Version, Reference] | None:
    """An early champion that can score these rows fairly, and how those since stood to it; None: there is but the present one."""
    config = run_spec.loaded.pipeline.gate
    known_task: Any = task or champion.facts.get("task")
    label = run_spec.loaded.pipeline.label.meaning
    if config.reference_champions < 2 or known_task is None:
        return None
    registry = run_spec.registry
    history = registry.history()
    versions: dict[int, Version] = {}
    for number in {event.version for event in history[-config.reference_champions :]}:
        try:
            versions[number] = registry.version(number)
        except StoreError:  # it is gone or damaged, and nothing to compare with
            continue
    facts = {number: version.facts for number, version in versions.items()}
    barred = set()
    for number, details in facts.items():
        parts = trained_parts(versions[number])
        other = details.get("task") != known_task or details.get("label", label) != label
        if other or trained_on(parts, details.get("split", ""), evaluation, split):
            barred.add(number)
    found = reference_of(history, facts, most=config.reference_champions, barred=barred)
    return None if found is None else (versions[found.version], found)
