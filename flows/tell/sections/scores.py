"""The evaluation: metrics with their intervals beside the champion's, figures, and what no one number says."""

from collections.abc import Iterator, Mapping
from typing import Any

from flows.records import State
from flows.tell.figures import score_charts
from flows.tell.figures.drawing import one_line
from flows.tell.material import Material
from flows.tell.metric_tables import metric_table, rows_of, threshold_table, values_of
from flows.tell.paired import judged_spans, rows_in_words, spans_in
from flows.tell.rendering.parts import Chart, Part
from flows.tell.rendering.tables import Table
from flows.tell.sections.confusion import confusion_tables, decided_by, weighted
from flows.tell.sections.slices import slices
from flows.tell.sections.thresholds import thresholds
from flows.tell.sections.what_matters import dependence, importance
from flows.tell.sections.worst_rows import worst_rows
from headway.errors import HeadwayError
from headway.evaluation import metrics
from headway.evaluation.gate_checks import read_predictions
from headway.evaluation.results.measured import Measured
from headway.evaluation.verdict import Verdict
from headway.messages import capital, listed, metric_text, sentence
from headway.metrics.base import Rows
from headway.metrics.ranking import RANKED as RANKING
from headway.metrics.tables import CONFUSION, CURVES, PER_CLASS
from headway.registry.registry import Registry
from tfcore.evaluation.results import Evaluated

_MOST_BYTES = 24 << 20
"""Of predictions that are read for figures: about a million rows, half a second."""
_MOST_ROWS = 60


def evaluation(material: Material, *, drawn: bool = True) -> Part | None:
    """The part on the evaluation; None of a run that has none.

    Args:
        drawn: with figures.
    """
    measured, verdict = material.measured, material.verdict
    if measured is None:
        return _of_record(material)
    whose = verdict.champion.name if verdict and verdict.champion else "the champion"
    part = measured_part(measured, verdict, whose)
    sentences = [*part.sentences, *_ranked(material, measured), *_tested(material)]
    charts = list(_charts(material, measured, whose)) if drawn else []
    if drawn and not charts and ":" in measured.task:
        sentences.append(
            f"There are no curves: only your code knows what a prediction of {measured.task} means; its metrics judge it."
        )
    panels = list(dependence(material)) if drawn else []
    return Part(
        "Evaluation", sentences, charts, [*part.tables, *thresholds(material), *importance(material)], panels=panels
    )


def measured_part(
    measured: Measured, verdict: Verdict | None = None, whose: str = "the champion", *, split: str = "eval"
) -> Part:
    """The tables of an evaluation.

    Args:
        verdict: the gate's, where it is known.
        whose: what `champion` in the tables is called.
    """
    unseen = ", which the training did not see" if split == "eval" else ""
    sentences = [f"On {rows_of(measured.rows, measured.spans, split)}{unseen}."]
    if measured.sample_of is not None:
        sentences.append(f"They are a random sample of {measured.sample_of:,}, and intervals are those of a sample.")
    sentences += [f"Intervals: {measured.drawn_by}."] if measured.drawn_by else []
    sentences += [sentence(measured.few_rows)] if measured.few_rows else []
    tables = [_metrics(measured, verdict, whose)]
    if measured.threshold is not None:
        tables.append(threshold_table(measured.threshold))
    title = "Evaluation" if split == "eval" else f"Evaluation on the {split} split"
    return Part(
        title,
        sentences,
        tables=[*tables, *slices(measured, verdict, split), *worst_rows(measured, split), *_others(measured, whose)],
    )


def _of_record(material: Material) -> Part | None:
    """The metrics that a run's record has: of a model that another run evaluated, or of an evaluation that is gone."""
    record, task = material.record, None
    if not record.metrics:
        return None
    said = [f"On {rows_in_words(judged_spans(material.store, record))}, as the run's record has it."]
    if record.state == State.ALREADY:
        facts = _champion(material)
        rows, made_by, task = rows_in_words(spans_in(facts.get("eval_parts"))), facts.get("run"), facts.get("task")
        said = [f"This run evaluated nothing: these are the champion's metrics, on {rows}."]
        if made_by:
            said.append(f"Its curves, slices, worst rows and figures: headway report {made_by}, the run that made it.")
    return Part("Evaluation", said, tables=[metric_table(values_of(record.metrics), record.baselines, task=task)])


def _champion(material: Material) -> Mapping[str, Any]:
    """What the registry keeps of the champion that a run found."""
    record = material.record
    try:
        return Registry(material.store, record.pipeline).version(record.version or 0).facts
    except HeadwayError:  # it is damaged
        return {}


def _ranked(material: Material, measured: Measured) -> list[str]:
    """What the metrics of a ranking look at."""
    settings, names = material.key("measure"), [name for name in RANKING if name in measured.metrics]
    if not names or (at := settings.get("ndcg_at")) is None:
        return []
    said = f"The order of the rows of one {settings.get('group')} is judged by {listed(names)}, on its first {at} ranks"
    return [f"{said}; 1 is the best."]


def _tested(material: Material) -> list[str]:
    tested = material.read("measure test", Measured)
    if tested is None:
        return []
    values = ", ".join(f"{of.name} {metric_text(of.value)}" for of in tested.values[:4])
    return [f"On the {rows_of(tested.rows, tested.spans, 'test')}, which decide nothing: {values}."]


# --- metrics


def _metrics(measured: Measured, verdict: Verdict | None, whose: str) -> Table:
    primary = verdict.primary if verdict is not None else None
    return metric_table(
        # the metric that decides comes first
        sorted(measured.values, key=lambda of: of.name != primary),
        {whose if name == "champion" else name: values for name, values in measured.baselines.items()},
        value="candidate",
        interval=f"{100 * measured.confidence:.4g}% interval",
        task=measured.task,
    )


# --- figures


def _charts(material: Material, measured: Measured, whose: str) -> Iterator[Chart]:
    tables, task = measured.tables, measured.task
    key = material.key("measure").get("inputs", {})
    ours = _scored(material, key.get("predictions"), task)
    theirs = _scored(material, (key.get("beside") or {}).get("champion"), task)
    champion = score_charts.tables_of(task, theirs) if theirs is not None else {}
    names = score_charts.Names("candidate", whose)
    yield from score_charts.charts_of(tables, champion, names)
    if ours is None or not score_charts.plain(ours):
        return
    if "roc" in tables:
        yield score_charts.scores(ours)
    elif "residuals" in tables:
        yield score_charts.errors(ours, theirs, names)


def _scored(material: Material, fingerprint: str | None, task: str) -> Rows | None:
    """The rows that an evaluation scored; None where they are gone, too many, or of a task of the user's own."""
    title = next((title for title, output in material.outputs.items() if output.fingerprint == fingerprint), "")
    found = material.read(title, Evaluated)
    if found is None or found.predictions is None or ":" in task:
        return None
    files = material.manifests[title].files
    size = next((entry.bytes for entry in files if entry.path == found.predictions), 0)
    path = material.file(title, found.predictions) if size <= _MOST_BYTES else None
    try:
        group = material.key("measure").get("group")  # else a sample of many rows would be another than was measured
        if path is None:
            return None
        return metrics.rows_of(read_predictions(path, (group,) if group else (), group=group, unit=False), task)
    except HeadwayError:
        return None


# --- tables


def _others(measured: Measured, whose: str) -> Iterator[Table]:
    """The tables that are not drawn."""
    if measured.tables.get(CONFUSION.name):
        yield from confusion_tables(measured, whose)
    for name, columns in measured.tables.items():
        if not columns or name in CURVES or name == CONFUSION.name:
            continue
        shown = {key: values for key, values in columns.items() if key != "weight" or weighted(columns)}
        rows = [dict(zip(shown, map(_shown, row), strict=True)) for row in zip(*shown.values(), strict=True)]
        title, chosen = measured.titles.get(name, name), measured.threshold
        note = f"Decided by {decided_by(measured)}." if name == PER_CLASS.name else ""
        if note and chosen is not None and "folds" in chosen.chosen_on:
            note = "Each fifth of the rows is decided by the threshold that the others choose; "
            note += "the confusion matrix has the one for use."
        yield Table(capital(title), rows[:_MOST_ROWS], note, folded=name != PER_CLASS.name)


def _shown(value: str | int | float | None) -> str | int | None:
    return one_line(value, 60) if isinstance(value, str) else metric_text(value) if isinstance(value, float) else value
