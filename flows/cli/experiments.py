"""Commands that train the pipeline several times to learn something about it, and the one that holds logged requests
against the data; they promote nothing unless asked to.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from flows.cli.commands import answer, load_pipeline, reporting, run_spec_of
from flows.cli.options import Columns, ModelName, Options, PipelinePath, Positive, RunOptions, Seconds, Share
from headway.errors import ConfigError
from headway.messages import agree, counted, listed

if TYPE_CHECKING:
    from flows.execution.studies.tune import Tuning


def tune(
    pipeline: PipelinePath = ".",
    /,
    *,
    trials: Positive | None = None,
    timeout: Seconds | None = None,
    options: RunOptions = RunOptions(),
) -> int:
    """Try settings of the training and the model.

    Args:
        trials: trials of the whole study, including those of earlier calls (default: tune.trials, 20).
        timeout: start no further trial after this time.
    """
    from flows.execution.studies.tune import tune as run_tune

    run_spec = run_spec_of(pipeline, options)
    with reporting(options) as report:
        found = run_tune(run_spec, report, trials=trials, timeout=timeout, wait_seconds=options.wait)
    return answer(options, found, "\n".join(_tune_text(found, str(pipeline))))


def _tune_text(found: Tuning, pipeline: str) -> Iterator[str]:
    from flows.execution.studies.tune import setting_text, short
    from flows.tell.rendering.cells import cell, text_table

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


def skew(
    pipeline: PipelinePath = ".",
    /,
    *,
    input: Annotated[str, Parameter(metavar="PATH")],
    requests: Annotated[tuple[Path, ...], Parameter(metavar="FILE")] = (),
    key: Columns = None,
    model: ModelName = "champion",
    format: str | None = None,
    max_differing: Share = 0.01,
    options: Options = Options(),
) -> int:
    """Compare logged requests with the same rows in the data.

    Args:
        input: the data that hold the requested rows: a file, a folder or a glob.
        requests: files of logged requests (default: all that headway serve logged in this store).
        key: the columns that identify a row (default: the pipeline's keys).
        model: the version whose predictions are compared, or the folder of a SavedModel.
        format: the format of --input (default: the pipeline's).
        max_differing: the share of rows in which a column may differ.
    """
    from flows.scoring.request_skew import request_skew

    missing = [str(path) for path in requests if not path.is_file()]
    if missing:
        fix = "name files of JSON lines, as headway serve --log-rate SHARE writes them; without --requests all of them are read"
        raise ConfigError(
            f"{listed(missing)} {agree(len(missing), 'is not a file', 'are not files')}", where="--requests", fix=fix
        )
    loaded = load_pipeline(pipeline, options)
    with reporting(options) as report:
        result = request_skew(
            loaded,
            requests=requests,
            input=input,
            keys=key or (),
            model=model,
            monitor=report.monitor("predict"),
            format=format,
            limit=max_differing,
        )
    return answer(options, result, "\n".join(_skew_text(result)), 3 if result["findings"] else 0)


def _skew_text(result: dict[str, Any]) -> Iterator[str]:
    rows, joined = result["rows"], result["joined"]
    which = f"version {result['version']}" if result["version"] else "the model"
    yield f"{joined:,} of {counted(rows, 'logged row')} that {which} answered are in the data, by {', '.join(result['keys'])}"
    if result["ambiguous"]:
        yield f"  {counted(result['ambiguous'], 'row')} left out: several rows of the data have the key"
    if result["other_versions"]:
        yield f"  {counted(result['other_versions'], 'row')} left out: another version answered"
    if result["unfit"]:
        yield f"  {counted(result['unfit'], 'row')} left out: without a key, or with a value that does not fit"
    if result["not_compared"]:
        yield f"  not compared, as they have several values per row: {', '.join(result['not_compared'])}"
    yield from (f"  {found['message']}" for found in result["findings"])
    if not result["findings"]:
        predictions = "" if result["predictions"] is None else " and the predictions"
        share = f"{result['limit']:.3g}"
        yield f"  all {counted(len(result['columns']), 'column')}{predictions} agree, in all but at most {share} of the rows"
