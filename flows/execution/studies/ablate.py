"""Ablation: trains the pipeline without a column, or some, and compares with the model that has them all.

    found = ablate(run_spec, report, groups=[("carrier",), ("origin", "dest")])
    found.rows[0]          # the one that is missed most: Without(without=("carrier",), difference=-0.04, interval=..., ...)

Everything up to the transform is shared; each group costs a transform, a training and an evaluation. The comparison is the
gate's: paired over the eval rows, with its intervals. They are of rows; what another seed alone changes is shown beside.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from flows.dag.run_spec import RunResult, RunSpec
from flows.execution.studies.study import FAILURES, Run, studying
from flows.progress.reporter import Reporter
from flows.records import Metrics
from headway.config import Frozen
from headway.errors import ConfigError
from headway.evaluation.verdict import CHAMPION, NOT_COMPARED
from headway.messages import listed
from headway.schema.columns import suggest
from headway.tasks.table import direction
from tfcore.evaluation.request import EvaluateRequest
from tfcore.transform.parameters import TransformRequest

NAME = "{}.ablate"


class Without(Frozen):
    """A model without some columns beside the one with all of them, by the primary metric, over the same eval rows."""

    without: tuple[str, ...] = ()
    metric: str | None = None
    value: float | None = None
    difference: float | None = None
    interval: tuple[float, float] | None = None
    outcome: str = "not compared"
    harm: float | None = None
    """What leaving the columns out loses, whether more of the metric is better or less."""
    seconds: float | None = None
    error: str | None = None


class Ablation(Frozen):
    pipeline: str
    primary: str | None
    eval_rows: int | None
    base: Metrics
    seed: Without
    """Another seed, with every column."""
    rows: tuple[Without, ...]
    """The most harm first, failures last."""


def ablate(
    run_spec: RunSpec,
    report: Reporter,
    *,
    groups: Sequence[Sequence[str]] = (),
    wait_seconds: float = 0.0,
) -> Ablation:
    """Compare the pipeline with itself without each group of columns; see the module.

    Args:
        groups: columns that are left out together; none: each feature alone.

    Raises:
        ConfigError: a column is not a feature, or no feature would be left.
    """
    name = run_spec.loaded.pipeline.name
    plain: dict[str, Any] = {}
    if run_spec.loaded.pipeline.training.warm_start is not None:
        report.note("training.warm_start is left out: the champion knows every column")
        plain["training.warm_start"] = None
    if run_spec.loaded.pipeline.gate.repeats > 1:
        report.note("gate.repeats is left out: one seed each, and the last row shows what another one changes")
        plain["gate.repeats"] = 1
    if plain:
        run_spec = replace(run_spec, loaded=run_spec.loaded.changed(plain))
    with studying(run_spec, report, name=NAME.format(name), wait_seconds=wait_seconds) as run:
        report.note("with every column")
        fitted = run(replace(run_spec, last="transform"), freeze=True)
        chosen = _chosen(run_spec, fitted, groups)
        base = run(replace(run_spec, last="evaluate", alone=True))
        scored = next(output for output in base.outputs if output.title == EvaluateRequest.name)
        spec = replace(run_spec, against=scored, last="gate")
        report.note("with another seed")
        seed = _compared(run(replace(spec, seed=run_spec.chosen_seed + 1)))
        rows = []
        for number, columns in enumerate(chosen, start=1):
            report.note(f"without {listed(list(columns))} ({number} of {len(chosen)})")
            rows.append(_row(replace(spec, without=frozenset(columns)), columns, run))
    return Ablation(
        pipeline=name,
        primary=seed.metric,
        eval_rows=base.evaluation.rows if base.evaluation else None,
        base=base.evaluation.metrics if base.evaluation else {},
        seed=seed,
        rows=tuple(sorted(rows, key=lambda row: float("inf") if row.harm is None else -row.harm)),
    )


def _chosen(run_spec: RunSpec, fitted: RunResult, groups: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    transform = next(output for output in fitted.outputs if output.stage == TransformRequest.name)
    parameters = transform.value.parameters
    dates = {part.name: part.source.name for part in parameters.parts}
    features = list(dict.fromkeys(dates.get(f.column.name, f.column.name) for f in parameters.fitted))
    raw = {column.name for column in parameters.raw}
    features = [name for name in features if name in raw]
    for name in (name for group in groups for name in group):
        if name not in features:
            raise ConfigError(
                f"{name!r} is not a feature of this pipeline",
                where=f"{run_spec.loaded.file}: columns",
                fix=suggest(name, features),
            )
    chosen = list(dict.fromkeys(tuple(dict.fromkeys(group)) for group in groups)) or [(name,) for name in features]
    for group in chosen:
        if set(group) >= set(features) and not parameters.derived:
            raise ConfigError(
                f"without {listed(list(group))} no feature is left",
                where=f"{run_spec.loaded.file}: columns",
                fix="an ablation needs two features or more",
            )
    return chosen


def _row(spec: RunSpec, columns: Sequence[str], run: Run) -> Without:
    try:
        return _compared(run(spec), columns)
    except FAILURES as error:
        return Without(without=tuple(columns), error=str(error))


def _compared(result: RunResult, without: Sequence[str] = ()) -> Without:
    """The gate's comparison by the primary metric."""
    verdict = result.verdict
    metric = verdict.primary if verdict else None
    found = verdict.of(CHAMPION, metric) if verdict else None
    change = found.change if found else None
    return Without(
        without=tuple(without),
        metric=metric,
        value=verdict.metrics.candidate.get(str(metric)) if verdict else None,
        difference=change,
        interval=found.interval if found else None,
        outcome=found.outcome if found else NOT_COMPARED,
        harm=None if change is None or verdict is None else -direction(metric, verdict.better) * change,
        seconds=round(sum(output.seconds for output in result.outputs if not output.hit), 3),
    )
