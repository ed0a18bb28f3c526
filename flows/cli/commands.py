"""The commands of the command line. Answers go to stdout; with --json as one JSON value.

A command is one function; its parameters are those of the command line (`flows.cli.options`). Imports that take time are made
where they are needed: a help page needs none.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from flows.cli.options import Columns, JsonOption, Options, PipelinePath, RunOptions, WindowOptions
from headway.errors import ConfigError, StoreError
from headway.messages import counted, metrics_line, window_text
from headway.redaction import redact, redacted

if TYPE_CHECKING:
    from flows.config.pipeline import LoadedPipeline
    from flows.dag.run_spec import RunSpec
    from flows.dag.step import Output
    from flows.progress.reporter import Reporter
    from flows.records import RunRecord
    from headway.storage.store import Store


def overrides_of(options: Options) -> dict[str, Any]:
    """Return {key: value} of the --set options."""
    from headway.config import read_value

    overrides: dict[str, Any] = {}
    for item in options.set:
        if item.startswith("@"):
            overrides |= _overlay(Path(item[1:]))
            continue
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise ConfigError(f"{item!r} is not KEY=VALUE", where="--set", fix="for example --set training.epochs=3")
        overrides[key] = read_value(value)
    return overrides


def _overlay(path: Path) -> dict[str, Any]:
    """Return {key: value} of a YAML file: the keys of its sections, whole, and other keys as they are."""
    from headway.config import read_yaml

    if not path.is_file():
        fix = "name a YAML file with keys of pipeline.yaml, or write --set KEY=VALUE"
        raise ConfigError(f"there is no file {path}", where=f"--set @{path}", fix=fix)
    overrides: dict[str, Any] = {}
    for section, value in read_yaml(path).items():
        keys = {f"{section}.{name}": setting for name, setting in value.items()} if isinstance(value, dict) else {}
        overrides |= keys or {section: value}
    return overrides


def load_pipeline(pipeline: str, options: Options, **overrides: Any) -> LoadedPipeline:
    """The pipeline with the overrides of the command line and those of the caller."""
    from flows.config.pipeline import read_pipeline
    from flows.observability.json_stream import about

    loaded = read_pipeline(Path(pipeline), overrides_of(options) | overrides)
    about(loaded.pipeline.name)
    return loaded


def run_spec_of(
    pipeline: str,
    options: WindowOptions,
    *,
    last: str | None = None,
    force: bool = False,
    alias: str | None = None,
    **overrides: Any,
) -> RunSpec:
    from flows.dag.run_spec import RunSpec

    loaded = load_pipeline(pipeline, options, **overrides)
    return RunSpec(loaded, loaded.open_store(), options.window, options.until, options.seed, force, last, alias)


def store_of(pipeline: str, options: Options) -> tuple[LoadedPipeline, Store]:
    loaded = load_pipeline(pipeline, options)
    store = loaded.open_store()
    if not store.exists():
        raise StoreError("there is no store yet", where=store.name, fix="headway run makes one")
    return loaded, store


def answer(options: JsonOption, value: object, text: str, exit_code: int = 0) -> int:
    """Print a command's answer: the value (JSON values and models) with --json, else the text; returns the exit code."""
    if options.json:
        from pydantic import TypeAdapter

        plain = TypeAdapter(object).dump_python(value, mode="json")
        print(json.dumps(redacted(plain, secrets_only=True), indent=1))
    else:
        print(redact(text))
    return exit_code


@contextlib.contextmanager
def reporting(options: JsonOption) -> Iterator[Reporter]:
    """Reports progress while the block runs; Ctrl-C and SIGTERM ask its steps to stop."""
    from flows.observability.reporting import reporter, stop_on_signals

    say = "stopping: saving what is done (again to stop at once)"
    with (
        reporter(silent=options.json, quiet=options.quiet) as report,
        stop_on_signals(report, signal.SIGINT, signal.SIGTERM, say=say),
    ):
        yield report


def execute(options: RunOptions, run_spec: RunSpec) -> RunRecord:
    from flows.execution.run import execute as execute_run

    with reporting(options) as report:
        return execute_run(run_spec, report, wait_seconds=options.wait)


def run(
    pipeline: PipelinePath = ".",
    /,
    *,
    force: Annotated[bool, Parameter(help="promote even a candidate that the gate rejects or holds")] = False,
    options: RunOptions = RunOptions(),
) -> int:
    run_spec = run_spec_of(pipeline, options, force=force)
    record = execute(options, run_spec)
    exit_code = 0 if record.state in ("promoted", "already champion") else 4
    return answer(options, record, summary_text(record, run_spec), exit_code)


def _stage_command(last: str) -> Callable[..., int]:
    """A command that runs the DAG up to a stage."""

    def run_to_stage(pipeline: PipelinePath = ".", /, *, options: RunOptions = RunOptions()) -> int:
        return _up_to(run_spec_of(pipeline, options, last=last), options)

    return run_to_stage


ingest, stats, train = map(_stage_command, ("ingest", "statistics", "train"))
evaluate, gate, export = map(_stage_command, ("evaluate", "gate", "replay"))


def validate(
    pipeline: PipelinePath = ".",
    /,
    *,
    serving: Annotated[
        Path | None, Parameter(metavar="FILE", help="logged requests to compare with the train rows")
    ] = None,
    options: RunOptions = RunOptions(),
) -> int:
    if serving is not None and not serving.is_file():
        fix = "name a file of logged requests, JSON lines or tf.Examples; headway serve --log-rate SHARE writes some"
        raise ConfigError(f"{serving} is not a file", where="--serving", fix=fix)
    overrides: dict[str, Any] = {} if serving is None else {"validation.serving": str(serving.absolute())}
    return _up_to(run_spec_of(pipeline, options, last="validate", **overrides), options)


def _up_to(run_spec: RunSpec, options: RunOptions) -> int:
    """Run the DAG up to the run's last stage and report it."""
    from flows.tell.step_parts import part_of
    from flows.tell.text import text as text_of

    record = execute(options, run_spec)
    text = summary_text(record, run_spec)
    paths = {s.title: str(run_spec.store.output(s.stage, s.fingerprint)) for s in record.stages}
    value = record.as_json() | {"outputs": paths}
    if run_spec.last in ("statistics", "validate", "evaluate") and (last := _last(record, run_spec)) is not None:
        if run_spec.last == "statistics":
            value["statistics"] = last.get()["columns"]
        if run_spec.last == "evaluate":
            value["evaluation"] = last.get()
        outputs = [last]
        if (importance := _output(record, run_spec, "importance")) is not None:
            value["importance"] = importance.get()
            outputs.append(importance)
        if not options.json:
            parts = filter(None, map(part_of, outputs))
            text = "\n\n".join([*map(text_of, parts), text])
    return answer(options, value, text)


def _last(record: RunRecord, run_spec: RunSpec) -> Output | None:
    """The output of the run's last stage."""
    last = record.stages[-1].stage if record.stages else ""
    ends = "measure" if run_spec.last == "evaluate" else run_spec.last
    return _output(record, run_spec, last) if last == ends else None


def _output(record: RunRecord, run_spec: RunSpec, stage: str) -> Output | None:
    """The output of the last step of a stage, if the run had one."""
    from flows.dag.step import find_output

    ran = record.step(stage)
    return (
        None if ran is None else find_output(run_spec.store, stage=stage, fingerprint=ran.fingerprint, title=ran.title)
    )


_TABLE = 40
"""Columns that the summary of a run shows; of more, those that were left out."""


def summary_text(record: RunRecord, run_spec: RunSpec) -> str:
    """A finished run for a terminal."""
    from flows.dag.column_table import LEFT_OUT, table_text
    from flows.tell.summary import summary

    places: list[tuple[str, object]] = []
    if record.state == "promoted" and record.version is not None:
        places.append(("model", run_spec.registry.version(record.version).saved_model))
        places.append(("serving", run_spec.registry.serving / str(record.serving)))
    if run_spec.last is not None and record.stages:
        last = record.step("export") or record.stages[-1]
        places.append(("output", run_spec.store.output(last.stage, last.fingerprint)))
    table = record.columns
    notes = [note for note in record.notes if note.column is None] if table else record.notes
    text = summary(record, places, notes=notes)
    if not table:
        return text
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 100
    shown = table if len(table) <= _TABLE else [row for row in table if row.transform == LEFT_OUT][:_TABLE]
    more = f"  and {counted(len(table) - len(shown), 'more column')}; " if len(shown) < len(table) else "  ("
    again = "headway schema --columns shows " + ("all of them\n" if len(shown) < len(table) else "this again)\n")
    return f"{table_text([row.model_dump() for row in shown], width) if shown else ''}\n{more}{again}\n{text}"


def verdict_lines(record: RunRecord) -> list[str]:
    """A run's verdict with its reasons, and its metrics."""
    verdict, metrics = record.verdict, metrics_line(record.metrics, record.baselines)
    lines = [f"verdict: {verdict.verdict}", *(f"  {sentence}" for sentence in verdict.sentences)] if verdict else []
    return lines + ([f"metrics: {metrics}"] if metrics else [])


def plan(
    pipeline: PipelinePath = ".",
    /,
    *,
    explain: Annotated[bool, Parameter(help="also show the keys that differ, with their digests")] = False,
    options: WindowOptions = WindowOptions(),
) -> int:
    from flows.execution.planning import planned
    from flows.tell.rerun_reasons import in_words

    run_spec = run_spec_of(pipeline, options)
    value = planned(run_spec)
    spans, training = value["spans"], value["training"]
    lines = [f"{run_spec.loaded.pipeline.name}: {window_text(spans)} ({counted(len(spans), 'span')})"]
    lines += [f"  window: {window}"] if (window := str(run_spec.chosen_window)) else []
    lines += [
        f"  {r['step']:<22} {'cached' if r['cached'] else 'would run':<10} {in_words(r['why'], r['stage'])}".rstrip()
        + (f"\n    {r['fingerprint']}  {r['why'] or ''}".rstrip() if explain else "")
        for r in value["steps"]
    ]
    if training:
        lines.append(f"  training: {chosen_values(training)}")
    elif any(r["stage"] == "train" for r in value["steps"]):
        lines.append(
            "  training: keys left out are chosen by the number of train rows, known after ingest and transform"
        )
    lines += [f"  note: {note}" for note in value["notes"]]
    if value["later"]:
        lines.append(f"  then, depending on the verdict: {', '.join(value['later'])}")
    elif value["verdict"]:
        lines.append(f"  verdict: {value['verdict']}")
    return answer(options, value, "\n".join(lines))


def chosen_values(training: dict[str, Any]) -> str:
    return f"{counted(training['rows'], 'train row')}: {training['says']}"


def predict(
    pipeline: PipelinePath = ".",
    /,
    *,
    input: Annotated[str, Parameter(metavar="PATH", help="the raw files: a file, a folder or a glob")],
    output: Annotated[
        str,
        Parameter(
            metavar="FOLDER", help="where predictions are written: a new or empty folder, or one that predict wrote"
        ),
    ],
    model: Annotated[
        str,
        Parameter(
            name=("--model", "--version"),
            help="a version (its number, champion, previous or an alias), or the folder of a SavedModel",
        ),
    ] = "champion",
    format: Annotated[
        str | None, Parameter(help="the format of --input: parquet, csv, jsonl, ... (default: the pipeline's)")
    ] = None,
    write: Annotated[Literal["parquet", "jsonl"], Parameter(help="the format of the predictions")] = "parquet",
    columns: Annotated[
        Columns, Parameter(help="input columns that are written beside the predictions (default: the pipeline's keys)")
    ] = None,
    max_quarantine: Annotated[
        float | None,
        Parameter(metavar="SHARE", help="the share of rows that may be rejected (default: validation.max_quarantined)"),
    ] = None,
    options: Options = Options(),
) -> int:
    from flows.scoring.predict import predict as run

    loaded = load_pipeline(pipeline, options)
    with reporting(options) as report:
        result = run(
            loaded,
            model=model,
            input=input,
            output=output,
            monitor=report.monitor("predict"),
            format=format,
            columns=None if columns is None else [c for c in columns.split(",") if c],
            write=write,
            max_quarantined=max_quarantine,
        )
    counts = result["counts"]
    which = f"version {result['version']}" if result["version"] else result["saved_model"]
    text = f"{counts['predicted']:,} of {counts['read']:,} rows predicted by {which}, in {result['output']}"
    if counts["quarantined"]:
        text += f"; {counts['quarantined']:,} rejected, see its quarantine.parquet"
    return answer(options, result, f"nothing has changed: {text}" if result["cached"] else text)


def schema(
    pipeline: PipelinePath = ".",
    /,
    *,
    update: Annotated[bool, Parameter(help="propose a schema.pbtxt that fits the window; never overwrites it")] = False,
    columns: Annotated[bool, Parameter(help="show each column's type and transform, and why")] = False,
    options: RunOptions = RunOptions(),
) -> int:
    """The JSON Schema of a pipeline; with --update a proposal beside the schema file, and what it would change."""
    if columns:
        from flows.dag.column_table import current, table_text

        rows = current(load_pipeline(pipeline, options))
        return answer(options, rows, table_text(rows))
    if not update:
        from flows.config.pipeline import json_schema

        print(json.dumps(json_schema(), indent=1))
        return 0
    from flows.config.columns import new_columns
    from headway.schema.pbtxt import from_text
    from headway.schema_inference.schema_update import difference, proposed
    from headway.statistics.split_statistics import SplitStatistics
    from headway.storage.atomic_io import replace_text

    run_spec = run_spec_of(pipeline, options, last="statistics")
    path = run_spec.loaded.schema_file
    if not path.is_file():
        raise ConfigError("there is no schema file to update", where=str(path), fix="headway validate infers one")
    record = execute(options, run_spec)
    output = _last(record, run_spec)
    assert output is not None
    splits = [SplitStatistics.load(output.path / name) for name in output.get()["rows"]]
    before = path.read_text(encoding="utf-8")
    spans = {span: run_spec.files(span) for span in record.spans}
    new = new_columns(run_spec.loaded, from_text(before, where=str(path)), spans)
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
    lines = [
        f"{'ok' if f.ok else 'PROBLEM':<8} {f.what}: {f.found}" + (f"\n         fix: {f.fix}" if f.fix else "")
        for f in findings
    ]
    good = all(f.ok for f in findings)
    if not good:
        print("headway doctor: there are problems", file=sys.stderr)
    return answer(options, [f.__dict__ for f in findings], "\n".join(lines), 0 if good else 1)
