"""The flows of production, typed without a server: backfill and monitor."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from flows.cli.commands import answer, context_of, reporting, summary_text
from flows.cli.options import NewestOptions, PipelinePath, Positive, RunOptions
from headway.errors import ConfigError


def backfill(
    pipeline: PipelinePath = ".",
    /,
    *,
    first: Annotated[str, Parameter(name="--from", metavar="SPAN")],
    to: Annotated[str, Parameter(metavar="SPAN")] = "latest",
    upto: Literal["ingest", "train", "gate"] = "gate",
    promote: bool = False,
    parallel: Positive = 1,
    options: NewestOptions = NewestOptions(),
) -> int:
    """Train and judge a model for each of several past windows.

    Args:
        first: the last span of the first window.
        to: the last span of the last window.
        upto: the stage after which each window ends.
        promote: promote what passes the gate, the oldest window first.
        parallel: how many windows to run at the same time; each starts its own TensorFlow process.
    """
    if options.until != "latest":
        raise ConfigError("a backfill has a range of last spans", where="--until", fix="--from and --to name them")
    from flows.pipeline.backfill import backfill as run_backfill
    from flows.tell.rendering.cells import text_table

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


def monitor(
    pipeline: PipelinePath = ".",
    /,
    *,
    retrain: bool = False,
    options: RunOptions = RunOptions(),
) -> int:
    """Hold new spans against the champion's window, and the champion against labels that came since.

    It ends with 3 when there is an alarm.

    Args:
        retrain: retrain on the newest window when there is an alarm.
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
