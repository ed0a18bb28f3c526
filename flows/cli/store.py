"""The commands on a store: list runs, show one, verify files, remove unused files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from flows.cli.commands import answer, arranged, store_of, with_outputs
from flows.cli.options import Count, Options, PipelinePath
from headway.errors import StoreError
from headway.messages import counted, duration, size, some, when, window_text

if TYPE_CHECKING:
    from flows.records import RunRecord
    from headway.storage.store import Store


def runs(pipeline: PipelinePath = ".", /, *, limit: Count = 20, options: Options = Options()) -> int:
    """List runs.

    Args:
        limit: runs to show.
    """
    from flows.records import runs_of
    from flows.tell.ending import ending_of
    from flows.tell.rendering.cells import text_table

    _, store = store_of(pipeline, options)
    records = runs_of(store)[:limit]
    rows = [
        {
            "run": r.run,
            "pipeline": r.pipeline,
            "state": ending_of(r).word + (f", v{r.version}" if r.version is not None else ""),
            "took": duration(r.seconds),
            "ran": r.begun,
            "window": window_text(r.spans),
        }
        for r in records
    ]
    return answer(options, records, text_table(rows) or "no run yet")


def show(
    pipeline: PipelinePath = ".", run: str | None = None, /, *, log: bool = False, options: Options = Options()
) -> int:
    """One run; `headway show RUN` is one of the pipeline in this folder, and the two may come in either order.

    Args:
        run: its name or the beginning of it, or latest (default: the latest that trained).
        log: what it reported while it ran, line by line with the time in UTC.
    """
    from flows.records import find, read_log

    (name,), pipeline = arranged([pipeline], run or ".")
    loaded, store = store_of(pipeline, options)
    record = find(store, name or None, pipeline=loaded.pipeline.name)
    value = with_outputs(record, store)
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
    """A run for a person."""
    from flows.tell.ending import ending_of
    from flows.tell.rerun_reasons import steps_explained
    from flows.tell.summary import summary

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
    """Return a training's start and loss scale as lines of text."""
    lines = []
    if begun := result.get("warm_start"):
        lines.append(begun["says"])
    if scale := result.get("loss_scale"):
        lines.append(
            f"the loss scale ended at {scale['value']:g}; {counted(scale['skipped'], 'step was', 'steps were')} skipped to "
            "find it"
        )
    return lines


def verify(pipeline: PipelinePath = ".", /, *, repair: bool = False, options: Options = Options()) -> int:
    """Check every byte.

    Args:
        repair: remove damaged outputs of steps, so that the next run makes them anew.
    """
    from flows.pipeline.damage import places, remove_outputs
    from headway.registry.registry import Registry, names

    _, store = store_of(pipeline, options)
    problems = [*store.verify()]
    for name in names(store):
        problems += Registry(store, name).verify()
    damaged = places(store, problems)
    remaining = [place for place in damaged if not (repair and place.output)]
    value: dict[str, object] = {"problems": [{"file": path, "problem": problem} for path, problem in problems]}
    if repair:
        removed = remove_outputs(store, damaged)
        value |= {"removed": [place.path for place in removed], "left": remaining}
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


def clean(
    pipeline: PipelinePath = ".",
    /,
    *,
    yes: bool = False,
    keep: Annotated[Count, Parameter(metavar="RUNS")] = 20,
    keep_versions: Count | None = None,
    options: Options = Options(),
) -> int:
    """Say how much of a store no kept run and no version needs, by kind (with --verbose each path); with --yes delete it.

    Args:
        yes: delete it; without --yes nothing is deleted.
        keep: how many of the newest runs of each pipeline to keep.
        keep_versions: also delete old versions: keep the newest N, the last ten champions and those with an alias.
    """
    from flows.tell.rendering.cells import text_table
    from headway.registry import gc

    _, store = store_of(pipeline, options)
    found = gc.clean(store, keep, keep_versions, dry_run=not yes)
    kinds: dict[tuple[str, str], list[int]] = {}
    for item in found.removed:
        kinds.setdefault((item.path.relative_to(store.root).parts[0], item.why), []).append(item.bytes)
    rows = [
        {"what": kind, "count": len(sizes), "size": size(sum(sizes)), "why": why}
        for (kind, why), sizes in kinds.items()
    ]
    runs = f"the newest {counted(keep, 'run')} of each pipeline" if keep else "the runs that made versions"
    versions = "every version" if keep_versions is None else "the versions that --keep-versions names"
    lines = [f"{item.path}: {counted(item.bytes, 'byte')}, {item.why}" for item in found.removed if options.verbose]
    lines += [text_table(rows, whole=("why",)) or "nothing to delete", *found.left]
    lines.append(f"kept: {runs}, what they use, and {versions}")
    if rows and yes:
        lines.append(f"deleted {size(found.bytes)} in {store.name}")
    elif rows:
        lines.append(f"nothing was deleted; with --yes {size(found.bytes)} would be in {store.name}")
    return answer(options, found, "\n".join(lines))
