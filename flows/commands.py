"""What each command of the command line does. Answers go to stdout; with --json as one JSON value."""

from __future__ import annotations

import argparse
import json
import sys
import threading
from pathlib import Path
from typing import Any

from flows.artifacts import artifacts_of
from flows.cli import STAGE_COMMANDS, stop_on_signals
from flows.column_table import about_column, shown
from flows.pipeline import Located, json_schema, read_pipeline
from flows.reporting import metrics_line, reporter
from flows.steps import Output
from flows.tables import findings, text_table
from flows.trip import Trip
from headway.config import read_value
from headway.errors import ConfigError, StoreError
from headway.registry import Registry, names
from headway.store import Store
from headway.words import counted


def located_of(options: argparse.Namespace) -> Located:
    overrides: dict[str, Any] = {}
    for item in options.set:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise ConfigError(f"{item!r} is no KEY=VALUE", where="--set", fix="for example --set training.epochs=3")
        overrides[key] = read_value(value)
    if serving := getattr(options, "serving", None):
        overrides["validation.serving"] = str(Path(serving).absolute())
    return read_pipeline(Path(options.pipeline), overrides)


def trip_of(options: argparse.Namespace, *, last: str | None = None, force: bool = False) -> Trip:
    located = located_of(options)
    return Trip(
        located=located,
        store=located.open_store(),
        window=options.window,
        until=options.until,
        seed=options.seed,
        force=force,
        last=last,
    )


def store_of(options: argparse.Namespace) -> tuple[Located, Store]:
    located = located_of(options)
    store = located.open_store()
    if not store.exists():
        raise StoreError("there is no store yet", where=store.name, fix="headway run makes one")
    return located, store


def answer(options: argparse.Namespace, value: Any, text: str) -> None:
    print(json.dumps(value, indent=1) if options.json else text)


def execute(options: argparse.Namespace, trip: Trip) -> dict[str, Any]:
    from flows.local import run_locally

    stop = threading.Event()
    with reporter(json=options.json, stop=stop) as report:
        stop_on_signals(stop, report.note)
        return run_locally(trip, report, wait_seconds=options.wait)


def run(options: argparse.Namespace) -> int:
    trip = trip_of(options, force=options.force)
    record = execute(options, trip)
    answer(options, record, _told(record, trip))
    return 0 if record["state"] in ("promoted", "already champion") else 4


def stage(options: argparse.Namespace) -> int:
    trip = trip_of(options, last=STAGE_COMMANDS[options.command][0])
    record = execute(options, trip)
    text = _told(record, trip)
    if not options.json and options.command in ("stats", "validate", "evaluate"):
        text = "\n".join([*_tables(record, trip), text])
    answer(options, record | {"outputs": _paths(record, trip)}, text)
    return 0


def _tables(record: dict[str, Any], trip: Trip) -> list[str]:
    """What the stage asked for has to show: statistics by column, anomalies, metrics by slice."""
    found = []
    for ran in record["stages"]:
        manifest = trip.store.find(ran["stage"], ran["fingerprint"])
        if manifest is None or ran["stage"] != trip.last:
            continue
        path = trip.store.output(ran["stage"], ran["fingerprint"])
        output = Output(ran["title"], ran["stage"], ran["fingerprint"], path, manifest.result, hit=True)
        for artifact in artifacts_of(output):
            if artifact.table:
                show = findings if "message" in artifact.table[0] else text_table
                found.append(f"{artifact.description}\n{show(artifact.table)}\n")
    return found


def _paths(record: dict[str, Any], trip: Trip) -> dict[str, str]:
    return {s["title"]: str(trip.store.output(s["stage"], s["fingerprint"])) for s in record["stages"]}


def _told(record: dict[str, Any], trip: Trip) -> str:
    """A run as its last words on a terminal."""
    ran = [s for s in record["stages"] if not s["cached"]]
    spans = record["spans"]
    window = spans[0] if len(spans) == 1 else f"{spans[0]} to {spans[-1]}, {len(spans)} spans"
    lines = [f"{record['pipeline']}: {window}; run {record['run']}"]
    table = record.get("columns")
    lines += [shown(table), "  (headway schema --columns shows this again)"] if table else []
    notes = record["notes"] if not table else [note for note in record["notes"] if about_column(note) is None]
    lines += [f"  note: {note}" for note in notes]
    lines += [f"  warning: {warning}" for warning in record["warnings"]]
    if not ran:
        lines.append(f"  nothing to do: all {len(record['stages'])} outputs are there already")
    if "verdict" in record:
        lines.append(f"  verdict: {record['verdict']['verdict']}")
        lines += [f"    {reason}" for reason in record["verdict"]["reasons"]]
    if record.get("metrics"):
        lines.append(f"  metrics: {metrics_line(record['metrics'])}")
    if record["state"] == "promoted":
        version = trip.registry.version(record["version"])
        lines.append(f"  promoted: version {record['version']}, {version.saved_model}")
        lines.append(f"  serving:  {trip.registry.serving / str(record['serving'])}")
    if trip.last is not None and record["stages"]:
        last = record["stages"][-1]
        lines.append(f"  output: {trip.store.output(last['stage'], last['fingerprint'])}")
    lines.append(f"  {len(ran)} of {len(record['stages'])} stages ran, {record['seconds']:.1f} s in all")
    return "\n".join(lines)


def plan(options: argparse.Namespace) -> int:
    from flows.engine import Planner
    from flows.road import road

    trip = trip_of(options)
    planner = Planner(trip.store)
    end = road(trip, planner, freeze=False)
    rows = [
        {"step": o.title, "stage": o.stage, "fingerprint": o.fingerprint, "cached": o.hit, "why": o.why}
        for o in planner.outputs
    ]
    lines = [f"{trip.located.pipeline.name}: {end.spans[0]} to {end.spans[-1]} ({counted(len(end.spans), 'span')})"]
    lines += [
        f"  {r['step']:<22} {'cached' if r['cached'] else 'would run':<10} {r['why'] or ''}".rstrip() for r in rows
    ]
    lines += [f"  note: {note}" for note in end.notes]
    if end.later:
        lines.append(f"  then, as the verdict goes: {', '.join(end.later)}")
    elif end.verdict:
        lines.append(f"  verdict: {end.verdict['verdict']}")
    answer(options, {"spans": end.spans, "steps": rows, "later": end.later, "notes": end.notes}, "\n".join(lines))
    return 0


def promote(options: argparse.Namespace) -> int:
    """A version by number; without one the window's candidate, by force."""
    if options.to is not None:
        located, store = store_of(options)
        registry = Registry(store, located.pipeline.name)
        event = registry.promote(options.to, reason=options.reason, force=options.force)
        told = f"version {event.version} is the champion, served as {registry.serving / str(event.serving)}"
        answer(options, event.model_dump(mode="json"), told)
        return 0
    trip = trip_of(options, force=True)
    record = execute(options, trip)
    answer(options, record, _told(record, trip))
    return 0 if record["state"] == "promoted" else 4


def rollback(options: argparse.Namespace) -> int:
    located, store = store_of(options)
    registry = Registry(store, located.pipeline.name)
    event = registry.rollback(options.to, reason=options.reason, force=options.force)
    told = (
        f"version {event.version} is the champion again, in place of {event.previous}; "
        f"served as {registry.serving / str(event.serving)}"
    )
    answer(options, event.model_dump(mode="json"), told)
    return 0


def predict(options: argparse.Namespace) -> int:
    from flows.predict import predict as run

    located = located_of(options)
    stop = threading.Event()
    with reporter(json=options.json, stop=stop) as report:
        stop_on_signals(stop, report.note)
        result = run(
            located,
            model=options.model,
            input=options.input,
            output=options.output,
            monitor=report.monitor("predict"),
            format=options.format,
            columns=None if options.columns is None else [c for c in options.columns.split(",") if c],
            write=options.write,
            max_quarantined=options.max_quarantine,
        )
    counts = result["counts"]
    which = f"version {result['version']}" if result["version"] else result["saved_model"]
    told = f"{counts['predicted']:,} of {counts['read']:,} rows predicted by {which}, in {result['output']}"
    if counts["quarantined"]:
        told += f"; {counts['quarantined']:,} rejected, see its quarantine.parquet"
    if result["cached"]:
        told = f"nothing has changed: {told}"
    answer(options, result, told)
    return 0


def models(options: argparse.Namespace) -> int:
    _, store = store_of(options)
    value, lines = {}, []
    for name in names(store):
        registry = Registry(store, name)
        history = registry.history()
        champion = history[-1].version if history else None
        gone = registry.rolled_back()
        value[name] = {
            "champion": champion,
            "serving": str(registry.serving / str(history[-1].serving)) if history else None,
            "versions": [v.model_dump(mode="json") for v in registry.versions()],
            "history": [event.model_dump(mode="json") for event in history],
        }
        lines.append(name)
        for version in reversed(registry.versions()):
            mark = "champion" if version.number == champion else "rolled back" if version.number in gone else ""
            spans = version.facts.get("spans") or ["?"]
            metrics = metrics_line(version.facts.get("metrics"))
            lines.append(
                f"  {version.number:>4}  {mark:<11}  {version.created[:16]}  {spans[0]} to {spans[-1]}  {metrics}"
            )
            lines.append(f"        {version.saved_model}")
    answer(options, value, "\n".join(lines) or "no model was promoted yet")
    return 0


def runs(options: argparse.Namespace) -> int:
    _, store = store_of(options)
    found = store.runs()[: options.limit]
    lines = []
    for r in found:
        spans = r.get("spans") or ["-"]
        ran = sum(not s["cached"] for s in r["stages"])
        version = f" v{r['version']}" if "version" in r else ""
        took = f"{r.get('seconds', 0):>7.1f} s  {ran} ran"
        lines.append(f"{r['run']}  {r['pipeline']:<16} {r['state'] + version:<20} {took}  {spans[0]} to {spans[-1]}")
    answer(options, found, "\n".join(lines) or "no run yet")
    return 0


def show(options: argparse.Namespace) -> int:
    _, store = store_of(options)
    record = store.run(options.run)
    lines = [f"{key}: {value}" for key, value in record.items() if key not in ("stages", "verdict", "metrics", "error")]
    lines.append("stages:")
    for s in record["stages"]:
        took = "cached" if s["cached"] else f"{s['seconds']:.1f} s"
        lines.append(f"  {s['title']:<22} {took:>8}  {store.output(s['stage'], s['fingerprint'])}")
        if s["why"] and not s["cached"]:
            lines.append(f"  {'':<22} {'':>8}  ran because: {s['why']}")
        if s["stage"] == "train" and (found := store.find(s["stage"], s["fingerprint"])) is not None:
            lines += [f"  {'':<22} {'':>8}  {sentence}" for sentence in _training_says(found.result)]
        if s["stage"] == "splits" and (found := store.find(s["stage"], s["fingerprint"])) is not None:
            lines += [f"  {'':<22} {'':>8}  {sentence}" for sentence in found.result["says"]]
    if "verdict" in record:
        lines += [
            f"verdict: {record['verdict']['verdict']}",
            *(f"  {reason}" for reason in record["verdict"]["reasons"]),
        ]
    if record.get("metrics"):
        lines.append(f"metrics: {metrics_line(record['metrics'])}")
    if "error" in record:
        lines.append(f"error: {record['error']}")
    answer(options, record, "\n".join(lines))
    return 0


def _training_says(result: dict[str, Any]) -> list[str]:
    """What a training's result has to tell beyond its loss, a line each."""
    lines = []
    if result.get("replicas", 1) > 1:
        several = result["workers"] > 1
        split = (
            f"{result['workers']} workers, each reading {result['reads']}"
            if several
            else counted(result["replicas"], "replica")
        )
        lines.append(f"strategy {result['strategy']}: {split}")
    elif "strategy" in result:
        lines.append(f"strategy {result['strategy']}")
    if result.get("stopped") == "loss":
        lines.append(f"stopped at step {result['steps']:,}: the training loss had fallen to training.stop_at_loss")
    if scale := result.get("loss_scale"):
        lines.append(
            f"the loss scale ended at {scale['value']:g}; {counted(scale['skipped'], 'step was', 'steps were')} skipped to "
            "find it"
        )
    for one in result.get("best_checkpoints", []):
        lines.append(f"kept step {one['step']:,}: loss on the carve {one['carve_loss']:.6g}, {one['weights']}")
    return lines


def verify(options: argparse.Namespace) -> int:
    _, store = store_of(options)
    problems = [*store.verify()]
    for name in names(store):
        problems += Registry(store, name).verify()
    value = {"problems": [{"file": str(path), "problem": problem} for path, problem in problems]}
    lines = [f"{path}: {problem}" for path, problem in problems]
    outputs = sum(1 for _ in store.all_outputs())
    fix = "delete the damaged output's folder: the next run makes it again"
    answer(
        options,
        value,
        "\n".join([*lines, f"  fix: {fix}"]) if lines else f"{counted(outputs, 'output')}: every byte is as written",
    )
    return options.code if problems else 0


def gc(options: argparse.Namespace) -> int:
    from headway.gc import collect, remove

    located, store = store_of(options)
    lock = store.lock(f"run-{located.pipeline.name}", {"command": "gc"})
    with lock.held():
        garbage = collect(store, keep_runs=options.keep)
        freed = sum(item.bytes for item in garbage) if options.dry_run else remove(store, garbage)
        swept = [] if options.dry_run else store.sweep()
    value = [{"path": str(item.path), "bytes": item.bytes, "why": item.why} for item in garbage]
    verb = "would free" if options.dry_run else "freed"
    lines = [f"{item.path}: {counted(item.bytes, 'byte')}, {item.why}" for item in garbage]
    lines += [f"{path}: left behind by a process that died" for path in swept]
    found = {"removed": value, "bytes": freed, "swept": [str(path) for path in swept]}
    answer(options, found, "\n".join([*lines, f"{verb} {counted(freed, 'byte')}"]))
    return 0


def schema(options: argparse.Namespace) -> int:
    """The JSON Schema of a pipeline; with --update a proposal beside the schema file, and what it would change."""
    if options.columns:
        from flows.column_table import current

        rows = current(located_of(options))
        answer(options, rows, shown(rows))
        return 0
    if not options.update:
        print(json.dumps(json_schema(), indent=1))
        return 0
    from flows.columns import new_columns
    from headway.disk import replace_text
    from headway.schema_update import difference, proposed
    from headway.statistics.split import SplitStatistics

    trip = trip_of(options, last="statistics")
    path = trip.located.schema_file
    if not path.is_file():
        raise ConfigError("there is no schema file to update", where=str(path), fix="headway validate infers one")
    record = execute(options, trip)
    ran = record["stages"][-1]
    output = trip.store.output(ran["stage"], ran["fingerprint"])
    manifest = trip.store.find(ran["stage"], ran["fingerprint"])
    assert manifest is not None
    splits = [SplitStatistics.load(output / name) for name in manifest.result["rows"]]
    before = path.read_text(encoding="utf-8")
    after = proposed(before, splits, where=str(path), new=new_columns(trip.located, trip.files(record["spans"][-1])))
    target = path.with_name(f"{path.stem}.proposed{path.suffix}")
    changes = difference(before, after, path.name, target.name)
    if changes:
        replace_text(target, after)
    told = f"{changes}\n\nwritten to {target}; {path.name} is as it was" if changes else "the schema holds the window"
    answer(options, {"schema": str(path), "proposed": str(target) if changes else None, "diff": changes}, told)
    return 0


def doctor(options: argparse.Namespace) -> int:
    from flows.doctor import examine

    findings = examine(Path(options.pipeline), options.set)
    lines = [
        f"{'ok' if f.ok else 'PROBLEM':<8} {f.what}: {f.found}" + (f"\n         fix: {f.fix}" if f.fix else "")
        for f in findings
    ]
    answer(options, [f.__dict__ for f in findings], "\n".join(lines))
    if any(not f.ok for f in findings):
        print("headway doctor: there are problems", file=sys.stderr)
        return 1
    return 0
