"""One version of a model: what it is worth, what it was made from, and what points at it."""

from flows.dashboard.layout import Page, address, crumbs_of, link
from flows.dashboard.opened_stores import OpenedStore
from flows.dashboard.pages.model_page import champion_of, event_rows
from flows.tell.ending import Ending
from flows.tell.paired import against_part, judged, own_level, own_table, paired, spans_of
from flows.tell.rendering.parts import Finding, Part, Table
from headway.errors import HeadwayError
from headway.messages import counted, size, when, window_text
from headway.registry.registry import Registry, Version


def version_page(opened: OpenedStore, model: str, number: int) -> Page | None:
    """A version; None where there is none."""
    registry = opened.registry(model)
    if registry is None:
        return None
    slug = opened.slug
    title, crumbs = f"version {number} of {model}", crumbs_of(slug, model)
    try:
        version, history = registry.version(number), registry.history()
    except HeadwayError as error:
        ending = Ending(word="damaged", tone="red", headline=error.problem, error=str(error))
        return Page(title, title, slug, "Overview", crumbs, ending, every=0, status=404)
    champion, _ = champion_of(registry)
    is_champion = champion is not None and champion.number == number
    manifest = opened.store.manifest(version.path)
    facts: list[tuple[str, object]] = [("metric", worth)] if (worth := own_level(version)) else []
    facts.append(("made", f"{when(version.created)} UTC"))
    if spans := spans_of(version):
        facts.append((counted(len(spans), "span"), window_text(spans)))
    facts.append(("size", size(sum(entry.bytes for entry in manifest.files) if manifest else 0)))
    made_by = str(version.facts.get("run") or "")
    opened.index.runs()
    if opened.index.known(made_by):
        facts.append(("run", link(made_by, address(slug, "runs", made_by))))
    promote = address(slug, "models", model, "versions", number, "promote")
    why = registry.rolled_back().get(number)
    events = event_rows(opened, model, [event for event in reversed(history) if event.version == number])
    return Page(
        title,
        f"Version {number} of {model}" + (" is the champion" if is_champion else ""),
        slug,
        "Overview",
        crumbs,
        facts=facts,
        findings=[] if why is None else [Finding("warning", f"It was rolled back {why}")],
        actions=[] if is_champion else [("Promote this version", promote)],
        parts=[
            *_metrics(registry, version, None if is_champion else champion),
            Part("As champion", tables=[Table("As champion", events)])
            if events
            else Part("As champion", ["It never was the champion."]),
            Part(
                "Where it lies",
                commands=[registry.store.shown(version.saved_model), f"headway lineage {number} PIPELINE"],
            ),
        ],
    )


def _metrics(registry: Registry, version: Version, champion: Version | None) -> list[Part]:
    """Against the champion, or against the one of its time, on the same rows; then by itself."""
    if champion is not None and paired(registry, version, champion) is None:
        return [against_part(registry, version, champion)]
    found = judged(registry.store, version) if champion is None else paired(registry, version, champion)
    beside = [] if found is None else [Part("On the same rows", [found.sentence], tables=[found.table])]
    return [*beside, Part("Metrics", tables=[own_table(version)])]
