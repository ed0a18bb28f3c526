"""The measuring stage: computes metrics from stored predictions, so that new metrics or slices need no new predictions.

    result = measure(MeasureRequest(task="binary", predictions=path), out, monitor)
    result["metrics"]["auc"], result["intervals"]["auc"], result["tables"]["roc"], result["worst_slices"]

`out/metrics.json` is the result. Only the columns that are asked for are read.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headway.evaluation.baseline import constant
from headway.evaluation.intervals import Interval, few_rows, intervals
from headway.evaluation.predictions import (
    ROW_LOSS,
    check_same_rows,
    measured,
    metrics_of,
    population_size,
    read_predictions,
    rows_of,
)
from headway.evaluation.requests import MeasureRequest
from headway.evaluation.slices import slice_columns, slice_rows
from headway.evaluation.threshold import FLAGGED, DecidedRows, decide_rows
from headway.evaluation.units import with_resampling_units
from headway.evaluation.worst_slices import find_worst_slices
from headway.metrics.base import Floats, Made, Metric, MomentMetric, Rows
from headway.metrics.classification import ORDER, orders_of_parts, with_order
from headway.metrics.retrieval import RETRIEVAL_COLUMNS
from headway.metrics.tables import CONFUSION, Table
from headway.monitor import Monitor
from headway.process import MOST_THREADS, in_threads
from headway.schema.calendar_days import Temporal, moment
from headway.tasks.base import Task
from headway.tasks.table import task_of

METRICS = "metrics.json"
MOST_INTERVALS = 200
"""The most slices of one column that get intervals; the largest slices get them."""
ROWS_AT_ONCE = 4_000_000
"""The most rows that all threads together work on at once."""
MOST_ROWS, _LONGEST = 12, 200
"""The most worst rows that are reported, and the most characters of a value in them."""
_CLASSES = ("class", "label", "predicted")
"""Columns of tables that hold classes."""


def measure(request: MeasureRequest, out: Path, monitor: Monitor) -> dict[str, Any]:
    """Measure the predictions, and write out/metrics.json.

    Returns:
        A `headway.evaluation.measured.Measured` as JSON.

    Raises:
        DataError: the predictions cannot be read, or break the task's rules; or a baseline's predictions are of other rows.
        ConfigError: a metric of the user's own fails.
    """
    table = read_predictions(request.predictions.file, request.columns, group=request.group)
    result = measure_table(table, request, monitor)
    if (rows := population_size(table)) is not None:
        result["sample_of"] = rows
    (out / METRICS).write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return result


def measure_table(table: pa.Table, request: MeasureRequest, monitor: Monitor) -> dict[str, Any]:
    """Returns what `measure` returns for a predictions table, and writes nothing."""
    task = task_of(request.task)
    metrics = metrics_of(task, request.ndcg_at, request.metrics, request.item, request.retrieval)
    rows = _rows(request, task, table, metrics)
    baselines = _baselines(request, task, metrics, table, rows, monitor)
    rows, drawn_by = with_resampling_units(request.units, table, rows, group=request.group)
    decided = None
    if request.threshold is not None and task.name == "binary":
        decided = decide_rows(request.threshold, rows, given=request.given_threshold, seed=request.seed)
    rows = rows.keeping()  # what was computed of them goes
    of_all = {
        "intervals": _intervals(request, rows, metrics),
        "few_rows": few_rows(rows, metrics),
        "metrics": measured(metrics, rows),
        "tables": {table.name: _with_names(request, table, rows, decided) for table in task.tables_for(rows)},
    }
    rows = rows.keeping(ORDER)  # which that of slices follows from
    own = table.column(ROW_LOSS).to_numpy() if ROW_LOSS in table.column_names else None
    losses = row_losses(rows, task.row_loss, own)
    by_slice = {name: _by_slice(request, table, name, rows, metrics, monitor) for name in request.slices}
    worst_slices = find_worst_slices(
        table,
        rows,
        losses,
        request.searched,
        min_rows=request.slice_min_rows,
        metric="loss" if own is not None else task.row_loss.name,
        confidence=request.confidence,
        threads=thread_count(len(rows)),
        check=monitor.check,
    )
    return {
        "task": task.name,
        "rows": len(rows),
        "spans": list(request.spans),
        **of_all,
        "confidence": request.confidence,
        "drawn_by": drawn_by,
        "baselines": baselines,
        "by_slice": by_slice,
        "threshold": _threshold(request, decided),
        "worst_slices": worst_slices,
        "worst_rows": worst_rows(table, rows, losses, shown=request.shown, classes=request.classes),
    }


def _rows(request: MeasureRequest, task: Task, table: pa.Table, metrics: Sequence[Metric]) -> Rows:
    read: tuple[str, ...] = ()
    if any(metric.reads_columns for metric in metrics):
        ranks = [name for name in RETRIEVAL_COLUMNS if name in table.column_names]
        read = (*slice_columns(request.slices), *(name for name in (request.group, request.item) if name), *ranks)
    return rows_of(table, task, request.group, columns=read)


def _intervals(request: MeasureRequest, rows: Rows, metrics: Sequence[Metric]) -> dict[str, Interval | None]:
    return intervals(rows, metrics, confidence=request.confidence, seed=request.seed)


def _by_slice(
    request: MeasureRequest, table: pa.Table, name: str, rows: Rows, metrics: Sequence[Metric], monitor: Monitor
) -> dict[str, Any]:
    parts = list(slice_rows(table, name, request.slice_min_rows))
    sizes = sorted((len(at) for _, at in parts), reverse=True)
    least = sizes[min(len(sizes), MOST_INTERVALS) - 1] if sizes else 0
    orders = orders_of_parts(rows, [at for _, at in parts])

    def facts(number: int) -> dict[str, Any]:
        some = with_order(rows.at(parts[number][1]), orders[number])
        # first: what a metric's value is made of is kept until the next metric
        between = _intervals(request, some, metrics) if len(some) >= least else {}
        return {"rows": len(some), "metrics": measured(metrics, some), "intervals": between}

    found = _each(request, facts, range(len(parts)), max(sizes, default=0), monitor)
    return {value: of for (value, _), of in zip(parts, found, strict=True)}


def thread_count(rows: int) -> int:
    """Returns how many threads may work at once, each on `rows` rows: memory is bounded, at a hundred bytes of arrays a row."""
    return max(1, min(MOST_THREADS, ROWS_AT_ONCE // max(rows, 1)))


def _each(
    request: MeasureRequest, of: Callable[[Any], Made], items: Sequence[Any], rows: int, monitor: Monitor
) -> list[Made]:
    """Returns `of(item)` for each item, computed in threads. A user's code runs in one thread, as it may not be thread-safe.

    Args:
        rows: the number of rows of the largest item.
    """
    own = request.metrics or ":" in request.task
    return in_threads(of, items, most=1 if own else thread_count(rows), check=monitor.check)


def _baselines(
    request: MeasureRequest,
    task: Task,
    metrics: Sequence[Metric],
    table: pa.Table,
    rows: Rows,
    monitor: Monitor,
) -> dict[str, Any]:
    """Returns the metrics of the constant baseline and of each other model on the same rows, by the model's name."""
    found: dict[str, Any] = {}
    if request.label is not None and (values := constant(task, request.label, rows, metrics)) is not None:
        found["constant"] = values
    others = request.baselines | {name: ref for name, ref in request.beside.items() if ref.path is not None}

    def of_other(name: str) -> dict[str, float | None]:
        ref = others[name]
        theirs = read_predictions(ref.file, request.columns_of_others, group=request.group, unit=False)
        check_same_rows(table, theirs, f"the baseline {name}'s", str(ref.path))
        their_rows = replace(_rows(request, task, theirs, metrics), label=rows.label, weight=rows.weight)
        del theirs
        return measured(metrics, their_rows)

    return found | dict(zip(others, _each(request, of_other, [*others], len(rows), monitor), strict=True))


def _threshold(request: MeasureRequest, decided: DecidedRows | None) -> dict[str, Any] | None:
    if request.threshold is None:
        return None
    found: dict[str, Any] = {"rule": str(request.threshold), "value": None}
    if decided is None:
        return found | {"chosen_on": "no threshold follows this rule on the eval rows"}
    return found | {
        "value": decided.threshold,
        "chosen_on": decided.chosen_on,
        "metrics": measured(decided.metrics, decided.rows) | measured((FLAGGED,), decided.kept),
        "intervals": decided.intervals(request.confidence, request.seed),
    }


def _with_names(request: MeasureRequest, table: Table, rows: Rows, decided: DecidedRows | None) -> dict[str, list[Any]]:
    """Returns the columns of a table, with names of classes in place of their indices. The confusion matrix uses the
    final threshold. Other tables of decisions use, for each row, one chosen on other rows, unless the config gives it."""
    if table.decides and decided is not None:
        rows = decided.kept if table.name == CONFUSION.name else decided.rows
    columns = table.compute(rows)
    names = [name for name in _CLASSES if name in columns] if table.decides and request.classes else ()
    return columns | {name: [request.classes[i] for i in columns[name]] for name in names}


# --- the rows on which the model is most wrong


def row_losses(rows: Rows, loss: Metric | None, losses: Floats | None = None) -> Floats | None:
    """Returns the loss of each row, [rows]: `losses` if given, else by the metric `loss`; None if unknown or not all finite."""
    if losses is not None:
        return losses if rows.total > 0 and np.isfinite(losses).all() else None
    if not isinstance(loss, MomentMetric) or not rows.total > 0 or not rows.known:
        return None
    moments = loss.moments(rows)
    return moments[:, 0] if moments.shape[1] == 1 and np.isfinite(moments).all() else None


def worst_rows(
    table: pa.Table,
    rows: Rows,
    losses: Floats | None,
    *,
    shown: Mapping[str, Temporal | None],
    classes: Sequence[str | int],
) -> list[dict[str, Any]]:
    """Returns the rows with the greatest losses, the greatest first, with the fields of
    `headway.evaluation.measured.WorstRow`.

    A row is identified by its number in the split, as `headway export-rows` writes it, its label and its prediction.

    Args:
        table: the rows' predictions.
        losses: the loss of each row, [rows]; None: losses are not known, and the list is empty.
        shown: the only columns whose values are reported (reports travel), each with its kind of date or time, or None.
        classes: the names of the label's classes, by index.
    """
    if losses is None:
        return []
    losses = losses if rows.unweighted else np.where(rows.weight > 0, losses, -np.inf)
    least = np.partition(losses, -MOST_ROWS)[-MOST_ROWS] if len(losses) > MOST_ROWS else -np.inf
    high = np.flatnonzero((losses >= least) & np.isfinite(losses))
    worst = high[np.argsort(-losses[high], kind="stable")][:MOST_ROWS].tolist()  # of equal losses the first rows
    # of many rows the table has a sample
    numbers = table.column("row").to_numpy() if "row" in table.column_names else np.arange(len(rows))
    values = {name: table.column(name).take(worst).to_pylist() for name in shown if name in table.column_names}
    return [
        {"row": int(numbers[row]), "loss": float(losses[row]), **_decided(rows, row, classes)}
        | {"values": {name: _value(of[place], shown[name]) for name, of in values.items()}}
        for place, row in enumerate(worst)
    ]


def _decided(rows: Rows, row: int, classes: Sequence[str | int]) -> dict[str, Any]:
    label, prediction = rows.label[row], rows.prediction[row]
    if not classes:
        return {"label": float(label), "prediction": prediction.tolist()}
    named = {"label": str(classes[int(label)])}
    if prediction.ndim == 0:  # of two classes the probability of the second
        return named | {"prediction": float(prediction)}
    return named | {"prediction": str(classes[int(prediction.argmax())]), "of_label": float(prediction[int(label)])}


def _value(value: Any, temporal: Temporal | None) -> str | int | float | None:
    if value is None or (isinstance(value, float) and not np.isfinite(value)):
        return None if value is None else str(value)
    if temporal is not None and not isinstance(value, str):
        return moment(value, temporal)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    return value[:_LONGEST] if isinstance(value, str) else value
