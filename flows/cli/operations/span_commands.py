"""The flows of production, typed without a server: backfill, watch, predict-spans, monitor."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from flows.cli.commands import answer, load_pipeline, reporting, run_spec_of, summary_text
from flows.cli.options import Count, NewestOptions, Options, PipelinePath, RunOptions
from headway.errors import ConfigError, HeadwayError, Locked

if TYPE_CHECKING:
    from flows.dag.run_spec import RunSpec
    from flows.progress.reporter import Reporter
    from flows.records import RunRecord


def backfill(
    pipeline: PipelinePath = ".",
    /,
    *,
    first: Annotated[str, Parameter(name="--from", metavar="SPAN", help="the last span of the first window")],
    to: Annotated[str, Parameter(metavar="SPAN", help="the last span of the last window")] = "latest",
    upto: Annotated[
        Literal["ingest", "train", "gate"], Parameter(help="the stage after which each window ends")
    ] = "gate",
    promote: Annotated[bool, Parameter(help="promote what passes the gate, the oldest window first")] = False,
    parallel: Annotated[
        Count, Parameter(help="how many windows to run at the same time; each starts its own TensorFlow process")
    ] = 1,
    options: NewestOptions = NewestOptions(),
) -> int:
    if parallel < 1:
        raise ConfigError(f"{parallel} is not a number of 1 or more", where="--parallel", fix="--parallel 1")
    if options.until != "latest":
        raise ConfigError("a backfill has a range of last spans", where="--until", fix="--from and --to name them")
    from flows.production.backfill import backfill as run_backfill
    from flows.production.backfill import table
    from flows.tell.text import text_table

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
    counts = ", ".join(f"{state} {count}" for state, count in result["states"].items())
    text = f"{result['pipeline']}: {result['first']} to {result['last']}\n{text_table(table(result), whole=('why',))}\n{counts}"
    return answer(options, result, text, 3 if result["states"].get("failed") else 0)


def watch(
    pipeline: PipelinePath = ".",
    /,
    *,
    once: Annotated[bool, Parameter(help="look once, retrain if a new span is complete, then end")] = False,
    every: Annotated[float, Parameter(metavar="SECONDS", help="how long to wait between two looks")] = 60.0,
    options: NewestOptions = NewestOptions(),
) -> int:
    if options.until != "latest":
        raise ConfigError(
            "a watcher looks for new spans", where="--until", fix="leave it out; headway backfill is for old ones"
        )
    if every <= 0:
        raise ConfigError(f"{every:g} is not a number above 0", where="--every", fix="--every 60")
    run_spec = run_spec_of(pipeline, options)
    with reporting(options) as report:
        if once:
            return _watched(options, *_look(run_spec, report, options.wait), run_spec)
        said = ""
        while not report.stop.is_set():
            try:
                found, record = _look(run_spec, report, options.wait)
                line = _watch_text(found)
                if record is not None:
                    line += f"\n{summary_text(record, run_spec)}"
            except Locked as error:
                line = f"not now: {error.problem}"
            except HeadwayError as error:
                line = f"failed: {error}"
            if line != said:  # what has not changed is said once
                report.note(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}")
                said = line
            report.stop.wait(every)
    return 0


def _look(run_spec: RunSpec, report: Reporter, wait: float) -> tuple[dict[str, Any], RunRecord | None]:
    from dataclasses import replace

    from flows.execution.run import execute
    from flows.observability.events import events_of_look
    from flows.production.new_spans import Outcome, look, trained_up_to

    records: list[RunRecord] = []

    def start(until: str, attempt: int) -> None:
        report.note(f"new: {until}; retraining")
        records.append(execute(replace(run_spec, until=until), report, wait_seconds=wait))

    def outcome(id: str | None, until: str) -> Outcome:
        if trained_up_to(run_spec) >= until:
            return "done"
        return "gone" if id is None else "running"  # of a flow run only the server knows

    found = look(run_spec, start=start, outcome=outcome, note=report.note)
    for event in events_of_look(run_spec.loaded.pipeline.name, found):
        report.happened(event)
    return found, records[0] if records else None


def _watch_text(found: dict[str, Any]) -> str:
    match found["state"]:
        case "started":
            text = f"{found['until']} was new"
        case "running":
            text = f"the retrain up to {found['until']} goes on (flow run {found['id']})"
        case "busy":
            text = f"another watcher is at it: {found['message']}"
        case _:
            text = f"nothing new after {found['until']}" if found["until"] else "nothing is complete yet"
    return "\n".join([text, *(f"  {span} waits: {why}" for span, why in found["waiting"].items())])


def _watched(options: Options, found: dict[str, Any], record: RunRecord | None, run_spec: RunSpec) -> int:
    text, code = _watch_text(found), 0
    if record is not None:
        text += f"\n{summary_text(record, run_spec)}"
        code = 0 if record.state in ("promoted", "already champion") else 4
    return answer(options, found | {"run": record}, text, code)


def predict_spans(
    pipeline: PipelinePath = ".",
    /,
    *,
    model: Annotated[
        str, Parameter(help="the version to predict with: its number, champion, previous or an alias")
    ] = "champion",
    since: Annotated[
        str, Parameter(metavar="SPAN", help="leave out spans before this one (default: none is left out)")
    ] = "",
    options: Options = Options(),
) -> int:
    """The champion over each complete span that has no predictions yet, into <predictions.output>/span=<span>/."""
    from flows.production.span_predictions import predict_spans as run

    loaded = load_pipeline(pipeline, options)
    with reporting(options) as report:
        result = run(loaded, report, model=model, since=since)
    return answer(options, result, "\n".join(predicted_lines(result)))


def predicted_lines(result: dict[str, Any]) -> list[str]:
    lines = [
        f"{row['span']}: {row['rows']:,} rows by version {row['version']}, in {row['output']}"
        + (f"; {row['quarantined']:,} rejected, see its quarantine.parquet" if row["quarantined"] else "")
        for row in result["spans"]
    ]
    if not lines:
        lines = [f"nothing to predict: {result['there']:,} spans have predictions in {result['output']}"]
    return [*lines, *(f"  {span} waits: {why}" for span, why in result["waiting"].items())]


def monitor(
    pipeline: PipelinePath = ".",
    /,
    *,
    retrain: Annotated[bool, Parameter(help="retrain on the newest window when there is an alarm")] = False,
    options: RunOptions = RunOptions(),
) -> int:
    """Hold new spans and logged requests against the champion's window, and the champion against labels that came since.

    It ends with 3 when there is an alarm."""
    from flows.execution.run import execute
    from flows.production.champion_watch import alarm_lines, check_champion

    run_spec = run_spec_of(pipeline, options)
    with reporting(options) as report:
        result = check_champion(run_spec, report)
        record = None
        if retrain and result["alarms"]:
            report.note("retraining")
            record = execute(run_spec, report, wait_seconds=options.wait)
    lines = alarm_lines(result)
    if record is not None:
        lines.append(summary_text(record, run_spec))
    return answer(options, result | {"run": record}, "\n".join(lines), 3 if result["alarms"] else 0)
