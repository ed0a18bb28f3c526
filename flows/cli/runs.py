"""The commands on runs: run, plan, runs, show, report."""

from __future__ import annotations

import webbrowser
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from flows.cli.options import (
    Count,
    Options,
    PipelinePath,
    RunOptions,
    WindowOptions,
    answer,
    context_of,
    execute,
    names_and_pipeline,
    store_of,
    summary_text,
)
from headway.errors import ConfigError, StoreError
from headway.messages import counted, duration, some, when, window_text

if TYPE_CHECKING:
    from flows.pipeline.context import Context
    from flows.records import RunRecord
    from headway.stages.step import Output
    from headway.storage.store import Store


def run(
    pipeline: PipelinePath = ".",
    /,
    *,
    to: Annotated[str | None, Parameter(metavar="STAGE")] = None,
    force: bool = False,
    options: RunOptions = RunOptions(),
) -> int:
    """Takes raw files to a promoted model, and reuses what is done.

    With --to validate the exit code is 0 even if the data have errors; those stop a run that goes further.

    Args:
        to: Ends after this stage, such as validate or train, and prints its tables; nothing is promoted.
        force: Promotes even a candidate that the gate rejects or holds.
    """
    if to is not None:
        if force:
            raise ConfigError("--to promotes nothing", where="--force", fix="leave one of the two out")
        return _up_to(context_of(pipeline, options, last=to), options)
    from flows.report.text import summary_json

    context = context_of(pipeline, options, force=force)
    record = execute(options, context)
    exit_code = 0 if record.state in ("promoted", "already champion") else 4
    value = summary_json(record, context.store)
    return answer(options, value, summary_text(record, context, verbose=options.verbose), exit_code)


def _up_to(context: Context, options: RunOptions) -> int:
    """Runs the DAG up to `context.last`, prints that stage's tables and the summary, and returns the exit code."""
    from flows.report.evaluation import importance_table
    from flows.report.model import Section
    from flows.report.page import step_section
    from flows.report.results import RunResults
    from flows.report.text import summary_json
    from flows.report.text import text as text_of

    record = execute(options, context)
    text = summary_text(record, context, verbose=options.verbose)
    value = summary_json(record, context.store)
    if context.last in ("statistics", "validate", "evaluate") and (last := _last(record, context)) is not None:
        importance = RunResults(context.store, record).importance
        if context.last == "statistics":
            value["statistics"] = last.json()["columns"]
        if context.last == "evaluate":
            value["evaluation"] = last.json()
        if importance is not None:
            value["importance"] = importance.model_dump(mode="json")
        if not options.json:
            tables = [] if importance is None else [importance_table(importance)]
            parts = [part for part in (step_section(last), Section("Importance", tables=tables)) if part is not None]
            text = "\n\n".join([*filter(None, map(text_of, parts)), text])
    return answer(options, value, text)


def _last(record: RunRecord, context: Context) -> Output | None:
    """Returns the output of the run's last stage; None if the run did not get there."""
    last = record.stages[-1].stage if record.stages else ""
    ends = "measure" if context.last == "evaluate" else context.last
    return record.output(context.store, last) if last == ends else None


def plan(pipeline: PipelinePath = ".", /, *, explain: bool = False, options: WindowOptions = WindowOptions()) -> int:
    """Lists the steps that a run would do, and says why.

    Args:
        explain: Shows the keys that differ, with their digests.
    """
    from flows.pipeline.plan import plan_run

    found = plan_run(context_of(pipeline, options))
    lines = [f"{found.pipeline}: {window_text(found.spans)} ({counted(len(found.spans), 'span')})"]
    lines += [f"  window: {found.window_says}"] if found.window_says else []
    for step in found.steps:
        lines.append(f"  {step.step:<22} {'cached' if step.cached else 'would run':<10} {step.reason}".rstrip())
        lines += [f"    {step.fingerprint}  {step.why or ''}".rstrip()] if explain else []
    if found.training:
        lines.append(f"  training: {counted(found.training.rows, 'train row')}: {found.training.says}")
    elif any(step.stage == "train" for step in found.steps):
        lines.append(
            "  training: keys left out are chosen by the number of train rows, known after ingest and transform"
        )
    lines += [f"  note: {note}" for note in found.notes]
    if found.later:
        lines.append(f"  then, depending on the verdict: {', '.join(found.later)}")
    elif found.verdict:
        lines.append(f"  verdict: {found.verdict}")
    return answer(options, found, "\n".join(lines))


def runs(pipeline: PipelinePath = ".", /, *, limit: Count = 20, options: Options = Options()) -> int:
    """Lists the runs of the store, newest first.

    Args:
        limit: Says how many runs are shown.
    """
    from flows.records import runs_of
    from flows.report.text import text_table
    from flows.report.verdict import ending_of

    _, store = store_of(pipeline, options)
    records = runs_of(store)[:limit]
    rows = [
        {
            "run": r.run,
            "pipeline": r.pipeline,
            "state": ending_of(r).word + (f", v{r.version}" if r.version is not None else ""),
            "took": duration(r.seconds),
            "ran": r.started_count,
            "window": window_text(r.spans),
        }
        for r in records
    ]
    return answer(options, records, text_table(rows) or "no run yet")


def show(
    pipeline: PipelinePath = ".", run: str | None = None, /, *, log: bool = False, options: Options = Options()
) -> int:
    """Shows what a run was made from, why its steps ran, where their outputs lie, and how it ended.

    The pipeline may come before the run or after it; without it the run is one of the pipeline in this folder.

    Args:
        run: Names the run, or begins its name, or is latest (default: the latest that trained).
        log: Shows what the run reported, line by line with the time in UTC.
    """
    from flows.records import find, read_log
    from flows.report.text import summary_json

    (name,), pipeline = names_and_pipeline([pipeline], run or ".")
    loaded, store = store_of(pipeline, options)
    record = find(store, name or None, pipeline=loaded.pipeline.name)
    value = summary_json(record, store)
    if not log:
        return answer(options, value, "\n".join(_shown(store, record)))
    text = read_log(store, record.run)
    if text is None:
        fix = f"headway show {record.run} has its record"
        raise StoreError(f"run {record.run} has no log", where=store.name, fix=fix)
    # the date stands in the run's name
    lines = [f"{line[11:19]} {line[25:]}".rstrip() for line in text.splitlines()]
    return answer(options, value | {"log": text.splitlines()}, "\n".join(lines))


def _shown(store: Store, record: RunRecord) -> Iterator[str]:
    """Yields the text lines of `headway show`."""
    from flows.pipeline.reasons import steps_explained
    from flows.report.text import summary
    from flows.report.verdict import ending_of

    word = ending_of(record).word + (f", version {record.version}" if record.version is not None else "")
    yield f"run {record.run} of {record.pipeline}: {word}, started {when(record.started)} UTC, seed {record.seed}"
    yield summary(record)
    yield "made from:"
    yield f"  {record.file}, with the keys that --json shows"
    if record.code is not None and (git := record.code.git) is not None:
        yield f"  commit {git.commit} of {git.branch}" + f", with changes in {some(git.changed, 3)}" * bool(git.changed)
    yield "stages:"
    for step in steps_explained(store, record):
        took = "cached" if step.cached else duration(step.seconds)
        yield f"  {step.title:<22} {took:>8}  {step.reason}".rstrip()
        place = store.shown(store.output(step.stage, step.fingerprint))
        yield f"      {place}" + ("" if step.kept else " (no longer in the store)")
        sentences = {"train": _training_sentences, "splits": lambda result: result["says"]}.get(step.stage)
        if sentences is not None and (manifest := store.find(step.stage, step.fingerprint)) is not None:
            yield from (f"      {sentence}" for sentence in sentences(manifest.result))
    if record.error:
        yield f"error: {record.error}"


def _training_sentences(result: dict[str, Any]) -> list[str]:
    """Returns sentences about a training's warm start and its loss scale, as far as it has them."""
    lines = []
    if begun := result.get("warm_start"):
        lines.append(begun["says"])
    if scale := result.get("loss_scale"):
        lines.append(
            f"the loss scale ended at {scale['value']:g}; {counted(scale['skipped'], 'step was', 'steps were')} skipped to "
            "find it"
        )
    return lines


def report(
    run: str = "latest",
    pipeline: PipelinePath = ".",
    /,
    *,
    again: bool = False,
    site: bool = False,
    open: bool = False,
    options: Options = Options(),
) -> int:
    """Prints the path of a run's report, which is an HTML page with figures; a run that has none yet gets one.

    The pipeline may come before the run or after it.

    Args:
        run: Names the run, or begins its name.
        again: Draws the report again, from what the store has now.
        site: Prints the path of the store's site instead: its models, their champions over time, and all runs.
        open: Opens the page in the browser.
    """
    from flows.records import LATEST, State, find
    from flows.report.page import on_this_disk, path_of, place_of, write
    from flows.report.site import write_site

    (run,), pipeline = names_and_pipeline([run], pipeline, LATEST)
    loaded, store = store_of(pipeline, options)
    if site:
        if run != LATEST or again:
            raise ConfigError(
                "the site is of the whole store, not of a run", where="--site", fix="headway report --site"
            )
        path = write_site(store)
        value = {"site": place_of(store, path)}
    else:
        record = find(store, run, pipeline=loaded.pipeline.name)
        path = path_of(store, record.run)
        # of a run that went on when it was drawn, another is to come
        if again or record.state in (State.RUNNING, State.KILLED) or path.name not in store.children(path.parent):
            write(store, record)
        value = {"run": record.run, "report": place_of(store, path)}
    if open:
        webbrowser.open(on_this_disk(store, path).absolute().as_uri())
    return answer(options, value, place_of(store, path))
