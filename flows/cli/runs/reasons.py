"""`headway why`, `headway path` and `headway logs`: why the steps of a run ran or were reused, where their outputs lie, and
what the run reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from flows.cli.commands import answer, arranged, store_of
from flows.cli.options import Options, PipelinePath
from headway.errors import ConfigError, StoreError
from headway.messages import did_you_mean, duration, some, window_text

if TYPE_CHECKING:
    from flows.records import RunRecord
    from flows.tell.rerun_reasons import Explained


def why(
    stage: str | None = None,
    pipeline: PipelinePath = ".",
    /,
    *,
    run: str | None = None,
    options: Options = Options(),
) -> int:
    """Why steps of a run ran or were reused; the pipeline may come first or last.

    Args:
        stage: a stage, such as train, or a step, such as 'ingest 2013-01' (default: all).
        run: the run's name or the beginning of it (default: the latest, or the latest with STAGE).
    """
    from flows.records import LATEST, find, find_with_step
    from flows.tell.ending import ending_of
    from flows.tell.rerun_reasons import steps_explained

    (name,), pipeline = arranged([stage or ""], pipeline)
    loaded, store = store_of(pipeline, options)
    newest = record = find(store, run or LATEST, pipeline=loaded.pipeline.name)
    if name and run is None:
        record = find_with_step(store, name, pipeline=loaded.pipeline.name)
    steps = steps_explained(store, record)
    if name:
        chosen = [step for step in steps if name in (step.stage, step.title)]
        if not chosen:
            raise _no_step(name, steps, record)
        steps = chosen
    value = {"run": record.run, "state": record.state, "steps": steps}
    spans = window_text(record.spans)
    lines = [f"run {record.run} of {record.pipeline}" + f", {spans}" * bool(spans) + f": {ending_of(record).word}"]
    lines += _lines(steps) if not name else [line for step in steps for line in _whole(step)]
    if record.error:
        lines.append(f"  then it ended{_error(record)}")
    if record.run != newest.run:
        latest = f"{newest.run} ({ending_of(newest).word})"
        lines.append(f"  the latest run, {latest}, has not finished this stage{_error(newest)}")
    return answer(options, value, "\n".join(lines))


def path(stage: str, pipeline: PipelinePath = ".", /, *, run: str | None = None, options: Options = Options()) -> int:
    """The folder of a stage's output, on this machine's disk; the pipeline may come first or last.

    Args:
        stage: a stage, such as evaluate, or a step, such as 'ingest 2013-01'.
        run: the run's name or the beginning of it, or latest (default: the latest run that has the stage).
    """
    from flows.records import find, find_with_step
    from flows.tell.past_run import Run

    (stage,), pipeline = arranged([stage], pipeline)
    loaded, store = store_of(pipeline, options)
    name = loaded.pipeline.name
    record = find(store, run, pipeline=name) if run else find_with_step(store, stage, pipeline=name)
    folder = str(Run(loaded, store, record).output(stage))
    return answer(options, {"run": record.run, "stage": stage, "path": folder}, folder)


def _error(record: RunRecord) -> str:
    return f": {record.error.splitlines()[0]}" if record.error else ""


def _no_step(stage: str, steps: Sequence[Explained], record: RunRecord) -> ConfigError:
    names = list(dict.fromkeys(step.stage for step in steps))
    close = did_you_mean(stage, [*names, *(step.title for step in steps)])
    there = f"it has {some(names, 20)}" if names else "it ended before the first one"
    fix = close or "headway runs lists the runs; --run names another one"
    return ConfigError(f"run {record.run} has no step {stage!r}: {there}", where="STAGE", fix=fix)


def _lines(steps: Sequence[Explained]) -> Iterator[str]:
    for step in steps:
        took = "reused" if step.cached else duration(step.seconds)
        yield f"  {step.title:<22} {took:>8}  {step.reason}".rstrip()


def _whole(step: Explained) -> Iterator[str]:
    if step.cached:
        yield f"  {step.title} was reused: nothing that goes into it has changed"
        if step.made_by:
            took = f", in {duration(step.made_in)}" if step.made_in is not None else ""
            yield f"    made by   run {step.made_by}{took}"
    else:
        yield f"  {step.title} ran, {duration(step.seconds)}: {step.reason}"
        if step.why not in (None, step.reason, "never run"):
            yield f"    differs   {step.why}"
    if step.reads:
        reads = [f"{read.title} ({'reused' if read.cached else f'ran: {read.reason}'})" for read in step.reads]
        yield f"    reads     {some(reads, 8)}"
    yield f"    output    {step.output}" + ("" if step.kept else " (no longer in the store)")


def logs(run: str = "latest", pipeline: PipelinePath = ".", /, *, options: Options = Options()) -> int:
    """What a run reported while it ran; the pipeline may come first or last.

    Args:
        run: the run's name or the beginning of it.
    """
    from flows.records import LATEST, find, log_path, read_log

    (run,), pipeline = arranged([run], pipeline, LATEST)
    loaded, store = store_of(pipeline, options)
    record = find(store, run, pipeline=loaded.pipeline.name)
    text = read_log(store, record.run)
    if text is None:
        fix = f"headway show {record.run} has its record"
        raise StoreError(f"run {record.run} has no log: it was made before there were any", where=store.name, fix=fix)
    lines = [{"time": line[:24], "line": line[25:]} for line in text.splitlines()]
    value = {
        "run": record.run,
        "state": record.state,
        "file": str(log_path(store, record.run)),
        "lines": lines,
    }
    # the date stands in the run's name
    return answer(options, value, "\n".join(f"{line['time'][11:19]} {line['line']}".rstrip() for line in lines))
