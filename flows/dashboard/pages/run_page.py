"""One run: how it ended and why, its steps, what it reports while it goes on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from flows.dashboard.layout import LIVE_SECONDS, Page, address, link, when
from flows.dashboard.opened_stores import OpenedStore
from flows.dashboard.pages.time_charts import DRAWING
from flows.records import RunRecord
from flows.tell.ending import checks_table, ending_of
from flows.tell.parts import Part
from flows.tell.report_page import path_of
from flows.tell.sections.evaluation_tables import metric_table
from flows.tell.sections.stage_times import what_ran
from headway.messages import counted, duration, window_text

_TAIL = 14
_PROGRESS = re.compile(r"^ +(?P<step>\S.*?): (?P<done>[\d,]+) of (?P<total>[\d,]+) ")
"""A line of progress, as `flows.progress.terminal` writes it."""


def run_page(opened: OpenedStore, run: str) -> Page | None:
    """A run; None where there is none of this name."""
    record = opened.index.record(run)
    if record is None:
        return None
    slug, live = opened.slug, record.going_on
    pipeline = record.pipeline
    ending = ending_of(record)
    parts = [_now(opened, record)] if live else []
    with DRAWING:
        parts.append(what_ran(record))
    if record.metrics:
        table = metric_table({"metrics": record.metrics, "baselines": record.baselines}, "Metrics")
        parts.insert(-1, Part("Metrics", ["Of the candidate on the eval rows."], tables=[table]))
    if ending.checks:
        parts.insert(-1, Part("Checks of the gate", tables=[checks_table(ending.checks)]))
    if not live:
        parts.append(_log(opened, record))
    if record.notes:
        parts.append(Part("Notes", [str(note) for note in record.notes]))
    actions = [("Report with figures", address(slug, "runs", run, "report"))] if _has_report(opened, record) else []
    facts: list[tuple[str, Any]] = [("pipeline", link(pipeline, address(slug, "models", pipeline)))]
    if record.spans:
        facts.append((counted(len(record.spans), "span"), window_text(record.spans)))
    if record.version is not None:
        version = address(slug, "models", pipeline, "versions", record.version)
        facts.append(("version", link(f"v{record.version}", version)))
    facts += [("began", f"{when(record.started)} UTC"), ("for" if live else "took", duration(record.seconds))]
    if record.file:
        facts.append(("file", record.file))
    return Page(
        f"run {run}",
        f"Run {run}",
        slug,
        "Runs",
        crumbs=[("Runs", address(slug, "runs"))],
        ending=ending,
        facts=facts,
        actions=actions,
        parts=parts,
        every=LIVE_SECONDS if live else 0,
    )


def _has_report(opened: OpenedStore, record: RunRecord) -> bool:
    path = path_of(opened.store, record.run)
    return path.name in opened.store.children(path.parent) or bool(record.stages)


def _now(opened: OpenedStore, record: RunRecord) -> Part:
    """What a run that goes on does."""
    owner = opened.store.lock(f"run-{record.pipeline}").owner() or {}
    said = [f"Process {owner.get('pid', '?')} on {owner.get('host', '?')}, last heard of {when_exactly(owner)}."]
    lines = (opened.log(record.run) or "").splitlines()
    if not lines:
        said.append("Its log lies on the machine that it runs on.")
        return Part("Now", said)
    bar = progress_of(opened, record.run)
    return Part("Now", [*said, *([bar] if bar else [])], commands=[line[11:19] + line[24:] for line in lines[-_TAIL:]])


def when_exactly(owner: Mapping[str, Any]) -> str:
    renewed = str(owner.get("renewed", ""))
    return f"at {renewed[11:19]} UTC" if renewed else "never"


def progress_of(opened: OpenedStore, run: str) -> Markup | str:
    """How far the step that runs is, as its last line of progress says; empty before there is one."""
    lines = [line[25:] for line in (opened.log(run) or "").splitlines()]
    last = next((line for line in reversed(lines) if line.strip()), "")
    found = _PROGRESS.match(last)
    if found is None:
        return last.strip()[:80]
    done, total = (int(found[name].replace(",", "")) for name in ("done", "total"))
    bar = '<progress value="{}" max="{}" aria-label="{}"></progress> {}'
    return Markup(bar).format(done, max(total, 1), f"{found['step']}: {done:,} of {total:,}", last.strip())


def _log(opened: OpenedStore, record: RunRecord) -> Part:
    text = opened.log(record.run)
    if not text:
        return Part("Log", ["This run has no log."])
    lines = text.splitlines()
    whole = link("the whole log", address(opened.slug, "runs", record.run, "log"))
    shown = "\n".join(line[11:19] + line[24:] for line in lines[-_TAIL:])
    said = Markup("{}: {}.").format(f"The last of {counted(len(lines), 'line')}", whole)
    return Part("Log", [said], commands=[shown])
