"""The first page of a store, and the page over several: what runs, the models, what is wrong, the latest runs."""

import os
from collections.abc import Iterator, Mapping

from markupsafe import Markup

from flows.dashboard.layout import Page, address, link, looks_every
from flows.dashboard.opened_stores import OpenedStore, checked_spans
from flows.dashboard.pages.model_page import champion_of, level_of, version_link
from flows.dashboard.pages.run_page import progress_of
from flows.dashboard.pages.runs_page import run_row
from flows.records import RunRecord, judging
from flows.tell.rendering.cells import Row
from flows.tell.rendering.parts import Finding, Part, Table
from headway.errors import HeadwayError
from headway.messages import counted, duration, when
from headway.registry.versions import numbers

_LATEST = 8


def stores_page(stores: Mapping[str, OpenedStore]) -> Page:
    """All stores, a row each."""
    rows, everything = list[Row](), list[RunRecord]()
    for slug, opened in stores.items():
        runs = opened.index.runs()
        everything += runs
        models = [model for model in opened.model_folders() if champion_of(opened.registry(model))[0] is not None]
        rows.append(
            {
                "store": link(slug, address(slug)),
                "place": opened.store.name,
                "champions": len(models),
                "runs": len(runs),
                "running": sum(run.going_on for run in runs) or "",
                "latest": when(runs[0].started) if runs else "nothing yet",
                "to look at": len(alarms(opened)) or "",
            }
        )
    parts = [Part("Stores", tables=[Table("Stores", rows)])]
    return Page("Stores", counted(len(rows), "store"), parts=parts, every=looks_every(everything))


def store_page(opened: OpenedStore) -> Page:
    """One store."""
    runs, slug = opened.index.runs(), opened.slug
    live = [run for run in runs if run.going_on]
    found = alarms(opened)
    parts = []
    if live:
        parts.append(Part("Running now", tables=[Table("Runs that go on", [_live_row(opened, run) for run in live])]))
    models = opened.models()
    rows = [_model_row(opened, model, runs) for model in models]
    if rows:
        parts.append(Part("Models", tables=[Table("Models", rows)]))
    if runs:
        latest = [run_row(opened, run, several=len(models) > 1) for run in runs[:_LATEST]]
        more = link(f"all {counted(len(runs), 'run')}", address(slug, "runs"))
        parts.append(Part("Latest runs", tables=[Table("Latest runs", latest, note=more)]))
    if not runs and not opened.model_folders():
        parts.append(_how_to_begin(opened))
    states = [str(run.state) for run in runs]
    facts = [("models", f"{len(rows):,}"), ("runs", f"{len(runs):,}")] if runs or rows else []
    facts += [("latest run", f"{when(runs[0].started)} UTC")] if runs else []
    facts += [("running", f"{len(live)}")] if live else []
    facts += [("failed", f"{states.count('failed'):,}")] if "failed" in states else []
    return Page(slug, slug, slug, "Overview", facts=facts, findings=found, parts=parts, every=looks_every(live))


def alarms(opened: OpenedStore) -> list[Finding]:
    """What a person should look at, as findings: what monitor and the gate found of champions, and damage."""
    opened.index.runs()
    return [*_of_champions(opened), *_damage(opened)]


def _of_champions(opened: OpenedStore) -> Iterator[Finding]:
    for model in opened.model_folders():
        champion, _ = champion_of(opened.registry(model))
        number = champion.number if champion else None
        checked = [row for row in checked_spans(opened.store, model)[0] if row.champion == number and row.alarms]
        if checked:
            row = checked[-1]
            more = f" and {counted(len(row.alarms) - 1, 'alarm')} more" if len(row.alarms) > 1 else ""
            message = f"{model}, span {row.span}: {row.alarms[0]}{more}"
            yield Finding("warning", message, link(f"drift of {model}", address(opened.slug, "models", model)))
            continue
        judged = judging(opened.index.runs(), model, number)
        if judged and judged.champion:
            run = link(f"run {judged.run}", address(opened.slug, "runs", judged.run))
            yield from (Finding("warning", f"{model}: {alarm}", run) for alarm in judged.champion.alarms)


def _damage(opened: OpenedStore) -> Iterator[Finding]:
    for path, problem in [*opened.index.problems(), *opened.stray()]:
        fix = "it is left out of these pages; headway verify reads the whole store"
        yield Finding("error", f"{path} {problem}", fix)
    for model in opened.model_folders():
        if (unread := checked_spans(opened.store, model)[1]) is not None:
            yield Finding("error", unread, "")
        try:
            if registry := opened.registry(model):
                registry.champion()
                registry.aliases()
        except HeadwayError as error:
            yield Finding("error", f"{error.where}: {error.problem}", error.fix or "")


def _live_row(opened: OpenedStore, run: RunRecord) -> dict[str, object]:
    return {
        "run": link(run.run, address(opened.slug, "runs", run.run)),
        "pipeline": run.pipeline,
        "for": duration(run.seconds),
        "steps done": len(run.stages),
        "now": Markup(", ").join(progress_of(opened, run.run)),
    }


def _model_row(opened: OpenedStore, model: str, runs: list[RunRecord]) -> dict[str, object]:
    latest = next((run for run in runs if run.pipeline == model), None)
    row: dict[str, object] = {"model": link(model, address(opened.slug, "models", model))}
    registry = opened.registry(model)
    version, problem = champion_of(registry)
    if registry and version is not None:
        row |= {
            "champion": version_link(opened.slug, model, version.number),
            "since": when(registry.history()[-1].time),
            "its own level": level_of(opened, version),
        }
    else:
        row |= {"champion": problem or "none yet"}
    row["versions"] = len(numbers(registry.store, registry.folder)) if registry else 0
    if latest:
        row["latest run"] = link(when(latest.started), address(opened.slug, "runs", latest.run))
    return row


def _how_to_begin(opened: OpenedStore) -> Part:
    places = [of.folder if of.file.name == "pipeline.yaml" else of.file for of in opened.pipelines.values()]
    commands = [f"headway run {os.path.relpath(place)}" for place in places] or ["headway run PIPELINE"]
    said = [
        "This store is empty: no run has written to it yet.",
        "A run appears here as soon as it begins. To start one:",
    ]
    return Part("Nothing here yet", said, commands=commands)
