"""The commands that list versions and move the pointers to them: the champion and the aliases."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from flows.cli.commands import answer, context_of, execute, store_of, summary_text
from flows.cli.options import CandidateOptions, Options, PipelinePath
from headway.errors import ConfigError, HeadwayError
from headway.messages import when, window_text

if TYPE_CHECKING:
    from flows.config.pipeline import LoadedPipeline
    from headway.registry.registry import Event, Registry, Version
    from headway.storage.store import Store

Reason = Annotated[str, Parameter(metavar="TEXT", help="why; the registry's history keeps it")]
SomeVersion = Annotated[str | None, Parameter(metavar="VERSION")]
ASKED = "asked for on the command line"


def registry_of(pipeline: str, options: Options) -> tuple[LoadedPipeline, Registry]:
    from headway.registry.registry import Registry

    _check_path(pipeline)
    loaded, store = store_of(pipeline, options)
    return loaded, Registry(store, loaded.pipeline.name)


def _check_path(pipeline: str) -> None:
    if pipeline.isdecimal() and not Path(pipeline).exists():
        raise ConfigError(f"{pipeline!r} is not a pipeline here", fix=f"a version is named by --to {pipeline}")


def said(line: str) -> None:
    """Print what an MLflow server could not be told."""
    print(line, file=sys.stderr)


def models(pipeline: PipelinePath = ".", /, *, options: Options = Options()) -> int:
    from flows.records import judging, records
    from headway.registry.registry import Registry, names

    _, store = store_of(pipeline, options)
    value, lines, runs = {}, [], list(records(store))
    for name in names(store):
        registry = Registry(store, name)
        history, aliases, versions = registry.history(), registry.aliases(), registry.versions()
        damaged = registry.damaged()
        champion, previous = history[-1].version if history else None, registry.previous()
        judged = judging(runs, name, champion)
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
    from flows.tell.paired import judged, own_levels

    created, spans = when(version.created), version.facts.get("spans") or ["?"]
    made_by = f"  run {run}" if (run := version.facts.get("run")) else ""
    yield f"  {version.number:>4}  {marks:<11}  {created}  {window_text(spans)}{made_by}"
    pair = judged(store, version, whole=False)
    for line in (pair and pair.text, own_levels(version), store.shown(version.saved_model)):
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
    options: CandidateOptions = CandidateOptions(),
) -> int:
    """Promote a version by name; without one the last run's candidate, whatever its verdict.

    Args:
        to: a version: its number, previous or an alias (default: the last run's candidate, whatever its verdict).
        alias: point this alias at the version (shadow, stable, ...); the champion stays.
        remove: remove --alias NAME.
        force: even if the version was rolled back, or the champion changed meanwhile.
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
        event = remove_alias(loaded, registry, alias, reason=reason, note=said)
        return answer(options, event.model_dump(mode="json"), f"{alias} no longer points at version {event.version}")
    if to is None:
        _check_path(pipeline)
        context = last_candidate(context_of(pipeline, options, alias=alias))
        context = replace(context, reason=None if reason == ASKED else reason)
        record = execute(options, context)
        done = record.state == ("promoted" if alias is None else "named")
        return answer(options, record, summary_text(record, context), 0 if done else 4)
    loaded, registry = registry_of(pipeline, options)
    event = promote_version(loaded, registry, to, alias=alias, reason=reason, force=force, note=said)
    if alias is not None:
        before = "" if event.previous in (None, event.version) else f", in place of {event.previous}"
        return answer(options, event.model_dump(mode="json"), f"{alias} is version {event.version}{before}")
    text = f"version {event.version} is the champion, served as {registry.store.shown(registry.serving / str(event.serving))}"
    return answer(options, event.model_dump(mode="json"), text + _against(registry, event))


def rollback(
    pipeline: PipelinePath = ".",
    /,
    *,
    to: SomeVersion = None,
    reason: Reason = ASKED,
    force: bool = False,
    options: Options = Options(),
) -> int:
    """Make the champion before this one, or another version, the champion again.

    Args:
        to: a version: its number or an alias (default: the champion before this one).
        force: even if that version was rolled back, or the champion has changed.
    """
    from flows.pipeline.promote import roll_back

    loaded, registry = registry_of(pipeline, options)
    event = roll_back(loaded, registry, to, reason=reason, force=force, note=said)
    text = f"version {event.version} is the champion again, in place of {event.previous}"
    text += f"; served as {registry.store.shown(registry.serving / str(event.serving))}"
    return answer(options, event.model_dump(mode="json"), text + _against(registry, event))


def _against(registry: Registry, event: Event) -> str:
    """How the champion stands to the one that it replaced, on the same rows; empty where no run scored both."""
    from flows.tell.paired import paired

    if event.previous in (None, event.version):
        return ""
    try:
        found = paired(registry, registry.version(event.version), registry.version(event.previous or 0))
    except HeadwayError:  # the one before is damaged, and may be why somebody rolls back
        return ""
    return f"\n{found.sentence}" if found is not None else ""
