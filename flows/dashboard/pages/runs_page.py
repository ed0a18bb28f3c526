"""The list of a store's runs, searched and sorted, a page at a time; some of them are chosen to be compared."""

import math
from collections.abc import Callable
from typing import Any

from markupsafe import Markup

from flows.dashboard.layout import Page, Search, address, choices, link, looks_every, paged, state_cell
from flows.dashboard.opened_stores import OpenedStore
from flows.dashboard.pages.model_page import version_link
from flows.records import RunRecord, State
from flows.tell.ending import ending_of
from flows.tell.rendering.parts import Part, Table
from headway.messages import counted, duration, when, window_text
from headway.tasks.table import direction

SORTS: dict[str, Callable[[RunRecord], float]] = {
    "longest": lambda run: -run.seconds,
    "most steps run": lambda run: -run.begun,
}
"""By what runs are sorted, beside the newest first and BEST."""
BEST = "best"
"""The level of the metric that decides; only where one metric decided all of the runs, in one pipeline."""


def runs_page(
    opened: OpenedStore, *, page: int = 1, pipeline: str = "", state: str = "", search: str = "", sort: str = ""
) -> Page:
    """A page of the runs.

    Args:
        pipeline, state: leave out the runs of others; empty: none.
        search: words that all stand somewhere in a row: part of a run's name, a span, a version, the error.
        sort: one of SORTS, or BEST; empty: the newest first.
    """
    everything, slug = opened.index.runs(), opened.slug
    pipelines = sorted({run.pipeline for run in everything})
    words = {run.run: ending_of(run).word for run in everything}
    states = sorted(set(words.values()))
    runs = [run for run in everything if pipeline in ("", run.pipeline) and state in ("", words[run.run])]
    words_wanted = search.casefold().split()
    runs = [run for run in runs if all(word in _searched(run, words[run.run]) for word in words_wanted)]
    best, by = _best_first(runs)
    if sort == BEST:
        runs = best
    elif sort in SORTS:
        runs = sorted(runs, key=SORTS[sort])
    asked: dict[str, Any] = {"pipeline": pipeline, "state": state, "search": search, "sort": sort}
    shown, note = paged(runs, page, slug, "runs", **asked)
    listed = [(run, run_row(opened, run, several=len(pipelines) > 1)) for run in shown]
    rows = [{"run": row["run"], "compare": _tick(run)} | row for run, row in listed]
    named = {"state": ["", *states], "pipeline": ["", *pipelines], "sort": ["", *SORTS] + [BEST] * bool(by)}
    chosen = [
        choices(key, names, asked[key], slug, "runs", none="newest" if key == "sort" else "all", **_but(asked, key))
        for key, names in named.items()
        if len(names) > 2 or asked[key]
    ]
    told = by or "These runs have no metric in common that decided: choose a pipeline to have the best first."
    head = [*chosen, *([told] if sort == BEST else [])]
    said = counted(len(runs), "run") + (f" of {len(everything):,}" if len(runs) < len(everything) else "")
    tables = [Table("Runs", rows, note=note)] if rows else []
    part = Part("Runs", head if rows else [*head, "There is none."], tables=tables)
    forms = [
        Search(address(slug, "runs"), "Search", "search", search, _but(asked, "search")),
        Search(address(slug, "compare"), "Compare the ticked runs", id="compare"),
    ]
    return Page("Runs", said, slug, "Runs", parts=[part], searches=forms, every=looks_every(everything))


def _but(asked: dict[str, str], key: str) -> dict[str, str]:
    return {name: value for name, value in asked.items() if name != key}


def _searched(run: RunRecord, word: str) -> str:
    """What a search looks in."""
    version = "" if run.version is None else f"v{run.version}"
    return " ".join([run.run, run.pipeline, word, version, *run.spans, run.error or ""]).casefold()


def _tick(run: RunRecord) -> Markup:
    box = Markup('<input type="checkbox" name="run" value="{0}" form="compare" aria-label="compare {0}">')
    return box.format(run.run) if run.metrics else Markup("")


def _best_first(runs: list[RunRecord]) -> tuple[list[RunRecord], str]:
    """The runs by the metric that decided, and a sentence on it; as they are and "" where not the same one decided them all."""
    decided = {(run.pipeline, *_decided(run)) for run in runs if _decided(run)[0]}
    if len(decided) != 1:
        return runs, ""
    ((_, metric, sign),) = decided
    found = sorted(runs, key=lambda run: -sign * (run.metrics[metric] or 0) if _decided(run)[0] else math.inf)
    return found, f"Best first by {metric}, each run's own level: the eval rows of two runs may differ."


def _decided(run: RunRecord) -> tuple[str, int]:
    """(The metric that decided, 1 if more of it is better and -1 if less); ("", 0) where a run judged no candidate."""
    verdict = run.verdict
    # a run that judged nothing may have the metrics of the champion
    metric = None if verdict is None or run.state == State.ALREADY else verdict.primary
    if verdict is None or metric is None or run.metrics.get(metric) is None:
        return "", 0
    return metric, direction(metric, verdict.better)


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
        "began": Markup("<time>{}</time>").format(when(run.started)),
        "took": duration(run.seconds),
        "steps run": f"{run.begun} of {len(run.stages) + len(run.broken_off)}",
    }
