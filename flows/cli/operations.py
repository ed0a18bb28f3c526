"""The commands that repeat or automate runs of a pipeline: tune, backfill, monitor, deploy."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from flows.cli.options import (
    JsonOption,
    PipelinePath,
    Positive,
    RunOptions,
    Seconds,
    SizeOptions,
    StageOptions,
    answer,
    context_of,
    reporting,
    summary_text,
)
from headway.config import load
from headway.errors import ConfigError
from headway.messages import counted

if TYPE_CHECKING:
    from flows.config.production import ScheduleConfig
    from flows.pipeline.tune import Tuning

Pipelines = Annotated[
    list[str], Parameter(help="Names pipeline.yaml files or their folders (default: this folder).", show_default=False)
]


def tune(
    pipeline: PipelinePath = ".",
    /,
    *,
    trials: Positive | None = None,
    timeout: Seconds | None = None,
    options: RunOptions = RunOptions(),
) -> int:
    """Tries settings of the training and the model, and writes the best to tuned.yaml.

    A holdout of the train rows decides, never the rows of the gate.

    Args:
        trials: Sets the trials of the whole study, those of earlier calls among them (default: tune.trials, 20).
        timeout: Starts no further trial after this time.
    """
    from flows.pipeline.tune import tune as run_tune

    context = context_of(pipeline, options)
    with reporting(options) as report:
        found = run_tune(context, report, trials=trials, timeout=timeout, wait_seconds=options.wait)
    return answer(options, found, "\n".join(_tune_text(found, str(pipeline))))


def _tune_text(found: Tuning, pipeline: str) -> Iterator[str]:
    from flows.pipeline.tune import setting_text, short
    from flows.report.model import cell
    from flows.report.text import text_table

    yield f"{found.pipeline}: loss on a holdout of {found.holdout:.0%} of the train rows, best first"
    base, best = found.base, found.best
    trials = sorted(found.trials, key=lambda trial: trial.order)
    rows: list[dict[str, object]] = [
        {"trial": "as it is", "loss": cell(base.loss), "steps": base.steps, "seconds": base.training_seconds}
    ]
    for trial in trials:
        loss = {"complete": cell(trial.loss), "pruned": "ended early"}.get(trial.state, "failed")
        params = {short(key): setting_text(value) for key, value in trial.params.items()}
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


@dataclass(frozen=True, kw_only=True)
class BackfillOptions(SizeOptions, StageOptions):
    """The options of backfill, whose --from and --to name the last spans of its windows."""


def backfill(
    pipeline: PipelinePath = ".",
    /,
    *,
    first: Annotated[str, Parameter(name="--from", metavar="SPAN")],
    to: Annotated[str, Parameter(metavar="SPAN")] = "latest",
    upto: Literal["ingest", "train", "gate"] = "gate",
    promote: bool = False,
    parallel: Positive = 1,
    options: BackfillOptions = BackfillOptions(),
) -> int:
    """Trains and judges a model for each of several past windows; without --promote nothing is promoted.

    Args:
        first: Names the last span of the first window.
        to: Names the last span of the last window.
        upto: Ends each window after this stage.
        promote: Promotes what passes the gate, the oldest window first.
        parallel: Says how many windows run at the same time; each starts its own TensorFlow process.
    """
    from flows.pipeline.backfill import backfill as run_backfill
    from flows.report.text import text_table

    context = context_of(pipeline, options)
    with reporting(options) as report:
        result = run_backfill(
            context,
            report,
            first=first,
            last=to,
            upto=upto,
            promote=promote,
            parallel=parallel,
            wait_seconds=options.wait,
        )
    rows = text_table([each.row for each in result.rows], whole=("why",))
    text = f"{result.pipeline}: {result.first} to {result.last}\n{rows}\n{result.counts}"
    return answer(options, result, text, 3 if "failed" in result.states else 0)


def monitor(pipeline: PipelinePath = ".", /, *, retrain: bool = False, options: RunOptions = RunOptions()) -> int:
    """Checks new spans for drift from the champion's window, and the champion on labels that came since.

    The exit code is 3 when there is an alarm.

    Args:
        retrain: Retrains on the newest window when there is an alarm.
    """
    from flows.pipeline.monitor import check_champion
    from flows.pipeline.run import execute

    context = context_of(pipeline, options)
    with reporting(options) as report:
        result = check_champion(context, report)
        lines = result.lines
        if retrain and result.alarms:
            report.note("retraining")
            record = execute(context, report, wait_seconds=options.wait)
            result = result.model_copy(update={"run": record})
            lines.append(summary_text(record, context))
    return answer(options, result, "\n".join(lines), 3 if result.alarms else 0)


def deploy(
    pipelines: Pipelines = ["."],  # noqa: B006
    /,
    *,
    schedule: Annotated[str | None, Parameter(metavar="CRON")] = None,
    timezone: Annotated[str | None, Parameter(metavar="ZONE")] = None,
    pool: Annotated[str, Parameter(metavar="NAME")] = "headway",
    gpus: Positive | None = None,
    remove: bool = False,
    options: JsonOption = JsonOption(),
) -> int:
    """Puts pipelines on a Prefect server, with their deployments, schedules and alarms, or removes them from it.

    PREFECT_API_URL says which server, PREFECT_API_AUTH_STRING its password.

    Args:
        schedule: Says when to retrain, e.g. '0 5 2 * *'; none removes the schedule (default: schedule of pipeline.yaml).
        timezone: Names the time zone of --schedule (default: UTC).
        pool: Names the work pool, which is created if it does not exist.
        gpus: Says how many trainings may run at once on the workers of queue gpu (default: unchanged, at first 1).
        remove: Removes the pipelines from the server; their stores and past runs stay.
    """
    from flows.config.extras import require
    from flows.config.pipeline import read_pipeline

    if remove:
        given = {"--schedule": schedule, "--timezone": timezone, "--gpus": gpus}
        if other := next((name for name, value in given.items() if value is not None), None):
            raise ConfigError("--remove sets nothing", where=other, fix="leave one of the two out")
        require("prefect", where="headway deploy")
        return _remove(pipelines, options)
    timing = _timing(schedule, timezone)
    loaded = [read_pipeline(Path(pipeline)) for pipeline in pipelines]
    names = [each.pipeline.name for each in loaded]
    if twice := next((name for name in names if names.count(name) > 1), None):
        problem = f"two of these pipelines are called {twice!r}, and deployments are named after them"
        raise ConfigError(problem, where=twice, fix="give one of them another name")

    require("prefect", where="headway deploy")
    from flows.config.production import DATA_QUEUE
    from flows.orchestration.deploy import deploy as deploy_one
    from flows.orchestration.deploy import lost_run_problems, queues_of
    from flows.orchestration.server import connected, has_worker, worker_command

    with connected() as (client, url):
        changes = {
            each.pipeline.name: deploy_one(client, each, pool=pool, retrain=timing, gpus=gpus) for each in loaded
        }
        lines = _changed(url, changes, "nothing to change")
        for each in loaded:
            if not each.pipeline.alarms.notify:
                lines.append(
                    f"{each.pipeline.name}: nobody is told of a failure: alarms.notify of {each.file} is empty"
                )
            lines += [f"{each.pipeline.name}: {why}" for why in lost_run_problems(client, each.pipeline.name)]
        # a worker of all queues has not polled one that was made just now
        online = any(has_worker(pool, queue) for queue in (DATA_QUEUE, "default"))
        others = {queue for each in loaded for queue in queues_of(each)} - {DATA_QUEUE}
        idle = [queue for queue in sorted(others) if not has_worker(pool, queue)]
    lines.append("next:")
    if not online:
        lines.append(f"  start a worker, as none polls {pool}:  python -P -m flows.orchestration.worker --pool {pool}")
    lines += [f"  start a worker of queue {queue}, unless one is up:  {worker_command(pool, queue)}" for queue in idle]
    lines += [f"  retrain now:  prefect deployment run 'retrain/{name}' --watch" for name in names]
    return answer(options, {"server": url, "changes": changes, "worker": online}, "\n".join(lines))


def _remove(pipelines: Sequence[str], options: JsonOption) -> int:
    from flows.config.pipeline import read_pipeline
    from flows.orchestration.deploy import undeploy
    from flows.orchestration.server import connected

    # where a file is gone, what was typed is the pipeline's name
    names = [read_pipeline(Path(each)).pipeline.name if Path(each).exists() else each for each in pipelines]
    with connected() as (client, url):
        changes = {name: undeploy(client, name) for name in names}
    return answer(
        options, {"server": url, "changes": changes}, "\n".join(_changed(url, changes, "nothing of it is there"))
    )


def _changed(url: str, changes: Mapping[str, Sequence[str]], nothing: str) -> list[str]:
    lines = [f"Prefect server {url}"]
    for name, changed in changes.items():
        lines += [f"{name}:", *(f"  {each}" for each in changed)] if changed else [f"{name}: {nothing}"]
    return lines


def _timing(schedule: str | None, timezone: str | None) -> ScheduleConfig | Literal[False] | None:
    from flows.config.production import ScheduleConfig

    if timezone is not None and schedule in (None, "none"):
        raise ConfigError(
            "a time zone needs a schedule, and none is given", where="--timezone", fix="give --schedule CRON too"
        )
    if schedule is None:
        return None
    if schedule == "none":
        return False
    return load(ScheduleConfig, {"retrain": schedule, "timezone": timezone or "UTC"}, where="--schedule")
