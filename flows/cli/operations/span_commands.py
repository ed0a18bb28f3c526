"""The flows of production, typed without a server: backfill, watch, predict-spans, monitor."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from flows.cli.commands import answer, load_pipeline, reporting, run_spec_of, summary_text
from flows.cli.options import NewestOptions, Options, Pause, PipelinePath, Positive, RunOptions
from headway.errors import ConfigError, HeadwayError, Locked

if TYPE_CHECKING:
    from flows.dag.run_spec import RunSpec
    from flows.production.new_spans import Looked, Outcome
    from flows.progress.reporter import Reporter
    from flows.records import RunRecord


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
    from flows.production.backfill import backfill as run_backfill
    from flows.tell.rendering.cells import text_table

    run_spec = run_spec_of(pipeline, options)
    with reporting(options) as report:
        result = run_backfill(
            run_spec,
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


def watch(
    pipeline: PipelinePath = ".",
    /,
    *,
    once: bool = False,
    every: Pause = 60.0,
    options: NewestOptions = NewestOptions(),
) -> int:
    """Wait for new data, and retrain once for each new span that is complete.

    Args:
        once: look once, retrain if a new span is complete, then end.
        every: how long to wait between two looks.
    """
    if options.until != "latest":
        raise ConfigError(
            "a watcher looks for new spans", where="--until", fix="leave it out; headway backfill is for old ones"
        )
    run_spec = run_spec_of(pipeline, options)
    with reporting(options) as report:
        if once:
            found = _look(run_spec, report, options.wait)
            retrained = found.run is None or found.run.state in ("promoted", "already champion")
            return answer(options, found, _look_text(found, run_spec), 0 if retrained else 4)
        said = ""
        while not report.stop.is_set():
            try:
                line = _look_text(_look(run_spec, report, options.wait), run_spec)
            except Locked as error:
                line = f"not now: {error.problem}"
            except HeadwayError as error:
                line = f"failed: {error}"
            if line != said:  # what has not changed is said once
                report.note(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}")
                said = line
            report.stop.wait(every)
    return 0


def _look(run_spec: RunSpec, report: Reporter, wait: float) -> Looked:
    from dataclasses import replace

    from flows.execution.run import execute
    from flows.production.new_spans import look

    records: list[RunRecord] = []

    def start(until: str, attempt: int) -> None:
        report.note(f"new: {until}; retraining")
        records.append(execute(replace(run_spec, until=until), report, wait_seconds=wait))

    found = look(run_spec, report, start=start, ask=_ask)
    return found.model_copy(update={"run": records[0] if records else None})


def _ask(id: str | None) -> Outcome | None:
    """How a flow run stands; None where no server can be asked."""
    if id is None:  # a watcher that died here trained in its own process
        return "gone"
    try:
        from flows.orchestration.deploying.connection import connected
        from flows.watch_flow import outcome_of

        with connected():
            return outcome_of(id)
    except (ImportError, HeadwayError):
        return None


def _look_text(found: Looked, run_spec: RunSpec) -> str:
    lines = [found.sentence, *(f"  {line}" for line in found.waits)]
    return "\n".join(lines if found.run is None else [*lines, summary_text(found.run, run_spec)])


def predict_spans(
    pipeline: PipelinePath = ".",
    /,
    *,
    model: str = "champion",
    since: Annotated[str, Parameter(metavar="SPAN")] = "",
    options: Options = Options(),
) -> int:
    """The champion over each complete span that has no predictions yet, into <predictions.output>/span=<span>/.

    Args:
        model: the version to predict with: its number, champion, previous or an alias.
        since: leave out spans before this one (default: none is left out).
    """
    from flows.production.span_predictions import predict_spans as run

    loaded = load_pipeline(pipeline, options)
    with reporting(options) as report:
        result = run(loaded, report, model=model, since=since)
    return answer(options, result, "\n".join(result.lines))


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
    from flows.execution.run import execute
    from flows.production.champion_watch import check_champion

    run_spec = run_spec_of(pipeline, options)
    with reporting(options) as report:
        result = check_champion(run_spec, report)
        lines = result.lines
        if retrain and result.alarms:
            report.note("retraining")
            record = execute(run_spec, report, wait_seconds=options.wait)
            result = result.model_copy(update={"run": record})
            lines.append(summary_text(record, run_spec))
    return answer(options, result, "\n".join(lines), 3 if result.alarms else 0)
