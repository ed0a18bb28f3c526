"""The commands on versions of a model: models, promote, rollback, compare, predict, serve."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from flows.cli.options import (
    Columns,
    Count,
    Limit,
    Options,
    Pause,
    PipelinePath,
    ProgressOptions,
    StageOptions,
    answer,
    context_of,
    execute,
    load_pipeline,
    names_and_pipeline,
    reporting,
    store_of,
    summary_text,
)
from headway.errors import ConfigError, StoreError
from headway.messages import counted, now, when, window_text
from headway.redaction import redact

if TYPE_CHECKING:
    from flows.config.pipeline import LoadedPipeline
    from headway.registry.registry import Registry, Version
    from headway.storage.store import Store

Reason = Annotated[str, Parameter(metavar="TEXT", help="Says why; the registry's history keeps it.")]
SomeVersion = Annotated[str | None, Parameter(metavar="VERSION")]
ASKED = "asked for on the command line"


def registry_of(pipeline: str, options: Options) -> tuple[LoadedPipeline, Registry]:
    """Returns the pipeline and the registry of its model."""
    from headway.registry.registry import Registry

    _check_path(pipeline)
    loaded, store = store_of(pipeline, options)
    return loaded, Registry(store, loaded.pipeline.name)


def _check_path(pipeline: str) -> None:
    if pipeline.isdecimal() and not Path(pipeline).exists():
        raise ConfigError(f"{pipeline!r} is not a pipeline here", fix=f"a version is named by --to {pipeline}")


def print_note(line: str) -> None:
    """Prints a note to stderr, such as that an MLflow server could not be told."""
    print(line, file=sys.stderr)


def models(pipeline: PipelinePath = ".", /, *, options: Options = Options()) -> int:
    """Lists the versions of the model, its champion and its aliases."""
    from flows.records import records, run_that_judged
    from headway.registry.registry import Registry, model_names

    _, store = store_of(pipeline, options)
    value, lines, runs = {}, [], list(records(store))
    for name in model_names(store):
        registry = Registry(store, name)
        history, aliases, versions = registry.history(), registry.aliases(), registry.versions()
        damaged = registry.damaged()
        champion, previous = history[-1].version if history else None, registry.previous()
        judged = run_that_judged(runs, name, champion)
        found = list(judged.champion.alarms) if judged and judged.champion else []
        value[name] = {
            "champion": champion,
            "alarms": None if judged is None else {"run": judged.run, "alarms": found},
            "previous": previous,
            "aliases": aliases,
            "serving": store.shown(registry.serving / str(history[-1].serving)) if history else None,
            "versions": [version.model_dump(mode="json") for version in versions],
            "damaged": damaged,
            "history": [event.model_dump(mode="json") for event in history],
            "alias_history": {a: [e.model_dump(mode="json") for e in registry.alias_history(a)] for a in aliases},
        }
        lines.append(name)
        gone, places = registry.rolled_back(), {"champion": champion, "previous": previous, **aliases}
        whole = {version.number: version for version in versions}
        for number in sorted([*whole, *damaged], reverse=True):
            marks = ", ".join(
                [place for place, at in places.items() if at == number] + ["rolled back"] * (number in gone)
            )
            if number in damaged:
                lines += [f"  {number:>4}  {marks:<11}  cannot be used", f"        {damaged[number]}"]
                continue
            lines += _version_lines(store, whole[number], marks)
            if number == champion and judged:
                lines += [f"        warning (run {judged.run}): {alarm}" for alarm in found]
    return answer(options, value, "\n".join(lines) or "no model was promoted yet")


def _version_lines(store: Store, version: Version, marks: str) -> Iterator[str]:
    from flows.report.versions import change_since, own_levels

    created, spans = when(version.created), version.facts.get("spans") or ["?"]
    made_by = f"  run {run}" if (run := version.facts.get("run")) else ""
    yield f"  {version.number:>4}  {marks:<11}  {created}  {window_text(spans)}{made_by}"
    for line in (change_since(version), own_levels(version), store.shown(version.saved_model)):
        if line:
            yield f"        {line}"


def promote(
    pipeline: PipelinePath = ".",
    /,
    *,
    to: SomeVersion = None,
    alias: Annotated[str | None, Parameter(metavar="NAME")] = None,
    remove: bool = False,
    reason: Reason = ASKED,
    force: bool = False,
    options: StageOptions = StageOptions(),
) -> int:
    """Makes a version the champion, or points an alias at it.

    Args:
        to: Names a version: its number, previous or an alias (default: the last run's candidate, whatever its verdict).
        alias: Points this alias at the version (shadow, stable, ...); the champion stays.
        remove: Removes the alias that --alias names.
        force: Promotes even a version that was rolled back, or over a champion that changed meanwhile.
    """
    from flows.pipeline.promote import last_candidate, promote_version, remove_alias

    if alias is not None:
        from headway.registry.pointers import check_alias

        check_alias(alias)
    if remove:
        if alias is None or to is not None:
            problem = "it removes the alias that --alias names, and takes no --to"
            raise ConfigError(problem, where="--remove", fix="--alias NAME --remove")
        loaded, registry = registry_of(pipeline, options)
        event = remove_alias(loaded, registry, alias, reason=reason, note=print_note)
        return answer(options, event.model_dump(mode="json"), f"{alias} no longer points at version {event.version}")
    if to is None:
        _check_path(pipeline)
        context = last_candidate(context_of(pipeline, options, alias=alias))
        context = replace(context, reason=None if reason == ASKED else reason)
        record = execute(options, context)
        done = record.state == ("promoted" if alias is None else "named")
        return answer(options, record, summary_text(record, context), 0 if done else 4)
    loaded, registry = registry_of(pipeline, options)
    event = promote_version(loaded, registry, to, alias=alias, reason=reason, force=force, note=print_note)
    if alias is not None:
        before = "" if event.previous in (None, event.version) else f", in place of {event.previous}"
        return answer(options, event.model_dump(mode="json"), f"{alias} is version {event.version}{before}")
    text = f"version {event.version} is the champion, served as {registry.store.shown(registry.serving / str(event.serving))}"
    return answer(options, event.model_dump(mode="json"), text)


def rollback(
    pipeline: PipelinePath = ".",
    /,
    *,
    to: SomeVersion = None,
    reason: Reason = ASKED,
    force: bool = False,
    options: Options = Options(),
) -> int:
    """Makes the champion before this one, or another version, the champion again.

    Args:
        to: Names a version: its number or an alias (default: the champion before this one).
        force: Promotes even a version that was rolled back, or over a champion that has changed.
    """
    from flows.pipeline.promote import roll_back

    loaded, registry = registry_of(pipeline, options)
    event = roll_back(loaded, registry, to, reason=reason, force=force, note=print_note)
    text = f"version {event.version} is the champion again, in place of {event.previous}"
    text += f"; served as {registry.store.shown(registry.serving / str(event.serving))}"
    return answer(options, event.model_dump(mode="json"), text)


def compare(
    first: Annotated[str | None, Parameter(name="A")] = None,
    second: Annotated[str | None, Parameter(name="B")] = None,
    pipeline: PipelinePath = ".",
    /,
    *,
    all: bool = False,
    options: Options = Options(),
) -> int:
    """Compares two versions or runs: which one is better on the rows that both scored, and what differs between them: data,
    columns, settings, code, verdict. It writes a page with their figures over one another.

    Args:
        first: Names a version (its number, champion, previous or an alias), or a run (its name, or latest).
        second: Names the other (default of both: the last two versions, else the version and the latest run).
        all: Shows all that the page has but its figures (default: at most thirty lines).
    """
    from flows.records import runs_of
    from flows.report.compare import compare as compared
    from flows.report.compare import describe, write
    from flows.report.page import place_of

    names, pipeline = names_and_pipeline([name for name in (first, second) if name] or [""], pipeline)
    _, registry = registry_of(pipeline, options)
    if names == [""]:
        names = [str(version.number) for version in registry.versions()[-2:]]
        newest = next((run for run in runs_of(registry.store) if run.pipeline == registry.name and run.metrics), None)
        if len(names) == 1 and newest is not None and newest.version != int(names[0]):
            names.append(newest.run)
    if len(names) < 2:
        problem = f"two versions or runs are compared, and there is {names[0] if names else 'no version'} alone"
        raise ConfigError(problem, fix="name both; of runs too, as in headway compare champion latest")
    found = compared(registry, *names)
    page = None
    try:
        page = place_of(found.store, write(found))
    except (OSError, StoreError) as error:  # who may only read the store is told what the two are worth
        print(redact(f"the page of this comparison was not written: {error}"), file=sys.stderr)
    text = "\n".join([describe(found, complete=all), *([f"\npage: {page}"] if page else [])])
    return answer(options, found.value | {"page": page}, text)


@dataclass(frozen=True, kw_only=True)
class PredictOptions(ProgressOptions):
    """The options of predict, with those for predicting the spans of a pipeline."""

    spans: Annotated[bool, Parameter(help="Predicts each complete span that has no predictions yet.")] = False
    since: Annotated[
        str, Parameter(metavar="SPAN", help="Leaves out spans before this one, with --spans.", show_default=False)
    ] = ""


def predict(
    pipeline: PipelinePath = ".",
    /,
    *,
    input: Annotated[str | None, Parameter(metavar="PATH")] = None,
    output: Annotated[str | None, Parameter(metavar="FOLDER")] = None,
    model: Annotated[str, Parameter(name=("--model", "--version"))] = "champion",
    format: str | None = None,
    write: Literal["parquet", "jsonl"] = "parquet",
    columns: Columns = None,
    options: PredictOptions = PredictOptions(),
) -> int:
    """Predicts the rows of raw files, in their order; with --spans those of each new span, once, into predictions.output.

    Args:
        input: Names the raw files: a file, a folder or a glob.
        output: Names the folder of the predictions, which is new or empty, or one that predict wrote.
        model: Names a version (its number, champion, previous or an alias), or the folder of a SavedModel.
        format: Names the format of --input: parquet, csv, jsonl, ... (default: the pipeline's).
        write: Chooses the format of the predictions.
        columns: Names input columns that are written beside the predictions (default: the pipeline's keys).
    """
    if options.spans:
        for_files: dict[str, object] = {"--input": input, "--output": output, "--format": format, "--columns": columns}
        for_files["--write"] = None if write == "parquet" else write
        if given := next((name for name, value in for_files.items() if value is not None), None):
            raise ConfigError("--spans takes its files from the pipeline", where=given, fix="leave one of the two out")
        return _predict_spans(load_pipeline(pipeline, options), model, options)
    if input is None or output is None:
        problem = f"{'--input' if input is None else '--output'} is needed, or --spans"
        raise ConfigError(problem, fix="headway predict --help lists the options")
    if options.since:
        raise ConfigError("it goes with --spans", where="--since", fix="leave it out, or predict with --spans")
    from flows.pipeline.predict import predict as run

    loaded = load_pipeline(pipeline, options)
    with reporting(options) as report, report.step("predict") as monitor:
        result = run(
            loaded,
            model=model,
            input=input,
            output=output,
            monitor=monitor,
            format=format,
            columns=columns,
            write=write,
        )
    counts = result["counts"]
    which = f"version {result['version']}" if result["version"] else result["saved_model"]
    text = f"{counts['predicted']:,} of {counts['read']:,} rows predicted by {which}, in {result['output']}"
    if counts["quarantined"]:
        text += f"; {counts['quarantined']:,} rejected, see its quarantine.parquet"
    return answer(options, result, f"nothing has changed: {text}" if result["cached"] else text)


def _predict_spans(loaded: LoadedPipeline, model: str, options: PredictOptions) -> int:
    """Predicts each complete span that has no predictions yet, prints the answer, and returns the exit code."""
    from flows.pipeline.predict import predict_spans

    with reporting(options) as report:
        result = predict_spans(loaded, report, model=model, since=options.since)
    return answer(options, result, "\n".join(result.lines))


def serve(
    pipeline: PipelinePath = ".",
    /,
    *,
    host: str = "127.0.0.1",
    port: Count = 8501,
    version: str | None = None,
    max_request_mib: Annotated[Limit, Parameter(metavar="MIB")] = 32.0,
    allow_host: Annotated[tuple[str, ...], Parameter(metavar="NAME")] = (),
    reload_seconds: Pause = 2.0,
    options: Options = Options(),
) -> int:
    """Answers HTTP requests with the champion's predictions, as TensorFlow Serving does, until Ctrl-C or SIGTERM.

    Args:
        host: Sets the address to listen on; 0.0.0.0 is all addresses of this machine.
        port: Sets the port; 0 takes any that is free.
        version: Serves this version and no other: a number, previous or an alias (default: always the champion).
        max_request_mib: Sets the size of the largest request; a larger one is answered 413.
        allow_host: Allows a name by which clients reach the server, besides localhost, this machine's name and IP addresses;
            '*' allows any, also that of a web page.
        reload_seconds: Says how often the server looks for a new champion.
    """
    loaded, store = store_of(pipeline, options)
    from flows.config.extras import require

    require("serve", where="headway serve")
    from tfcore.serving.server import BACKLOG, address, bind_socket, run

    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # on the CPU, as the replay predicted
    with bind_socket(host, port) as listener:  # before TensorFlow is imported: a port in use is said at once
        _say(f"loading {loaded.pipeline.name}")
        from headway.registry.registry import Registry
        from tfcore.serving.app import MIB, make_app
        from tfcore.serving.served_model import ChampionWatch

        watch = ChampionWatch(Registry(store, loaded.pipeline.name), version=version, say=_say)
        size, hosts = int(max_request_mib * MIB), (host, *allow_host)
        app = make_app(watch, max_request_bytes=size, hosts=hosts, reload_seconds=reload_seconds)
        url = f"{address(listener)}/v1/models/{loaded.pipeline.name}"
        text = f"version {watch.model.version} at {url}:predict; Ctrl-C ends it"
        listener.listen(BACKLOG)  # from here on a client may connect
        answer(options, {"url": url, "version": watch.model.version}, text)
        sys.stdout.flush()
        run(app, listener)
    _say(f"ended; {counted(app.state.answers.requests, 'request')} answered")
    return 0


def _say(line: str) -> None:
    print(f"{now()} {line}", file=sys.stderr, flush=True)
