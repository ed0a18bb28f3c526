"""Runs beside each other: metrics where they are of the same rows, settings that differ, curves, how long each step took."""

import json
from collections.abc import Iterator, Sequence

from flows.dashboard.layout import Page, address
from flows.dashboard.opened_stores import OpenedStore
from flows.dashboard.pages.runs_page import run_row
from flows.records import RunRecord
from flows.tell.comparison.compared import differences
from flows.tell.comparison.comparison_page import setting_text
from flows.tell.comparison.sides import whole
from flows.tell.material import Material
from flows.tell.paired import rows_in_words
from flows.tell.rendering.cells import Row
from flows.tell.rendering.parts import Part, Table
from flows.tell.sections.curves import Training, trainings
from headway.messages import counted, duration, window_text
from headway.messages import some as some_of

MOST = 12
"""Runs beside each other."""
_TOLD = ("run", "state", "on the same rows", "window", "began", "took")
"""What is told of each run, as lists of runs have it."""


def compare_page(opened: OpenedStore, names: Sequence[str]) -> Page | None:
    """Some runs, the first of them on the left; None where one is not there."""
    found = [opened.index.record(name) for name in dict.fromkeys(names)][:MOST]
    records = [record for record in found if record is not None]
    if len(records) < len(found):
        return None
    slug, crumbs = opened.slug, [("Runs", address(opened.slug, "runs"))]
    if len(records) < 2:
        return Page("Compare", "Tick two runs or more, then compare them", slug, "Runs", crumbs, every=0)
    runs = [Material(opened.store, record) for record in records]
    parts = [_ends(opened, records), _metrics(runs), _settings(records), *_curves(runs), _steps(records)]
    title = f"{counted(len(records), 'run')} beside each other"
    title += f", the first of {asked} that are ticked" if (asked := len(set(names))) > MOST else ""
    return Page("Compare", title, slug, "Runs", crumbs, parts=parts, every=0)


def _ends(opened: OpenedStore, records: Sequence[RunRecord]) -> Part:
    listed = [run_row(opened, run, several=False) for run in records]
    rows = [{name: row[name] for name in _TOLD} for row in listed]
    two = [f"headway compare {' '.join(run.run for run in records)}"] if len(records) == 2 else []
    said = "Of two runs, this prints the differences with their intervals:" if two else ""
    return Part("Runs", [said] if said else [], tables=[Table("Runs", rows)], commands=two)


def _metrics(runs: Sequence[Material]) -> Part:
    """A table for each set of eval rows."""
    together: dict[str, list[Material]] = {}
    without = [run.record.run for run in runs if not run.record.metrics]
    for run in (run for run in runs if run.record.metrics):
        rows = run.key("evaluate").get("inputs", {}).get("examples") or run.record.run  # alone, where it is not known
        together.setdefault(json.dumps(rows, sort_keys=True), []).append(run)
    several = (
        "Metrics are compared on the same rows alone, so runs that were judged on others stand in a table of their own."
    )
    tables = []
    for some in together.values():
        measured = some[0].measured
        on = rows_in_words(measured.spans if measured else ())
        names = dict.fromkeys(name for run in some for name in run.record.metrics)
        rows = [{"metric": name} | {run.record.run: run.record.metrics.get(name) for run in some} for name in names]
        tables.append(Table(f"On {on}: {some_of([run.record.run for run in some], 2)}", rows))
    said = [several] if len(together) > 1 else []
    return Part("Metrics", said + [f"Without metrics: {', '.join(without)}."] * bool(without), tables=tables)


def _settings(records: Sequence[RunRecord]) -> Part:
    """What pipeline.yaml, --set and the automatic choices had that differs."""
    settings = [{each.key: each.b for each in differences({}, _chosen(record))} for record in records]
    rows: list[Row] = []
    for key in dict.fromkeys(key for each in settings for key in each):
        unknown = [key not in each and _not_chosen(run, key) for run, each in zip(records, settings, strict=True)]
        values = [each.get(key) for each in settings]
        known = [value for value, not_known in zip(values, unknown, strict=True) if not not_known]
        if any(value != known[0] for value in known):
            texts = ["unknown" if no else setting_text(value) for value, no in zip(values, unknown, strict=True)]
            rows.append({"key": key} | {run.run: text for run, text in zip(records, texts, strict=True)})
    if not rows:
        return Part("Settings", ["The settings are the same."])
    return Part("Settings", tables=[Table("Settings that differ", rows)])


def _not_chosen(record: RunRecord, key: str) -> bool:
    """Whether a run ended before it had chosen what it leaves out, as the steps of a training."""
    return record.config is None or (
        record.training is None and key.split(".")[0] in ("training", "model", "train rows")
    )


def _chosen(record: RunRecord) -> dict[str, object]:
    """The config with its defaults, and the values that were chosen for what it leaves out."""
    chosen, config = record.training, record.config or {}
    return {
        **(whole(record.config) or {}),
        **(
            {"training": chosen.training, "model": chosen.model, "train rows": chosen.rows}
            if chosen
            else {key: config.get(key) for key in ("training", "model")}
        ),
        "seed": record.seed,
        "spans": window_text(record.spans),
    }


def _curves(runs: Sequence[Material]) -> Iterator[Part]:
    found = [Training(run.record.run, run, "train") for run in runs if "train" in run.outputs]
    if found:
        yield trainings(found, ["Curves of the first three."] if len(found) > 3 else [])


def _steps(records: Sequence[RunRecord]) -> Part:
    titles = dict.fromkeys(step.title for run in records for step in run.stages)
    rows: list[Row] = []
    for title in titles:
        steps = {run.run: next((step for step in run.stages if step.title == title), None) for run in records}
        texts = {run: "" if s is None else "reused" if s.cached else duration(s.seconds) for run, s in steps.items()}
        rows.append({"step": title} | texts)
    return Part("Steps", tables=[Table("How long each step took", rows)])
