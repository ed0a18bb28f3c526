"""`headway tune`: trains the pipeline with several settings; promotes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from flows.cli.commands import answer, context_of, reporting
from flows.cli.options import PipelinePath, Positive, RunOptions, Seconds
from headway.messages import counted

if TYPE_CHECKING:
    from flows.pipeline.tune import Tuning


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
    from flows.pipeline.tune import tune as run_tune

    context = context_of(pipeline, options)
    with reporting(options) as report:
        found = run_tune(context, report, trials=trials, timeout=timeout, wait_seconds=options.wait)
    return answer(options, found, "\n".join(_tune_text(found, str(pipeline))))


def _tune_text(found: Tuning, pipeline: str) -> Iterator[str]:
    from flows.pipeline.tune import setting_text, short
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
