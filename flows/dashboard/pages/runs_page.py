"""The list of a store's runs, newest first, a page at a time."""

from __future__ import annotations

from markupsafe import Markup

from flows.dashboard.layout import IDLE_SECONDS, LIVE_SECONDS, Page, address, link, paged, state_cell, when
from flows.dashboard.opened_stores import OpenedStore
from flows.dashboard.pages.model_page import version_link
from flows.records import RunRecord
from flows.tell.rendering.parts import Part, Table
from headway.messages import counted, duration, window_text


def runs_page(opened: OpenedStore, *, page: int = 1, pipeline: str = "", state: str = "") -> Page:
    """A page of the runs.

    Args:
        pipeline, state: leave out the runs of others; empty: none.
    """
    everything, slug = opened.index.runs(), opened.slug
    pipelines = sorted({run.pipeline for run in everything})
    states = sorted({str(run.state) for run in everything})
    runs = [run for run in everything if pipeline in ("", run.pipeline) and state in ("", run.state)]
    shown, note = paged(runs, page, slug, "runs", pipeline=pipeline, state=state)
    rows = [run_row(opened, run, several=len(pipelines) > 1) for run in shown]
    choices = [_choices("state", slug, states, state, pipeline=pipeline)] if len(states) > 1 or state else []
    choices += [_choices("pipeline", slug, pipelines, pipeline, state=state)] if len(pipelines) > 1 else []
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


def run_row(opened: OpenedStore, run: RunRecord, *, several: bool) -> dict[str, object]:
    """A run as a row of a list.

    Args:
        several: whether runs of several pipelines stand in it.
    """
    slug, model, version = opened.slug, run.pipeline, run.version
    change, level = opened.run_texts(run)
    row: dict[str, object] = {"run": link(run.run, address(slug, "runs", run.run))}
    row |= {"pipeline": link(model, address(slug, "models", model))} if several else {}
    return row | {
        "state": state_cell(run),
        "version": version_link(slug, model, version) if version is not None else "",
        "on the same rows": change,
        "its own level": level,
        "window": window_text(run.spans),
        "began": when(run.started),
        "took": duration(run.seconds),
        "steps run": f"{len(run.ran)} of {len(run.stages)}",
    }
