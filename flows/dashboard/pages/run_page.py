"""One run: how it ended and why, its steps, what it reports while it goes on."""

import time

from markupsafe import Markup

from flows.dashboard.layout import LIVE_SECONDS, Page, address, link
from flows.dashboard.opened_stores import OpenedStore
from flows.progress.step_progress import read_progress
from flows.records import RunRecord
from flows.tell.ending import ending_of
from flows.tell.material import Material
from flows.tell.rendering.parts import Part
from flows.tell.report_page import path_of
from flows.tell.sections.curves import loss_chart
from flows.tell.sections.scores import evaluation
from flows.tell.sections.stage_times import what_ran
from headway.messages import counted, duration, when, window_text

_TAIL = 14


def run_page(opened: OpenedStore, run: str) -> Page | None:
    """A run; None where there is none of this name."""
    record = opened.index.record(run)
    if record is None:
        return None
    slug, live, pipeline = opened.slug, record.going_on, record.pipeline
    parts = [
        _now(opened, record) if live else None,
        evaluation(Material(opened.store, record), drawn=False),
        what_ran(record),
        None if live else _log(opened, record),
        Part("Notes", points=list(map(str, record.notes))) if record.notes else None,
    ]
    path = path_of(opened.store, run)
    has_report = record.stages or path.name in opened.store.children(path.parent)
    facts: list[tuple[str, object]] = [("pipeline", link(pipeline, address(slug, "models", pipeline)))]
    if record.spans:
        facts.append((counted(len(record.spans), "span"), window_text(record.spans)))
    if record.version is not None:
        version = address(slug, "models", pipeline, "versions", record.version)
        facts.append(("version", link(f"v{record.version}", version)))
    facts += [("began", f"{when(record.started)} UTC"), ("for" if live else "took", duration(record.seconds))]
    facts += [("file", record.file)] if record.file else []
    return Page(
        f"run {run}",
        f"Run {run}",
        slug,
        "Runs",
        crumbs=[("Runs", address(slug, "runs"))],
        ending=ending_of(record),
        facts=facts,
        actions=[("Report with figures", address(slug, "runs", run, "report"))] if has_report else [],
        parts=[part for part in parts if part is not None],
        every=LIVE_SECONDS if live else 0,
    )


def _now(opened: OpenedStore, record: RunRecord) -> Part:
    """What a run that goes on does."""
    owner = opened.store.lock(f"run-{record.pipeline}").owner() or {}
    heard = f"at {owner['renewed'][11:19]} UTC" if owner.get("renewed") else "never"
    said: list[str] = [f"Process {owner.get('pid', '?')} on {owner.get('host', '?')}, last heard of {heard}."]
    lines = (opened.log(record.run) or "").splitlines()
    if not lines:
        return Part("Now", [*said, "Its log lies on the machine that it runs on."])
    steps = read_progress(opened.store, record.run)
    charts = [loss_chart(step.losses, f"Loss of {step.step} so far") for step in steps if len(step.losses) > 1]
    return Part("Now", [*said, *progress_of(opened, record.run)], charts, commands=_tail(lines))


def progress_of(opened: OpenedStore, run: str) -> list[Markup]:
    """Each step that runs: for how long, and how far it is."""
    bar = '<progress value="{}" max="{}" aria-label="{}"></progress> '
    found, now = list[Markup](), time.time()
    for it in read_progress(opened.store, run):
        shown = Markup(bar).format(f"{it.done:g}", f"{it.total:g}", f"{it.step}: {it.amount}") if it.total else ""
        took = f"{duration(max(now - it.began, 0.0))} so far"
        found.append(Markup("{}{}: {}").format(shown, it.step, ", ".join(filter(None, [it.words(), took]))))
    return found


def _tail(lines: list[str]) -> list[str]:
    return [line[11:19] + line[24:] for line in lines[-_TAIL:]]


def _log(opened: OpenedStore, record: RunRecord) -> Part:
    lines = (opened.log(record.run) or "").splitlines()
    if not lines:
        return Part("Log", ["This run has no log."])
    whole = link("the whole log", address(opened.slug, "runs", record.run, "log"))
    said = Markup("{}: {}.").format(f"The last of {counted(len(lines), 'line')}", whole)
    return Part("Log", [said], commands=_tail(lines))
