"""The commands on a store: list runs, verify files, remove unused files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from flows.cli.commands import answer, reporting, store_of, verdict_lines
from flows.cli.options import Count, Options, PipelinePath
from flows.cli.runs.reasons import RUN
from headway.errors import StoreError
from headway.messages import counted, duration, size, window_text

if TYPE_CHECKING:
    from headway.storage.store import Store


def runs(
    pipeline: PipelinePath = ".",
    /,
    *,
    limit: Annotated[Count, Parameter(help="runs to show")] = 20,
    options: Options = Options(),
) -> int:
    from flows.records import runs_of
    from flows.tell.text import text_table

    _, store = store_of(pipeline, options)
    records = runs_of(store)[:limit]
    rows = [
        {
            "run": r.run,
            "pipeline": r.pipeline,
            "state": str(r.state) + (f", v{r.version}" if r.version is not None else ""),
            "took": duration(r.seconds),
            "ran": len(r.ran),
            "window": window_text(r.spans),
        }
        for r in records
    ]
    return answer(options, records, text_table(rows) or "no run yet")


def show(
    pipeline: PipelinePath = ".",
    run: Annotated[
        str | None, Parameter(help="its name or the beginning of it, or latest (default: the latest that trained)")
    ] = None,
    /,
    *,
    options: Options = Options(),
) -> int:
    """One run; `headway show RUN` is one of the pipeline in this folder, and the two may come in either order."""
    from flows.records import find
    from flows.tell.rerun_reasons import why_it_ran

    if RUN.fullmatch(pipeline) and not Path(pipeline).exists() and (run is None or Path(run).exists()):
        pipeline, run = run or ".", pipeline
    loaded, store = store_of(pipeline, options)
    record = find(store, run, pipeline=loaded.pipeline.name)
    version = f", version {record.version}" if record.version is not None else ""
    lines = [
        f"run {record.run} of {record.pipeline}: {record.state}{version}",
        f"window: {window_text(record.spans) or 'not known'} ({counted(len(record.spans), 'span')}), seed {record.seed}",
        f"started: {record.started[:16].replace('T', ' ')} UTC, took {duration(record.seconds)}",
        *(f"note: {text}" for text in record.notes),
        *(f"warning: {text}" for text in record.warnings),
        *(
            [f"training: {counted(record.training.rows, 'train row')}: {record.training.says}"]
            if record.training
            else []
        ),
        "stages:",
    ]
    for s in record.stages:
        took = "cached" if s.cached else duration(s.seconds)
        why = "" if s.cached else why_it_ran(s.why, s.stage)
        lines.append(f"  {s.title:<22} {took:>8}  {why}".rstrip())
        lines.append(f"      {store.output(s.stage, s.fingerprint)}")
        sentences = {"train": _training_sentences, "splits": lambda result: result["says"]}.get(s.stage)
        if sentences is not None and (manifest := store.find(s.stage, s.fingerprint)) is not None:
            lines += [f"      {sentence}" for sentence in sentences(manifest.result)]
    lines += verdict_lines(record)
    if record.error:
        lines.append(f"error: {record.error}")
    return answer(options, record, "\n".join(lines))


def _training_sentences(result: dict[str, Any]) -> list[str]:
    """Return a training's strategy, early stop, loss scale and the like as lines of text."""
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
    if begun := result.get("warm_start"):
        lines.append(begun["says"])
    if result.get("stopped") == "loss":
        lines.append(f"stopped at step {result['steps']:,}: the training loss had fallen to training.stop_at_loss")
    if scale := result.get("loss_scale"):
        lines.append(
            f"the loss scale ended at {scale['value']:g}; {counted(scale['skipped'], 'step was', 'steps were')} skipped to "
            "find it"
        )
    for checkpoint in result.get("best_checkpoints", []):
        loss = checkpoint.get("holdout_loss", checkpoint.get("carve_loss"))  # the name in outputs of earlier versions
        lines.append(f"kept step {checkpoint['step']:,}: loss on the holdout {loss:.6g}, {checkpoint['weights']}")
    return lines


def verify(
    pipeline: PipelinePath = ".",
    /,
    *,
    repair: Annotated[
        bool, Parameter(help="remove damaged outputs of steps, so that the next run makes them anew")
    ] = False,
    options: Options = Options(),
) -> int:
    from flows.execution.damage import places, remove_outputs
    from headway.registry.registry import Registry, names

    _, store = store_of(pipeline, options)
    problems = [*store.verify()]
    for name in names(store):
        problems += Registry(store, name).verify()
    damaged = places(store, problems)
    removed = remove_outputs(store, damaged) if repair else []
    remaining = [place for place in damaged if not (repair and place.output)]
    value: dict[str, Any] = {"problems": [{"file": str(path), "problem": problem} for path, problem in problems]}
    if repair:
        value["removed"] = [str(place.path) for place in removed]
        value["left"] = [{"path": str(place.path), "problem": place.problem, "fix": place.fix} for place in remaining]
        lines = [
            f"{place.path}: {place.problem}: removed; the next run that needs it makes it anew" for place in removed
        ]
        lines += [f"{place.path}: {place.problem}: left; {place.fix}" for place in remaining]
    else:
        lines = [f"{path}: {problem}" for path, problem in problems]
        lines += [f"  fix: {place.path}: {place.fix}" for place in remaining if not place.output]
        lines += [f"  fix: {place.fix}" for place in remaining if place.output][:1]
    outputs = sum(1 for _ in store.all_outputs())
    text = "\n".join(lines) or f"{counted(outputs, 'output')}: every byte is as written"
    return answer(options, value, text, StoreError.exit_code if remaining else 0)


def backup(
    pipeline: PipelinePath = ".",
    /,
    *,
    to: Annotated[str, Parameter(metavar="FOLDER", help="the folder of the copy; it is created if it does not exist")],
    options: Options = Options(),
) -> int:
    from headway.registry.backup import back_up

    _, store = store_of(pipeline, options)
    with reporting(options) as report:
        done = back_up(store, Path(to), report.monitor("backup"))
    text = f"{to}: {counted(done.copied, 'folder')} copied ({size(done.bytes)}), {done.there:,} were there"
    return answer(options, {"to": to, "copied": done.copied, "there": done.there, "bytes": done.bytes}, text)


Keep = Annotated[Count, Parameter(metavar="RUNS", help="how many of the newest runs of each pipeline to keep")]
KeepVersions = Annotated[
    Count | None,
    Parameter(help="also delete old versions: keep the newest N, the last ten champions and those with an alias"),
]


def gc(
    pipeline: PipelinePath = ".",
    /,
    *,
    keep: Keep = 20,
    keep_versions: KeepVersions = None,
    dry_run: Annotated[bool, Parameter(help="list what would be deleted, and delete nothing")] = False,
    options: Options = Options(),
) -> int:
    _, store = store_of(pipeline, options)
    result = collected(store, keep, keep_versions, dry_run=dry_run)
    verb = "would free" if dry_run else "freed"
    lines = [f"{item['path']}: {counted(item['bytes'], 'byte')}, {item['why']}" for item in result["removed"]]
    lines += _left(result)
    return answer(options, result, "\n".join([*lines, f"{verb} {counted(result['bytes'], 'byte')}"]))


def clean(
    pipeline: PipelinePath = ".",
    /,
    *,
    yes: Annotated[bool, Parameter(help="delete it; without --yes nothing is deleted")] = False,
    keep: Keep = 20,
    keep_versions: KeepVersions = None,
    options: Options = Options(),
) -> int:
    """Say how much of a store no kept run and no version needs, by kind; with --yes delete it, as `headway gc` does."""
    from flows.tell.text import text_table

    _, store = store_of(pipeline, options)
    result = collected(store, keep, keep_versions, dry_run=not yes) | {"dry_run": not yes}
    kinds: dict[tuple[str, str], list[int]] = {}
    for item in result["removed"]:
        kind = Path(item["path"]).relative_to(store.root).parts[0]
        kinds.setdefault((kind, item["why"]), []).append(item["bytes"])
    rows = [
        {"what": kind, "count": len(sizes), "size": size(sum(sizes)), "why": why}
        for (kind, why), sizes in kinds.items()
    ]
    total = size(result["bytes"])
    runs = f"the newest {counted(keep, 'run')} of each pipeline" if keep else "the runs that made versions"
    kept = f"kept: {runs}, what they use, and "
    kept += "every version" if keep_versions is None else "the versions that --keep-versions names"
    lines = [text_table(rows, whole=("why",)), *_left(result), kept]
    if not rows:
        lines = ["nothing to delete", *_left(result), kept]
    elif yes:
        lines.append(f"deleted {total} in {store.name}")
    else:
        lines += [f"nothing was deleted; with --yes {total} would be in {store.name}"]
    return answer(options, result, "\n".join(lines))


def collected(store: Store, keep: int, keep_versions: int | None, *, dry_run: bool) -> dict[str, Any]:
    """Collect the store's garbage, and remove it unless `dry_run`."""
    from headway.registry.gc import alone, collect, remove

    with alone(store) as remover:
        planned = collect(store, keep_runs=keep, keep_versions=keep_versions)
        removed = planned if dry_run else remove(remover, planned, keep_versions=keep_versions)
        swept = [] if dry_run else store.sweep()
    return {
        "removed": [{"path": str(item.path), "bytes": item.bytes, "why": item.why} for item in removed],
        "bytes": sum(item.bytes for item in removed),
        "swept": [str(path) for path in swept],
        "in_use": [str(item.path) for item in planned if item not in removed],
    }


def _left(result: dict[str, Any]) -> list[str]:
    lines = [f"{path}: left, it is in use" for path in result["in_use"]]
    return lines + [f"{path}: left behind by a process that died" for path in result["swept"]]
