"""The list of a store's runs, newest first, a page at a time."""

from flows.dashboard.layout import Page, address, choices, link, looks_every, paged, state_cell
from flows.dashboard.opened_stores import OpenedStore
from flows.dashboard.pages.model_page import version_link
from flows.records import RunRecord
from flows.tell.ending import ending_of
from flows.tell.rendering.parts import Part, Table
from headway.messages import counted, duration, when, window_text


def runs_page(opened: OpenedStore, *, page: int = 1, pipeline: str = "", state: str = "") -> Page:
    """A page of the runs.

    Args:
        pipeline, state: leave out the runs of others; empty: none.
    """
    everything, slug = opened.index.runs(), opened.slug
    pipelines = sorted({run.pipeline for run in everything})
    words = {run.run: ending_of(run).word for run in everything}
    states = sorted(set(words.values()))
    runs = [run for run in everything if pipeline in ("", run.pipeline) and state in ("", words[run.run])]
    shown, note = paged(runs, page, slug, "runs", pipeline=pipeline, state=state)
    rows = [run_row(opened, run, several=len(pipelines) > 1) for run in shown]
    chosen = (
        [choices("state", ["", *states], state, slug, "runs", pipeline=pipeline)] if len(states) > 1 or state else []
    )
    if len(pipelines) > 1:
        chosen.append(choices("pipeline", ["", *pipelines], pipeline, slug, "runs", state=state))
    said = counted(len(runs), "run") + (f" of {len(everything):,}" if len(runs) < len(everything) else "")
    part = (
        Part("Runs", chosen, tables=[Table("Runs", rows, note=note)])
        if rows
        else Part("Runs", [*chosen, "There is none."])
    )
    return Page("Runs", said, slug, "Runs", parts=[part], every=looks_every(everything))


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
