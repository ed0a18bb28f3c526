"""The list of a store's runs, newest first, a page at a time."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from flows.dashboard.layout import IDLE_SECONDS, LIVE_SECONDS, Page, address, link, paged, pager, state_cell, when
from flows.dashboard.opened_stores import OpenedStore
from flows.dashboard.run_index import ListedRun
from flows.tell.parts import Part, Table
from headway.messages import counted, duration, metrics_line, number, window_text


def runs_page(opened: OpenedStore, *, page: int = 1, pipeline: str = "", state: str = "") -> Page:
    """A page of the runs.

    Args:
        pipeline, state: leave out the runs of others; empty: none.
    """
    everything, slug = opened.index.runs(), opened.slug
    pipelines = sorted({run.pipeline for run in everything})
    states = sorted({str(run.state) for run in everything})
    runs = [run for run in everything if pipeline in ("", run.pipeline) and state in ("", run.state)]
    shown, page, pages = paged(runs, page)
    rows = [run_row(slug, run, several=len(pipelines) > 1) for run in shown]
    choices = [_choices("state", slug, states, state, pipeline=pipeline)] if len(states) > 1 or state else []
    choices += [_choices("pipeline", slug, pipelines, pipeline, state=state)] if len(pipelines) > 1 else []
    note = pager(page, pages, slug, "runs", pipeline=pipeline, state=state)
    said = counted(len(runs), "run") + (f" of {len(everything):,}" if len(runs) < len(everything) else "")
    table = [Table("Runs", rows, note=note)] if rows else []
    sentences = choices if rows else [*choices, "There is none."]
    part = Part("Runs", sentences, tables=table)
    every = LIVE_SECONDS if any(run.state == "running" for run in everything) else IDLE_SECONDS
    return Page("Runs", said, slug, "Runs", parts=[part], every=every)


def _choices(key: str, slug: str, names: list[str], chosen: str, **others: str) -> Markup:
    """Links that leave only some runs in the list."""
    links = [
        Markup("<b>{}</b>").format(name or "all")
        if name == chosen
        else link(name or "all", address(slug, "runs", **{key: name}, **others))
        for name in ("", *names)
    ]
    return Markup('<span class="choices">{}: {}</span>').format(key, Markup(" ").join(links))


def run_row(slug: str, run: ListedRun, *, several: bool) -> dict[str, Any]:
    """A run as a row of a list.

    Args:
        several: whether runs of several pipelines stand in it.
    """
    primary = run.verdict.primary if run.verdict else None
    value = run.metrics.get(str(primary))
    metrics = metrics_line(run.metrics).split(", ")[0]
    row: dict[str, Any] = {"run": link(run.run, address(slug, "runs", run.run))}
    row |= {"pipeline": link(run.pipeline, address(slug, "models", run.pipeline))} if several else {}
    version = run.version
    return row | {
        "state": state_cell(run),
        "version": link(f"v{version}", address(slug, "models", run.pipeline, "versions", version))
        if version is not None
        else "",
        "metric": f"{primary} {number(value)}" if value is not None else metrics,
        "window": window_text(run.spans),
        "began": when(run.started),
        "took": duration(run.seconds),
        "steps run": f"{run.steps_ran} of {run.steps}",
    }
