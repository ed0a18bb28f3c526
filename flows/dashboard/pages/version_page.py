"""One version of a model: what it is worth, what it was made from, and what points at it."""

from __future__ import annotations

from typing import Any

from flows.dashboard.layout import Page, address, link, long, when
from flows.dashboard.opened_stores import OpenedStore
from flows.dashboard.pages.model_page import champion_of, metrics_of, primary_of, spans_of
from flows.tell.ending import Ending
from flows.tell.parts import Finding, Part, Table
from headway.errors import HeadwayError
from headway.messages import counted, number, signed, size, window_text
from headway.registry.registry import Event, Version


def version_page(opened: OpenedStore, model: str, number_of: int) -> Page | None:
    """A version; None where there is none."""
    registry = opened.registry(model)
    if registry is None:
        return None
    slug = opened.slug
    crumbs = [("Overview", address(slug)), (model, address(slug, "models", model))]
    title = f"version {number_of} of {model}"
    try:
        version = registry.version(number_of)
        history = registry.history()
    except HeadwayError as error:
        ending = Ending(word="damaged", tone="red", headline=error.problem, error=str(error))
        return Page(title, title, slug, "Overview", crumbs, ending, every=0, status=404)
    champion, _ = champion_of(registry)
    primary, value = primary_of(opened, version)
    is_champion = champion is not None and champion.number == number_of
    facts: list[tuple[str, Any]] = [(primary, number(value))] if primary else []
    facts.append(("made", f"{when(version.created)} UTC"))
    if spans := spans_of(version):
        facts.append((counted(len(spans), "span"), window_text(spans)))
    manifest = opened.store.manifest(version.path)
    facts.append(("size", size(sum(entry.bytes for entry in manifest.files) if manifest else 0)))
    made_by = str(version.facts.get("run") or "")
    opened.index.runs()
    if opened.index.known(made_by):
        facts.append(("run", link(made_by, address(slug, "runs", made_by))))
    actions = []
    if not is_champion:
        actions.append(("Promote this version", address(slug, "models", model, "versions", number_of, "promote")))
    findings = []
    if (why := registry.rolled_back().get(number_of)) is not None:
        findings.append(Finding("warning", f"It was rolled back {why}"))
    parts = [Part("Metrics", tables=[Table("Metrics on the eval rows of its run", metric_table(version, champion))])]
    events = [_event(event) for event in reversed(history) if event.version == number_of]
    said = [] if events else ["It never was the champion."]
    parts.append(Part("As champion", said, tables=[Table("As champion", events)] if events else []))
    parts.append(Part("Where it lies", commands=[str(version.saved_model), f"headway lineage {number_of} PIPELINE"]))
    heading = f"Version {number_of} of {model}" + (" is the champion" if is_champion else "")
    return Page(title, heading, slug, "Overview", crumbs, None, facts, findings, actions, parts=parts)


def metric_table(version: Version, champion: Version | None) -> list[dict[str, Any]]:
    """A row per metric of a version, beside those of the champion."""
    metrics = metrics_of(version)
    other = metrics_of(champion) if champion is not None and champion.number != version.number else {}
    rows = []
    for name, value in metrics.items():
        row: dict[str, Any] = {"metric": name, f"version {version.number}": number(value)}
        if champion is not None and name in other:
            row |= {f"version {champion.number}, the champion": number(other[name])}
            row |= {"difference": signed(value - other[name])}
        rows.append(row)
    return rows


def standing(version: Version, champion: Version | None) -> str:
    """What is known of a version beside the champion, in a sentence."""
    found = version.facts.get("standing")
    if champion is None or not isinstance(found, dict) or found.get("against") != champion.number:
        return (
            "The two were judged on the eval rows of their own runs; headway compare holds them against each other "
            "where both predicted the same rows."
        )
    metric, apart = found.get("metric"), found.get("difference")
    return f"On the same rows its {metric} differed by {signed(apart)} from version {champion.number}'s."


def _event(event: Event) -> dict[str, Any]:
    return {
        "when": when(event.time),
        "what": "rolled back to" if event.kind == "rollback" else "promoted",
        "in place of": f"v{event.previous}" if event.previous is not None else "",
        "by": event.by,
        "why": long(event.reason),
    }
