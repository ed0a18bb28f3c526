"""The command that tries settings of the training and the model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from flows.cli.commands import answer, load_pipeline, reporting, run_spec_of, summary_text
from flows.cli.options import Count, PipelinePath, RunOptions
from flows.records import State
from headway.errors import ConfigError
from headway.messages import counted

if TYPE_CHECKING:
    from flows.execution.studies.tune import Tuning


def tune(
    pipeline: PipelinePath = ".",
    /,
    *,
    trials: Annotated[
        Count | None,
        Parameter(help="trials of the whole study, including those of earlier calls (default: tune.trials, 20)"),
    ] = None,
    timeout: Annotated[
        float | None, Parameter(metavar="SECONDS", help="start no further trial after this time")
    ] = None,
    promote: Annotated[bool, Parameter(help="then run the pipeline with the best settings, through the gate")] = False,
    options: RunOptions = RunOptions(),
) -> int:
    if trials is not None and trials < 1:
        raise ConfigError(f"{trials} is not a number of 1 or more", where="--trials", fix="--trials 20")
    from flows.execution.run import execute
    from flows.execution.studies.tune import tune as run_tune

    run_spec = run_spec_of(pipeline, options)

    def load(overrides: Any) -> Any:
        return load_pipeline(pipeline, options, **overrides)

    record, tuned = None, run_spec
    with reporting(options) as report:
        found = run_tune(run_spec, load, report, trials=trials, timeout=timeout, wait_seconds=options.wait)
        if promote and found.best is not None:
            report.note("the whole pipeline with the best settings")
            tuned = replace(run_spec, loaded=load(found.best.overrides))
            record = execute(tuned, report, wait_seconds=options.wait)
    text = "\n".join(_text(found, str(pipeline)))
    if not promote:
        return answer(options, found, text)
    ending = (
        "no run was begun: the pipeline's own settings are the best" if record is None else summary_text(record, tuned)
    )
    done = record is not None and record.state in (State.PROMOTED, State.ALREADY)
    return answer(options, {**dict(found), "run": record}, f"{text}\n{ending}", 0 if done else 4)


def _text(found: Tuning, pipeline: str) -> Iterator[str]:
    from flows.execution.studies.tune import short
    from flows.tell.sections.column_rows import cell
    from flows.tell.text import text_table

    yield f"{found.pipeline}: loss on a holdout of {found.holdout:.0%} of the train rows, best first"
    base, best = found.base, found.best
    trials = sorted(found.trials, key=lambda trial: trial.order)
    rows: list[dict[str, object]] = [
        {"trial": "as it is", "loss": cell(base.loss), "steps": base.steps, "seconds": base.training_seconds}
    ]
    for trial in trials:
        loss = {"complete": cell(trial.loss), "pruned": "ended early"}.get(trial.state, "failed")
        params = {short(key): _setting(value) for key, value in trial.params.items()}
        ran = {"trial": str(trial.number), "loss": loss, "steps": trial.steps, "seconds": trial.seconds}
        rows.append({**ran, **params})
    yield text_table(rows)
    for trial in trials:
        if trial.error:
            yield f"trial {trial.number} failed: {trial.error.splitlines()[0]}"
    early = sum(trial.state == "pruned" for trial in trials)
    yield counted(len(trials), "trial") + (f", {early} of them ended early" if early else "")
    if found.same:
        same = f"every loss is {cell(base.loss)}, whatever {', '.join(found.space)}"
        yield f"no trial differs from the pipeline's own settings: {same}; nothing is written"
    elif best is None:
        yield "no trial is better than the pipeline's own settings; nothing is written"
    else:
        yield f"best: trial {best.number}, {cell(best.loss)} ({cell(base.loss)} with the pipeline's own settings)"
        run = "headway run" if pipeline == "." else f"headway run {pipeline}"
        overlay = os.path.relpath(str(found.overlay))
        yield f"written to {found.overlay}; {run} --set @{overlay} takes it through the gate"


def _setting(value: Any) -> str:
    if isinstance(value, list):
        return "-".join(map(str, value)) or "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)  # what was drawn: to be copied
