"""The commands that run a pipeline or a part of it, and predict, schema and doctor; the table of all is `flows.cli.app.COMMANDS`.

Answers go to stdout; with --json as one JSON value.

A command is one function; its parameters are those of the command line (`flows.cli.options`). Imports that take time are made
where they are needed: a help page needs none.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from flows.cli.options import (
    Columns,
    JsonOption,
    ModelName,
    Options,
    PipelinePath,
    RunOptions,
    Share,
    WindowOptions,
)
from headway.errors import ConfigError, StoreError
from headway.messages import counted, window_text
from headway.redaction import redact, redacted

if TYPE_CHECKING:
    from flows.config.pipeline import LoadedPipeline
    from flows.pipeline.context import Context
    from flows.progress.reporter import Reporter
    from flows.records import RunRecord
    from headway.stages.step import Output
    from headway.storage.store import Store


LastStage = Literal["ingest", "statistics", "validate", "train", "evaluate", "gate", "export"]
"""The stages after which a run can end. An export is complete when its replay has tested it."""


def overrides_of(options: Options) -> dict[str, object]:
    """Return {key: value} of the --set options; of a YAML file the keys of its sections, whole, and other keys as they are."""
    from headway.config import read_value, read_yaml

    overrides: dict[str, object] = {}
    for item in options.set:
        key, equals, value = item.partition("=")
        path = Path(item[1:])
        if not item.startswith("@"):
            if not equals or not key:
                raise ConfigError(
                    f"{item!r} is not KEY=VALUE", where="--set", fix="for example --set training.epochs=3"
                )
            overrides[key] = read_value(value)
            continue
        if not path.is_file():
            fix = "name a YAML file with keys of pipeline.yaml, or write --set KEY=VALUE"
            raise ConfigError(f"there is no file {path}", where=f"--set {item}", fix=fix)
        for section, given in read_yaml(path).items():
            keys = {f"{section}.{name}": setting for name, setting in given.items()} if isinstance(given, dict) else {}
            overrides |= keys or {section: given}
    return overrides


def load_pipeline(pipeline: str, options: Options) -> LoadedPipeline:
    """The pipeline with the overrides of the command line."""
    from flows.config.pipeline import read_pipeline

    return read_pipeline(Path(pipeline), overrides_of(options))


def context_of(
    pipeline: str, options: WindowOptions, *, last: str | None = None, force: bool = False, alias: str | None = None
) -> Context:
    """What a command runs: the pipeline over the window that its options name."""
    from flows.pipeline.context import Context

    loaded = load_pipeline(pipeline, options)
    return Context(loaded, loaded.open_store(), options.window, options.until, options.seed, force, last, alias)


def store_of(pipeline: str, options: Options) -> tuple[LoadedPipeline, Store]:
    loaded = load_pipeline(pipeline, options)
    store = loaded.open_store()
    if not store.exists():
        raise StoreError("there is no store yet", where=store.name, fix="headway run makes one")
    return loaded, store


def arranged(names: Sequence[str], pipeline: str, default: str = "") -> tuple[list[str], str]:
    """Return (names, pipeline): the pipeline may stand before the names of versions, runs or steps, or after them.

    Args:
        default: of a sole name that is left out.

    Raises:
        ConfigError: a pipeline stands where one of several names should, and nothing is left over for it.
    """
    first = Path(names[0])
    if names[0].isdecimal() or not (first.is_file() or (first / "pipeline.yaml").is_file()):
        return list(names), pipeline
    if len(names) > 1 and pipeline == ".":
        problem = f"{names[0]} is a pipeline, and {len(names)} versions are needed beside it"
        raise ConfigError(problem, fix="name them by number, champion, previous or an alias")
    return [*names[1:], default if pipeline == "." else pipeline], names[0]


def answer(options: JsonOption, value: object, text: str, exit_code: int = 0) -> int:
    """Print a command's answer: the value (JSON values and models) with --json, else the text; returns the exit code."""
    if options.json:
        from pydantic import TypeAdapter

        plain = TypeAdapter(object).dump_python(value, mode="json")
        print(json.dumps(redacted(plain, secrets_only=True), indent=1))
    else:
        print(redact(text))
    return exit_code


def _reporter(options: JsonOption) -> Reporter:
    if options.log_format == "json":
        from flows.progress.json_log import JsonLog

        return JsonLog()
    from flows.progress.terminal import reporter

    return reporter(quiet=options.json or options.quiet, verbose=options.verbose)


@contextlib.contextmanager
def reporting(options: JsonOption) -> Iterator[Reporter]:
    """Reports progress while the block runs; Ctrl-C and SIGTERM ask its steps to stop."""
    from flows.progress.reporter import stop_on_signals

    with _reporter(options) as report:

        def say() -> None:
            report.note("stopping: saving what is done (again to stop at once)")

        with stop_on_signals(report.stop, signal.SIGINT, signal.SIGTERM, say=say):
            yield report


def execute(options: RunOptions, context: Context) -> RunRecord:
    from flows.pipeline.run import execute as execute_run

    with reporting(options) as report:
        return execute_run(context, report, wait_seconds=options.wait)


def with_outputs(record: RunRecord, store: Store) -> dict[str, object]:
    """A run for --json: its record, and the folder of each step's output by the step's title."""
    outputs = {step.title: str(store.output(step.stage, step.fingerprint)) for step in record.stages}
    return record.model_dump(mode="json") | {"outputs": outputs}


def run(
    pipeline: PipelinePath = ".",
    /,
    *,
    to: LastStage | None = None,
    force: bool = False,
    options: RunOptions = RunOptions(),
) -> int:
    """Run the whole pipeline.

    Args:
        to: end after this stage, and print its tables; promotes nothing (default: run all stages).
        force: promote even a candidate that the gate rejects or holds.
    """
    if to is not None:
        if force:
            raise ConfigError("--to promotes nothing", where="--force", fix="leave one of the two out")
        return _up_to(context_of(pipeline, options, last=to), options)
    context = context_of(pipeline, options, force=force)
    record = execute(options, context)
    exit_code = 0 if record.state in ("promoted", "already champion") else 4
    value = with_outputs(record, context.store)
    return answer(options, value, summary_text(record, context, verbose=options.verbose), exit_code)


def _up_to(context: Context, options: RunOptions) -> int:
    """Run the DAG up to the run's last stage and report it."""
    from flows.tell.material import Material
    from flows.tell.metric_tables import importance_table
    from flows.tell.rendering.parts import Part
    from flows.tell.rendering.text import text as text_of
    from flows.tell.step_parts import part_of

    record = execute(options, context)
    text = summary_text(record, context, verbose=options.verbose)
    value = with_outputs(record, context.store)
    if context.last in ("statistics", "validate", "evaluate") and (last := _last(record, context)) is not None:
        importance = Material(context.store, record).importance
        if context.last == "statistics":
            value["statistics"] = last.get()["columns"]
        if context.last == "evaluate":
            value["evaluation"] = last.get()
        if importance is not None:
            value["importance"] = importance.model_dump(mode="json")
        if not options.json:
            tables = [] if importance is None else [importance_table(importance)]
            parts = [part for part in (part_of(last), Part("Importance", tables=tables)) if part is not None]
            text = "\n\n".join([*filter(None, map(text_of, parts)), text])
    return answer(options, value, text)


def _last(record: RunRecord, context: Context) -> Output | None:
    """The output of the run's last stage."""
    last = record.stages[-1].stage if record.stages else ""
    ends = "measure" if context.last == "evaluate" else context.last
    return record.output(context.store, last) if last == ends else None


def summary_text(record: RunRecord, context: Context, *, verbose: bool = False) -> str:
    """A finished run for a terminal."""
    from flows.tell.summary import summary

    places: list[tuple[str, object]] = []
    if verbose and record.state == "promoted" and record.version is not None:
        places.append(("model", context.store.shown(context.registry.version(record.version).saved_model)))
        places.append(("serving", context.store.shown(context.registry.serving / str(record.serving))))
    if context.last is not None and record.stages:
        last = record.step("export") or record.stages[-1]
        places.append(("output", context.store.shown(context.store.output(last.stage, last.fingerprint))))
    return summary(record, places, verbose=verbose)


def plan(pipeline: PipelinePath = ".", /, *, explain: bool = False, options: WindowOptions = WindowOptions()) -> int:
    """Show the plan of a run.

    Args:
        explain: also show the keys that differ, with their digests.
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


@dataclass(frozen=True, kw_only=True)
class PredictOptions(Options):
    """Options of predict for the spans of a pipeline."""

    spans: Annotated[
        bool, Parameter(help="predict each complete span that has no predictions yet, into predictions.output")
    ] = False
    since: Annotated[
        str, Parameter(metavar="SPAN", help="with --spans: leave out spans before this one", show_default=False)
    ] = ""


def predict(
    pipeline: PipelinePath = ".",
    /,
    *,
    input: Annotated[str | None, Parameter(metavar="PATH")] = None,
    output: Annotated[str | None, Parameter(metavar="FOLDER")] = None,
    model: ModelName = "champion",
    format: str | None = None,
    write: Literal["parquet", "jsonl"] = "parquet",
    columns: Columns = None,
    max_quarantine: Share | None = None,
    options: PredictOptions = PredictOptions(),
) -> int:
    """Predict files, or each span that has landed.

    Args:
        input: the raw files: a file, a folder or a glob.
        output: where predictions are written: a new or empty folder, or one that predict wrote.
        model: a version (its number, champion, previous or an alias), or the folder of a SavedModel.
        format: the format of --input: parquet, csv, jsonl, ... (default: the pipeline's).
        write: the format of the predictions.
        columns: input columns that are written beside the predictions (default: the pipeline's keys).
        max_quarantine: the share of rows that may be rejected (default: validation.max_quarantined).
    """
    if options.spans:
        for_files: dict[str, object] = {"--input": input, "--output": output, "--format": format, "--columns": columns}
        for_files |= {"--max-quarantine": max_quarantine, "--write": None if write == "parquet" else write}
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
    with reporting(options) as report:
        result = run(
            loaded,
            model=model,
            input=input,
            output=output,
            monitor=report.monitor("predict"),
            format=format,
            columns=columns,
            write=write,
            max_quarantined=max_quarantine,
        )
    counts = result["counts"]
    which = f"version {result['version']}" if result["version"] else result["saved_model"]
    text = f"{counts['predicted']:,} of {counts['read']:,} rows predicted by {which}, in {result['output']}"
    if counts["quarantined"]:
        text += f"; {counts['quarantined']:,} rejected, see its quarantine.parquet"
    return answer(options, result, f"nothing has changed: {text}" if result["cached"] else text)


def _predict_spans(loaded: LoadedPipeline, model: str, options: PredictOptions) -> int:
    """The champion over each complete span that has no predictions yet, into <predictions.output>/span=<span>/."""
    from flows.pipeline.predict import predict_spans

    with reporting(options) as report:
        result = predict_spans(loaded, report, model=model, since=options.since)
    return answer(options, result, "\n".join(result.lines))


def schema(
    pipeline: PipelinePath = ".",
    /,
    *,
    update: bool = False,
    columns: bool = False,
    options: RunOptions = RunOptions(),
) -> int:
    """Show the schema of the config, or that of the data.

    Args:
        update: propose a schema.pbtxt that fits the window; never overwrites it.
        columns: show each column's type and transform, and why.
    """
    if columns:
        from flows.pipeline.column_table import current
        from flows.tell.rendering.cells import text_table

        rows = current(load_pipeline(pipeline, options))
        return answer(options, rows, text_table(rows, whole=("why",)))
    if not update:
        from flows.config.pipeline import json_schema

        print(json.dumps(json_schema(), indent=1))
        return 0
    from flows.config.columns import new_columns
    from headway.schema.pbtxt import from_text
    from headway.schema_inference.schema_update import difference, proposed
    from headway.statistics.split_statistics import SplitStatistics
    from headway.storage.atomic_io import replace_text

    context = context_of(pipeline, options, last="statistics")
    path = context.loaded.schema_file
    if not path.is_file():
        raise ConfigError(
            "there is no schema file to update", where=str(path), fix="headway run --to validate infers one"
        )
    record = execute(options, context)
    output = _last(record, context)
    assert output is not None
    splits = [SplitStatistics.load(output.path / name) for name in output.get()["rows"]]
    before = path.read_text(encoding="utf-8")
    spans = {span: context.files(span) for span in record.spans}
    new = new_columns(context.loaded, from_text(before, where=str(path)), spans)
    after = proposed(before, splits, where=str(path), new=new)
    target = path.with_name(f"{path.stem}.proposed{path.suffix}")
    changes = difference(before, after, path.name, target.name)
    if changes:
        replace_text(target, after)
    text = f"{changes}\n\nwritten to {target}; {path.name} is unchanged" if changes else "the schema fits the window"
    return answer(options, {"schema": str(path), "proposed": str(target) if changes else None, "diff": changes}, text)


def doctor(pipeline: PipelinePath = ".", /, *, options: Options = Options()) -> int:
    from flows.cli.doctor import examine

    findings = examine(Path(pipeline), overrides_of(options))
    lines = [f"{f.word:<8} {f.what}: {f.found}" + (f"\n         fix: {f.fix}" if f.fix else "") for f in findings]
    good = all(f.ok for f in findings)
    if not good:
        print("headway doctor: there are problems", file=sys.stderr)
    return answer(options, findings, "\n".join(lines), 0 if good else 1)
