"""The command that tries settings of the training and the model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

from cyclopts import Parameter

from flows.cli.commands import answer, load_pipeline, reporting, run_spec_of, summary_text
from flows.cli.options import Count, PipelinePath, RunOptions
from headway.errors import ConfigError
from headway.messages import counted, number


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
        result = run_tune(run_spec, load, report, trials=trials, timeout=timeout, wait_seconds=options.wait)
        best = result["best"]
        if promote and best is not None:
            report.note("the whole pipeline with the best settings")
            tuned = replace(run_spec, loaded=load(best["overrides"]))
            record = execute(tuned, report, wait_seconds=options.wait)
    text = "\n".join(_text(result, str(pipeline)))
    exit_code = 0
    if promote:
        result["run"] = record
        done = record is not None and record.state in ("promoted", "already champion")
        exit_code = 0 if done else 4
        if record is not None:
            text += "\n" + summary_text(record, tuned)
        else:
            text += "\nno run was begun: the pipeline's own settings are the best"
    return answer(options, result, text, exit_code)


def _text(result: dict[str, Any], pipeline: str) -> Iterator[str]:
    from flows.execution.studies.tune import short
    from flows.tell.text import text_table

    yield f"{result['pipeline']}: loss on a holdout of {result['holdout']:.0%} of the train rows, best first"
    base, best = result["base"], result["best"]
    trials = sorted(result["trials"], key=lambda trial: (trial["loss"] is None, trial["loss"] or 0.0, trial["number"]))
    rows = [
        {
            "trial": "as it is",
            "loss": _number(base["loss"]),
            "steps": base["steps"],
            "seconds": base["training_seconds"],
        }
    ]
    for trial in trials:
        params = {short(key): _setting(value) for key, value in trial["params"].items()}
        loss = (
            _number(trial["loss"])
            if trial["state"] == "complete"
            else "ended early"
            if trial["state"] == "pruned"
            else "failed"
        )
        rows.append(
            {
                "trial": str(trial["number"]),
                "loss": loss,
                "steps": trial["steps"],
                "seconds": trial["seconds"],
                **params,
            }
        )
    yield text_table(rows)
    for trial in trials:
        if trial["error"]:
            yield f"trial {trial['number']} failed: {trial['error'].splitlines()[0]}"
    early = sum(trial["state"] == "pruned" for trial in trials)
    yield counted(len(trials), "trial") + (f", {early} of them ended early" if early else "")
    if result["same"]:
        same = f"every loss is {_number(base['loss'])}, whatever {', '.join(result['space'])}"
        yield f"no trial differs from the pipeline's own settings: {same}; nothing is written"
        return
    if best is None:
        yield "no trial is better than the pipeline's own settings; nothing is written"
        return
    yield f"best: trial {best['number']}, {_number(best['loss'])} ({_number(base['loss'])} with the pipeline's own settings)"
    run = "headway run" if pipeline == "." else f"headway run {pipeline}"
    yield f"written to {result['overlay']}; {run} --set @{os.path.relpath(result['overlay'])} takes it through the gate"


def _number(value: float | None) -> str:
    return "" if value is None else number(value)


def _setting(value: Any) -> str:
    if isinstance(value, list):
        return "-".join(map(str, value)) or "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)  # what was drawn: to be copied
