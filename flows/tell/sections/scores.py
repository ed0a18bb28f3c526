"""The evaluation: metrics with their intervals beside the champion's, figures, and what no one number says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from flows.dag.step import Output
from flows.records import State
from flows.tell.figures import score_charts
from flows.tell.figures.drawing import BAD, FIRST, GOOD, MUTED, short
from flows.tell.figures.strips import Strips
from flows.tell.material import Material
from flows.tell.paired import eval_spans, judged_spans, rows_in_words
from flows.tell.parts import Chart, Part, Table
from flows.tell.sections.evaluation_tables import (
    importance_table,
    interval_text,
    metric_rows,
    metric_table,
    threshold_table,
)
from flows.tell.sections.slice_harm import slices
from headway.errors import HeadwayError
from headway.evaluation.further_labels import split_name
from headway.evaluation.gate_checks import read_predictions
from headway.evaluation.metrics import rows_of
from headway.evaluation.verdict import BETTER, Check, Verdict
from headway.messages import counted, listed, number, signed, window_text
from headway.metrics.base import Rows
from headway.metrics.ranking import RANKED as RANKING
from headway.metrics.tables import CURVES
from headway.registry.registry import Registry
from headway.tasks.table import direction, task_of

_MOST_BYTES = 24 << 20
"""Of predictions that are read for figures: about a million rows, half a second."""
_MOST_CLASSES, _MOST_PAIRS, _MOST_ROWS = 12, 20, 60


def evaluation(material: Material, *, drawn: bool = True) -> Part | None:
    """The part on the evaluation; None of a run that has none.

    Args:
        drawn: with figures.
    """
    measured, verdict = material.result("measure"), material.verdict
    if not measured:
        return _of_record(material)
    whose = verdict.champion.name if verdict and verdict.champion else "the champion"
    part = measured_part(measured, verdict, whose, spans=judged_spans(material.store, material.record))
    sentences = [*part.sentences, *_ranked(material.key("measure"), measured), *_tested(material)]
    charts = list(_charts(material, measured, whose)) if drawn else []
    if drawn and not charts and ":" in measured["task"]:
        sentences.append(
            f"There are no curves: only your code knows what a prediction of {measured['task']} means; its metrics judge it."
        )
    return Part("Evaluation", sentences, charts, [*part.tables, *_importance(material)])


def measured_part(
    measured: Mapping[str, Any],
    verdict: Verdict | None = None,
    whose: str = "the champion",
    *,
    split: str = "eval",
    spans: Sequence[str] = (),
) -> Part:
    """The tables of an evaluation.

    Args:
        measured: the result of the measuring stage.
        verdict: the gate's, where it is known.
        whose: what `champion` in the tables is called.
        spans: that the rows are of, where that is known.
    """
    unseen = ", which the training did not see" if split == "eval" else ""
    of = f" of {window_text(spans)}" if spans else f" of the {split} split"
    sentences = [f"On {counted(measured['rows'], f'{split} row' if spans else 'row')}{of}{unseen}."]
    sentences += [f"Intervals: {measured[key]}." for key in ("drawn_by", "few_rows") if measured.get(key)]
    tables = [_metrics(measured, verdict, whose), *_threshold(measured), *slices(measured, verdict, whose)]
    return Part(
        "Evaluation" if split == "eval" else f"Evaluation on the {split} split",
        sentences,
        tables=[*tables, *_others(measured)],
    )


def _of_record(material: Material) -> Part | None:
    """The metrics that a run's record has: of a model that another run evaluated, or of an evaluation that is gone."""
    record = material.record
    if not record.metrics:
        return None
    table = metric_table({"metrics": record.metrics, "baselines": record.baselines}, "Metrics")
    said = f"On {rows_in_words(judged_spans(material.store, record))}, as the run's record has it."
    if record.state == State.ALREADY:
        said = (
            f"This run evaluated nothing: these are the champion's metrics, on {rows_in_words(_champions(material))}."
        )
    return Part("Evaluation", [said], tables=[table])


def _champions(material: Material) -> Sequence[str]:
    """The spans whose rows the champion that a run found was judged on."""
    record = material.record
    try:
        return eval_spans(Registry(material.store, record.pipeline).version(record.version or 0))
    except HeadwayError:  # it is damaged
        return ()


def _ranked(settings: Mapping[str, Any], measured: Mapping[str, Any]) -> list[str]:
    """What the metrics of a ranking look at."""
    at, names = settings.get("ndcg_at"), [name for name in RANKING if name in measured["metrics"]]
    if at is None or not names:
        return []
    group = settings.get("group")
    return [
        f"The order of the rows of one {group} is judged by {listed(names)}, on its first {at} ranks; 1 is the best."
    ]


def _tested(material: Material) -> list[str]:
    tested = material.result("measure test")
    if not tested:
        return []
    values = ", ".join(f"{row['metric']} {row['value']}" for row in metric_rows(tested)[:4])
    return [f"On the {counted(tested['rows'], 'row')} of the test split, which decide nothing: {values}."]


# --- metrics


def _metrics(measured: Mapping[str, Any], verdict: Verdict | None, whose: str) -> Table:
    percent = f"{100 * measured['confidence']:.4g}% interval"
    compared = {str(check.metric): check for check in verdict.compared()} if verdict else {}
    primary = verdict.primary if verdict else None
    pictures = dict(zip(compared, _differences(list(compared.values())), strict=True))
    rows = []
    # the metric that decides comes first
    for row in sorted(metric_rows(measured), key=lambda row: row["metric"] != primary):
        name = row["metric"]
        cells = {"metric": name, "candidate": row["value"], percent: row["interval"]}
        if "champion" in row:
            cells[whose] = row["champion"]
        if name in compared:
            each = compared[name]
            cells["difference"] = signed(each.change)
            cells["its interval"] = interval_text(each.interval)
            cells["which is"] = each.outcome
            cells["in tolerances"] = pictures[name]
        others = {other: row[other] for other in measured.get("baselines") or {} if other != "champion"}
        rows.append(cells | others)
    note = ""
    if compared:
        note = "In tolerances: the difference and its interval, better to the right; the middle line is no difference, the "
        note += "left one the tolerance, beyond which a candidate is blocked; what is beyond three tolerances stands at the edge."
    # the champion's and the differences before the baselines, whichever row has them first
    order = ["metric", "candidate", percent, whose, "difference", "its interval", "which is", "in tolerances"]
    rows = [{name: row.get(name, "") for name in dict.fromkeys([*order, *row])} for row in rows]
    return Table("Metrics", rows, note)


def _differences(compared: list[Check]) -> list[Any]:
    """A picture of each difference, in units of its tolerance."""
    strips = Strips(len(compared), limits=(-3, 3), height=16)
    for row, each in enumerate(compared):
        strips.box(row, -0.015, 0.015, MUTED, low=0, high=1, alpha=0.5)
        strips.box(row, -1.015, -0.985, BAD, low=0.1, high=0.9, alpha=0.6)
        if each.interval is None or each.change is None or not each.allowed:
            continue
        sign = direction(split_name(str(each.metric))[1], each.better)
        low, at, high = sorted(_within(sign * value / each.allowed) for value in (*each.interval, each.change))
        colour = GOOD if each.outcome == BETTER else FIRST if each.passed else BAD
        strips.box(row, low, high, colour, low=0.42, high=0.58, alpha=0.6)
        strips.box(row, at - 0.06, at + 0.06, colour, low=0.25, high=0.75)
    return strips.svgs()


def _within(tolerances: float) -> float:
    return min(max(tolerances, -2.94), 2.94)


def _threshold(measured: Mapping[str, Any]) -> Iterator[Table]:
    if (threshold := measured.get("threshold")) is not None:
        table = threshold_table(threshold)
        kept = ("metric", "value", "interval")
        yield replace(table, rows=[{name: row[name] for name in kept} for row in table.rows])


# --- figures


def _charts(material: Material, measured: Mapping[str, Any], whose: str) -> Iterator[Chart]:
    tables, task = measured.get("tables") or {}, measured["task"]
    key = material.key("measure").get("inputs", {})
    ours = _scored(material, key.get("predictions"), task)
    theirs = _scored(material, (key.get("beside") or {}).get("champion"), task)
    named = {table.name: table for table in task_of(task).tables} if ":" not in task else {}
    champion = {}
    if theirs is not None:
        champion = {name: named[name].on(theirs) for name in tables if name in score_charts.DRAWN and name in named}
    names = score_charts.Names("candidate", whose)
    yield from score_charts.charts_of(tables, champion, names)
    if ours is None or ours.prediction.ndim > 1 or not ours.known or not ours.total:
        return
    if "roc" in tables:
        yield score_charts.scores(ours)
    elif "residuals" in tables:
        yield score_charts.errors(ours, theirs, names)


def _scored(material: Material, fingerprint: str | None, task: str) -> Rows | None:
    """The rows that an evaluation scored; None where they are gone, too many, or of a task of the user's own."""
    output: Output | None = next((o for o in material.outputs.values() if o.fingerprint == fingerprint), None)
    name = (output.result or {}).get("predictions") if output is not None else None
    if output is None or name is None or ":" in task:
        return None
    size = next((entry.bytes for entry in material.manifests[output.title].files if entry.path == name), 0)
    path = material.file(output.title, name) if size <= _MOST_BYTES else None
    if path is None:
        return None
    try:
        return rows_of(read_predictions(path, ()), task)
    except HeadwayError:
        return None


# --- tables


def _importance(material: Material) -> Iterator[Table]:
    result = material.result("importance")
    if not result.get("columns"):
        return
    table = importance_table(result)
    rows, each = table.rows[:_MOST_ROWS], result["columns"][:_MOST_ROWS]
    highest = max([1e-12, *((c["interval"] or [0, c["permuted"] or 0.0])[1] for c in each)])
    strips = Strips(len(rows), limits=(0, highest), height=14)
    for row, column in enumerate(each):
        strips.box(row, 0, max(column["permuted"] or 0.0, 0.0), FIRST)
    pictures = strips.svgs()
    shown = [
        {"column": short(row["column"], 60), "harm": picture, **{k: v for k, v in row.items() if k != "column"}}
        for row, picture in zip(rows, pictures, strict=True)
    ]
    yield replace(table, rows=shown)


def _others(measured: Mapping[str, Any]) -> Iterator[Table]:
    """The tables that are not drawn."""
    tables = measured.get("tables") or {}
    if tables.get("confusion"):
        yield _confusion(tables["confusion"])
    titles = measured.get("titles") or {}
    for name, columns in tables.items():
        if columns and split_name(name)[1] not in CURVES and name != "confusion":
            rows = [
                {
                    key: short(value, 60) if key == "class" else _cell(value)
                    for key, value in zip(columns, row, strict=True)
                }
                for row in zip(*columns.values(), strict=True)
            ]
            title = titles.get(name, name)
            yield Table(title[:1].upper() + title[1:], rows[:_MOST_ROWS], folded=name not in ("per_class",))


def _confusion(columns: Mapping[str, list[Any]]) -> Table:
    labels = list(dict.fromkeys([*columns["label"], *columns["predicted"]]))
    weight = dict(zip(zip(columns["label"], columns["predicted"], strict=True), columns["rows"], strict=True))
    if len(labels) > _MOST_CLASSES:
        wrong = sorted(((n, pair) for pair, n in weight.items() if pair[0] != pair[1]), key=lambda each: -each[0])
        rows = [
            {"label": short(a, 40), "predicted": short(b, 40), "rows": f"{n:,}"} for n, (a, b) in wrong[:_MOST_PAIRS]
        ]
        return Table("The classes that are confused most", rows)
    labels = sorted(labels, key=lambda label: (isinstance(label, str), label))
    rows, shades = [], []
    for label in labels:
        counts = {f"predicted {short(other)}": weight.get((label, other), 0) for other in labels}
        total = max(sum(counts.values()), 1)
        rows.append({"label": short(label), **{name: f"{count:,}" for name, count in counts.items()}})
        shades.append({name: count / total for name, count in counts.items()})
    return Table(
        "Confusion matrix",
        rows,
        "Rows by label and predicted class; shaded by the share of the label's rows.",
        shades=shades,
    )


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, float):
        return number(value) if np.isfinite(value) else str(value)
    return f"{value:,}" if isinstance(value, int) else short(value, 60)
