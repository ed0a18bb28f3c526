"""The section of a report on the evaluation: metrics with intervals, beside the champion's; curves, threshold, slices, the
confusion matrix, the rows that the model predicts worst, and the importance of columns."""

import base64
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from markupsafe import Markup

from flows.records import State
from flows.report.charts import ModelNames, charts_of, tables_of
from flows.report.model import Chart, Row, Section, Table
from flows.report.plot import distinct_labels, one_line
from flows.report.results import RunResults
from flows.report.verdict import outcome_text
from flows.report.versions import judged_spans, rows_in_words, rows_of, spans_in
from headway.errors import HeadwayError
from headway.evaluation.measured import Measured, Metrics, MetricValue, SliceMetrics, Threshold, Values, WorstSlices
from headway.evaluation.predictions import read_predictions
from headway.evaluation.predictions import rows_of as prediction_rows
from headway.evaluation.slices import slice_text
from headway.evaluation.threshold import AS_CONFIGURED
from headway.evaluation.verdict import Verdict
from headway.messages import capital, counted, ends, listed, metric_text, number, sentence, signed
from headway.metrics.base import Rows
from headway.metrics.meanings import meaning
from headway.metrics.ranking import RANKED as RANKING
from headway.metrics.tables import CONFUSION, PER_CLASS
from headway.registry.registry import Registry
from headway.storage.filesystem import open_file
from headway.storage.manifest import crc32c
from headway.tasks.table import direction
from tfcore.evaluation.request import Evaluated, Importance

_MOST_BYTES = 24 << 20
"""The most bytes of predictions that are read for charts: about a million rows, half a second."""
_MOST_ROWS = 60
_PIXELS = 64
"""The longer side of a small copy of an image."""


def evaluation(results: RunResults) -> Section | None:
    """Returns the section on the evaluation; None if the run has neither an evaluation nor metrics."""
    measured, verdict = results.measured, results.verdict
    if measured is None:
        return _of_record(results)
    whose = verdict.champion.name if verdict and verdict.champion else "the champion"
    part = measured_section(measured, verdict, whose, image=partial(_image, _image_files(results)))
    sentences = [*part.sentences, *_ranked(results, measured), *_tested(results)]
    charts = list(_charts(results, measured, whose))
    if not charts and ":" in measured.task:
        sentences.append(
            f"There are no curves: only your code knows what a prediction of {measured.task} means; its metrics judge it."
        )
    first, *others = [*part.tables, *importance(results)]
    return Section("Evaluation", sentences, charts, [first, *(replace(table, folded=True) for table in others)])


def measured_section(
    measured: Measured,
    verdict: Verdict | None = None,
    whose: str = "the champion",
    *,
    split: str = "eval",
    image: Callable[[object], Markup | None] = lambda value: None,
) -> Section:
    """Returns the section with the tables of an evaluation.

    Args:
        verdict: the gate's verdict, if it is known.
        whose: the name of the champion in the tables.
        image: returns an <img> of the image file that a value in a row names; None if the value names no image.
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
    return Section(
        title,
        sentences,
        tables=[*tables, *slices(measured, verdict), *worst_rows(measured, split, image), *_of_classes(measured)],
    )


def _of_record(results: RunResults) -> Section | None:
    """Returns the section from the metrics in a run's record, if the store has no evaluation of the run; None without metrics."""
    record, task = results.record, None
    if not record.metrics:
        return None
    said = [f"On {rows_in_words(judged_spans(results.store, record))}, as the run's record has it."]
    if record.state == State.ALREADY:
        try:
            facts = Registry(results.store, record.pipeline).version(record.version or 0).facts
        except HeadwayError:  # it is damaged
            facts = {}
        rows, task = rows_in_words(spans_in(facts.get("eval_parts"))), facts.get("task")
        said = [f"This run evaluated nothing: these are the champion's metrics, on {rows}."]
        said += [f"The rest is in the report of the run that made it: headway report {facts['run']}."] * bool(
            facts.get("run")
        )
    return Section("Evaluation", said, tables=[metric_table(values_of(record.metrics), record.baselines, task=task)])


def _ranked(results: RunResults, measured: Measured) -> list[str]:
    """Returns the sentence on ranking metrics: which group and how many ranks they judge; an empty list without such metrics."""
    settings, names = results.key("measure"), [name for name in RANKING if name in measured.metrics]
    if not names or (at := settings.get("ndcg_at")) is None:
        return []
    said = f"The order of the rows of one {settings.get('group')} is judged by {listed(names)}, on its first {at} ranks"
    return [f"{said}; 1 is the best."]


def _tested(results: RunResults) -> list[str]:
    tested = results.read("measure test", Measured)
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


def _charts(results: RunResults, measured: Measured, whose: str) -> Iterator[Chart]:
    champion = (results.key("measure").get("inputs", {}).get("beside") or {}).get("champion")
    theirs = _scored(results, champion, measured.task)
    beside = tables_of(measured.task, theirs) if theirs is not None else {}
    yield from charts_of(measured.tables, beside, ModelNames("candidate", whose))


def _scored(results: RunResults, fingerprint: str | None, task: str) -> Rows | None:
    """Returns the rows that an evaluation scored; None if they are gone or too many, or the task is a user's own."""
    title = next((title for title, output in results.outputs.items() if output.fingerprint == fingerprint), "")
    found = results.read(title, Evaluated)
    if found is None or found.predictions is None or ":" in task:
        return None
    files = results.manifests[title].files
    size = next((entry.bytes for entry in files if entry.path == found.predictions), 0)
    path = results.file(title, found.predictions) if size <= _MOST_BYTES else None
    try:
        group = results.key("measure").get("group")  # else a sample of many rows would be another than was measured
        if path is None:
            return None
        return prediction_rows(read_predictions(path, (group,) if group else (), group=group, unit=False), task)
    except HeadwayError:
        return None


# --- tables


def _of_classes(measured: Measured) -> Iterator[Table]:
    """Yields the confusion matrix, and the table of precision, recall and F1 by class; nothing without classes."""
    if measured.tables.get(CONFUSION.name):
        yield confusion_table(measured)
    if not (columns := measured.tables.get(PER_CLASS.name)):
        return
    shown = {key: values for key, values in columns.items() if key != "weight" or weighted(columns)}
    rows = [dict(zip(shown, map(_shown, row), strict=True)) for row in zip(*shown.values(), strict=True)]
    note, chosen = f"Decided by {decided_by(measured)}.", measured.threshold
    if chosen is not None and "folds" in chosen.chosen_on:
        note = "Each fifth of the rows is decided by the threshold that the others choose; "
        note += "the confusion matrix has the one for use."
    yield Table("Precision, recall and F1 of each class", rows[:_MOST_ROWS], note)


def _shown(value: str | int | float | None) -> str | int | None:
    return one_line(value, 60) if isinstance(value, str) else metric_text(value) if isinstance(value, float) else value


def values_of(metrics: Values) -> list[MetricValue]:
    """Returns metrics by name as a list of values without intervals."""
    return Metrics(metrics=metrics).values


def metric_table(
    values: Sequence[MetricValue],
    others: Mapping[str, Values] | None = None,
    *,
    title: str = "Metrics",
    value: str = "value",
    interval: str = "interval",
    task: str | None = None,
) -> Table:
    """Returns a table with a row per metric: its value, interval, other models' values and, on pages, its meaning.

    Args:
        others: the metrics of other models on the same rows, by model.
        value, interval: the names of these two columns.
        task: the task of the metrics, if it is known.
    """
    known = others or {}
    rows: list[Row] = [
        {"metric": of.name, value: metric_text(of.value), interval: ends(of.interval)}
        | {other: metric_text(theirs[of.name]) if of.name in theirs else None for other, theirs in known.items()}
        | {"meaning": Markup('<span class="long">{}</span>').format(said) if (said := meaning(of.name, task)) else None}
        for of in values
    ]
    return Table(title, rows)


def threshold_table(found: Threshold) -> Table:
    """Returns the table of the metrics at the decision threshold."""
    chosen = found.chosen_on if found.value is None else f"{number(found.value)}, chosen on {found.chosen_on}"
    rule = found.rule if found.rule == AS_CONFIGURED else f"for {found.rule}"
    return metric_table(found.values, title=f"Threshold {rule}: {chosen}")


def importance_table(found: Importance, where: str = "") -> Table:
    """Returns the table of how much each column matters, the most important first.

    Args:
        where: the text after the number of rows in the title, such as " of eval".
    """
    title = f"How much worse {found.metric} ({number(found.value)}) is without a column, on {counted(found.rows, 'row')}{where}"
    if any(each.interval is not None for each in found.columns):  # a metric of the user's own has none
        title += ", with 95% intervals"
    shown = found.columns[:_MOST_ROWS]
    highest = max([1e-12, *(each.interval[1] if each.interval else each.permuted or 0.0 for each in shown)])
    rows = [
        {"column": one_line(each.column, 60), "worse by": metric_text(each.permuted), "interval": ends(each.interval)}
        for each in shown
    ]
    return Table(title, rows, shades=[{"worse by": max(each.permuted or 0.0, 0.0) / highest} for each in shown])


_MOST_CLASSES, _MOST_PAIRS = 12, 20
Columns = Mapping[str, list[Any]]
"""label, predicted, rows, weight: a row for each pair of classes that occurs"""


def confusion_table(measured: Measured) -> Table:
    """Returns the candidate's confusion matrix; of many classes, the pairs that are confused most."""
    columns = measured.tables["confusion"]
    found = {label for side in ("label", "predicted") for label in columns[side]}
    labels = sorted(found, key=lambda label: (isinstance(label, str), label))
    weights = dict(zip(zip(columns["label"], columns["predicted"], strict=True), _weights(columns), strict=True))
    how = f"decided by {decided_by(measured)}"
    if len(labels) > _MOST_CLASSES:
        wrong = sorted(((n, pair) for pair, n in weights.items() if pair[0] != pair[1]), key=lambda each: -each[0])
        names = distinct_labels((label for _, pair in wrong[:_MOST_PAIRS] for label in pair), 40)
        what = "weight" if weighted(columns) else "rows"
        pairs = [{"label": names[a], "predicted": names[b], what: n} for n, (a, b) in wrong[:_MOST_PAIRS]]
        return Table("The classes that are confused most", pairs, sentence(capital(how)))
    names, rows, shades = distinct_labels(labels), list[Row](), list[dict[str, float]]()
    for label in labels:
        counts = {f"predicted {names[other]}": weights.get((label, other), 0) for other in labels}
        total = sum(counts.values()) or 1
        rows.append({"label": names[label], **counts})
        shades.append({column: count / total for column, count in counts.items()})
    what = "Weights of rows" if weighted(columns) else "Rows"
    note = f"{what} by label and predicted class, {how}; shaded by the share of the label's."
    return Table("Confusion matrix", rows, note, shades=shades)


def decided_by(measured: Measured) -> str:
    """Returns the rule, in words, by which a prediction becomes a class."""
    if measured.task != "binary":
        return "the most likely class"
    found = measured.threshold
    if found is None or found.value is None:
        return "the threshold 0.5 (evaluation.threshold chooses another)"
    return f"the threshold {number(found.value)}"


def weighted(columns: Columns) -> bool:
    """Returns whether the weights in a table's columns differ from the numbers of rows, so that the weights are shown."""
    return any(weight != rows for weight, rows in zip(columns.get("weight", ()), columns["rows"], strict=False))


def _weights(columns: Columns) -> list[Any]:
    return columns["weight" if weighted(columns) else "rows"]


_MOST = 60


def slices(measured: Measured, verdict: Verdict | None) -> Iterator[Table]:
    """Yields the tables on slices; none where no slice was measured."""
    # by the metric that decides, else by the loss
    names = [verdict.primary if verdict is not None else None, "loss", *measured.metrics]
    metric = next((str(name) for name in names if measured.metrics.get(str(name)) is not None), None)
    if metric is not None and (table := _named(measured, verdict, metric)) is not None:
        yield table
    if measured.worst_slices is not None and measured.worst_slices.slices:
        yield _worst(measured.worst_slices)


def _named(measured: Measured, verdict: Verdict | None, metric: str) -> Table | None:
    better = verdict.better if verdict is not None and metric == verdict.primary else None
    found: list[tuple[float, str, str, SliceMetrics]] = [
        (level, column, value, of)
        for column, values in measured.by_slice.items()
        for value, of in values.items()
        if (level := of.metrics.get(metric)) is not None
    ]
    if not found:
        return None
    found.sort(key=lambda each: each[0] * direction(metric, better))
    checks = verdict.compared(slices=True) if verdict is not None else []
    against = {(check.slice, check.slice_value): check for check in checks if check.metric == metric}
    whole, shown, rows = measured.metrics[metric] or 0.0, found[:_MOST], list[Row]()
    for level, column, value, of in shown:
        cells: dict[str, Any] = {
            "slice": one_line(slice_text(column, value), 60),
            "rows": of.rows,
            metric: number(level),
            "interval": ends(of.intervals.get(metric)),
        }
        if (check := against.get((column, value))) is not None:
            cells[f"against {check.against}"] = f"{signed(check.change)}, {outcome_text(check)}"
        rows.append(cells)
    note = f"The worst {metric} first; that of all rows is {number(whole)}."
    note += f" {len(found) - _MOST} more: headway run --to evaluate." if len(found) > _MOST else ""
    return Table("Slices", rows, note)


def _worst(found: WorstSlices) -> Table:
    rows = [
        {
            "slice": one_line(slice_text(each.slice, each.value), 80),
            "rows": each.rows,
            found.metric: each.loss,
            f"{found.metric} of the other rows": each.loss_of_others,
            "predicted": each.prediction_mean,
            "observed": each.label_mean,
        }
        for each in found.slices
    ]
    note = f"{found.significant} of {counted(found.tried, 'slice')} of {counted(found.columns, 'column')} "
    note += (
        f"{'has' if found.significant == 1 else 'have'} a {found.metric} above that of all other rows beyond chance."
    )
    if any(each.prediction_mean is not None for each in found.slices):
        note += " Where predicted and observed agree, the slice is hard; where not, the model is wrong."
    return Table("Where the model is worst", rows, note)


def worst_rows(
    measured: Measured, split: str, image: Callable[[object], Markup | None] = lambda value: None
) -> Iterator[Table]:
    """Yields the table of the rows with the greatest losses, where the model is most wrong; nothing without losses."""
    if not measured.worst_rows:
        return
    loss = measured.worst_slices.metric if measured.worst_slices is not None else "loss"
    probable = measured.task == "binary"
    said = [value for each in measured.worst_rows for value in (each.label, each.prediction) if isinstance(value, str)]
    classes, rows = distinct_labels(said, 60), list[Row]()
    for each in measured.worst_rows:
        of_label = None if each.of_label is None else _said(each.of_label, classes, probability=True)
        own = {
            "label": _said(each.label, classes),
            "predicted": _said(each.prediction, classes, probability=probable),
            "probability of the label": of_label,
            loss: number(each.loss),
        }
        shown = {name: image(value) or _value(value) for name, value in each.values.items()}
        values = {f"column {name}" if name in {"row", *own} else name: value for name, value in shown.items()}
        rows.append({"row": str(each.row), **values, **own})
    note = f"The rows of the greatest {loss} of all {split} rows. Row: its number in the split, as "
    note += "headway export-rows writes it with all columns; evaluation.row_values names columns to show here."
    yield Table("Rows where the model is most wrong", rows, note)


def _said(value: float | str | Sequence[float], classes: Mapping[str, str], *, probability: bool = False) -> str:
    if isinstance(value, str):
        return classes[value]
    if not isinstance(value, int | float):
        return ", ".join(map(number, value[:5]))
    return "<0.0001" if probability and value < 0.0001 else number(value)


def _value(value: float | str | None) -> str:
    """Returns a value as text: a float with the seven digits of a float32, a text cut to one line."""
    return "" if value is None else f"{value:.7g}" if isinstance(value, float) else one_line(value, 60)


def _image_files(results: RunResults) -> list[Row]:
    """Returns the raw files of a run whose source is images; an empty list for other sources."""
    if (results.record.config or {}).get("source", {}).get("format") != "images":
        return []
    return [file for of_span in results.raw_files.values() for file in of_span]


def _image(files: Sequence[Row], name: object) -> Markup | None:
    """Returns a small copy of the image in the raw file that a value names, as an <img> that holds the data; None without one."""
    named = [file for file in files if file.get("path", "").endswith(f"/{name}")]
    if len(named) != 1:  # of another span's file of this name the picture would be wrong
        return None
    from PIL import Image

    small = io.BytesIO()
    try:
        with open_file(named[0]["path"]) as file:
            data = file.read()
        if crc32c([data])[1] != named[0]["crc32c"]:  # the model was judged on another picture
            return None
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as image:
            if image.mode.startswith("I"):  # 16 bits, which would be cut off to white
                return None
            image.thumbnail((_PIXELS, _PIXELS))
            image.convert("RGB").save(small, "JPEG", quality=85)
    except (HeadwayError, OSError, SyntaxError, ValueError, Image.DecompressionBombError):  # its name stands there
        return None
    text = base64.b64encode(small.getvalue()).decode()
    return Markup('<img alt="{0}" title="{0}" height="{1}" src="data:image/jpeg;base64,{2}">').format(
        name, _PIXELS, text
    )


def importance(results: RunResults) -> Iterator[Table]:
    """Yields the table of columns, the most important first; nothing if the importance is not known."""
    found = results.importance
    if found is not None and found.columns:
        yield importance_table(found, " of eval")
