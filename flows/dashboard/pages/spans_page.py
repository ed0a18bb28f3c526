"""The spans of a store: which were ingested, how many rows became of them, which the champion was trained on."""

from markupsafe import Markup

from flows.dashboard.layout import Page, address, choices, link, looks_every, paged
from flows.dashboard.opened_stores import OpenedStore, checked_spans, waiting_spans
from flows.dashboard.pages.model_page import champion_of
from flows.tell.paired import spans_of
from flows.tell.rendering.parts import Part, Table
from headway.errors import HeadwayError
from headway.messages import counted, size, when
from headway.storage.manifest import Manifest

_COLUMNS = ("span", "ingested", "rows read", "kept", "filtered", "rejected", "size", "in runs", "last run")
"""In this order, whichever the first span has."""


def spans_page(opened: OpenedStore, *, page: int = 1, pipeline: str = "") -> Page:
    """The spans of a pipeline, the newest first; by default of the one that ran last."""
    runs, slug = opened.index.runs(), opened.slug
    names = sorted({run.pipeline for run in runs})
    if pipeline not in names:
        pipeline = runs[0].pipeline if runs else ""
    newest: dict[str, tuple[str, str]] = {}
    uses: dict[str, int] = {}
    for run in runs:
        for span, fingerprint in run.ingested.items() if run.pipeline == pipeline else ():
            newest.setdefault(span, (fingerprint, run.run))
            uses[span] = uses.get(span, 0) + 1
    checked = {row.span: row for row in checked_spans(opened.store, pipeline)[0]} if pipeline else {}
    spans = sorted({*newest, *checked}, reverse=True)
    shown, note = paged(spans, page, slug, "spans", pipeline=pipeline)
    trained = _trained_on(opened, pipeline)
    rows = []
    for span in shown:
        row: dict[str, object] = {**dict.fromkeys(_COLUMNS, ""), "span": span}
        if span in newest:
            fingerprint, last = newest[span]
            row |= _counts(opened, fingerprint)
            row |= {"in runs": uses[span], "last run": link(last, address(slug, "runs", last))}
        else:
            read = checked[span].rows
            row |= {"rows read": read, "in runs": 0}
        row["champion"] = trained.get(span) or ("held against it" if span in checked else "")
        row["alarms"] = len(checked[span].alarms) or "" if span in checked else ""
        rows.append(row)
    said: list[str] = []
    if len(names) > 1:
        said.append(choices("pipeline", names, pipeline, slug, "spans"))
    said += waiting_spans(opened.store, pipeline) if pipeline else []
    if not rows:
        said.append("No span was ingested yet.")
    tables = [Table(f"Spans of {pipeline}", rows, note=note)] if rows else []
    heading = counted(len(spans), "span") + (f" of {pipeline}" if pipeline else "")
    return Page("Spans", heading, slug, "Spans", parts=[Part("Spans", said, tables=tables)], every=looks_every(runs))


def _trained_on(opened: OpenedStore, pipeline: str) -> dict[str, str]:
    """By span what the champion used it for."""
    champion, _ = champion_of(opened.registry(pipeline))
    if champion is None:
        return {}
    found = dict.fromkeys(spans_of(champion), "in its window")
    for key, word in (("train_parts", "trained on it"), ("eval_parts", "judged on it")):
        for part in champion.facts.get(key) or []:
            if isinstance(part, list) and part:
                found[str(part[0])] = word
    return found


def _counts(opened: OpenedStore, fingerprint: str) -> dict[str, object]:
    manifest: Manifest | None = None
    try:
        manifest = opened.store.find("ingest", fingerprint)
    except HeadwayError:
        return {"ingested": Markup('<span class="state red">damaged</span>')}
    if manifest is None:
        return {"ingested": "no longer in the store"}
    counts = manifest.counts
    row: dict[str, object] = {"ingested": when(manifest.created)}
    if counts is not None:
        row |= {"rows read": counts.read, "kept": counts.written, "filtered": counts.filtered}
        row |= {"rejected": counts.quarantined}
    return row | {"size": size(sum(entry.bytes for entry in manifest.files))}
