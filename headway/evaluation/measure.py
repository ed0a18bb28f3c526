"""The measuring stage: what kept predictions amount to, so that a metric or a slice can be added without predicting again.

    result = measure(MeasureRequest(task="binary", predictions=path), out, monitor)
    result["metrics"]["auc"], result["intervals"]["auc"], result["tables"]["roc"], result["worst_slices"]

`out/metrics.json` is the result. Only the columns that are asked for are read.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from headway.evaluation.baseline import constant
from headway.evaluation.intervals import Interval, few_rows, intervals
from headway.evaluation.predictions import (
    ROW_LOSS,
    check_same_rows,
    measured,
    metrics_of,
    read_predictions,
    rows_of,
    sample_of,
)
from headway.evaluation.requests import MeasureRequest
from headway.evaluation.slices import slice_columns, slice_rows
from headway.evaluation.threshold import Decided, decide
from headway.evaluation.units import drawn_together
from headway.evaluation.worst_rows import RowsByLoss, row_losses
from headway.evaluation.worst_slices import worst
from headway.metrics.base import Made, Metric, Rows
from headway.metrics.classification import ORDER, orders_of_parts
from headway.metrics.retrieval import RETRIEVAL_COLUMNS
from headway.metrics.tables import CONFUSION, Table
from headway.monitor import Monitor
from headway.process import MOST_THREADS, in_threads
from headway.tasks.base import Task
from headway.tasks.table import task_of

METRICS = "metrics.json"
CHAMPION = "champion"
"""Of the other models the one that is measured as the candidate is: with intervals, on every slice."""
MOST_INTERVALS = 200
"""Slices of one column with intervals: the largest."""
ROWS_AT_ONCE = 4_000_000
"""Of all threads together."""
_CLASSES = ("class", "label", "predicted")
"""Columns of tables that hold classes."""


def measure(request: MeasureRequest, out: Path, monitor: Monitor) -> dict[str, Any]:
    """Measure the predictions, and write out/metrics.json.

    Returns:
        A `headway.evaluation.measured.Measured` as JSON, with the metrics of a slice beside its rows.

    Raises:
        DataError: the predictions cannot be read, or break the task's rules; baselines are of other rows.
        ConfigError: a metric of the user's own fails.
    """
    table = read_predictions(request.predictions.file, request.columns, group=request.group)
    result = results(table, request, monitor)
    if (rows := sample_of(table)) is not None:
        result["sample_of"] = rows
    (out / METRICS).write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return result


def results(table: pa.Table, request: MeasureRequest, monitor: Monitor) -> dict[str, Any]:
    """The result of `measure` for a predictions table."""
    task = task_of(request.task)
    metrics = metrics_of(task, request.ndcg_at, request.metrics, request.item, request.retrieval)
    rows = _rows(request, task, table, metrics)
    baselines, theirs = _baselines(request, task, metrics, table, rows, monitor)
    rows, drawn_by = drawn_together(request.units, table, rows, group=request.group)
    models = {"": rows.keeping()}
    if theirs is not None:
        models[CHAMPION] = replace(rows.predicted(theirs.prediction), memo=theirs.memo)
        del theirs  # with what is computed of them
    decided = None
    if request.threshold is not None and task.name == "binary":
        decided = decide(request.threshold, rows, given=request.given_threshold, seed=request.seed)

    def of_all(model: str) -> tuple[dict[str, Any], Rows]:
        """(what is told of one model on all rows; these with their order by prediction, which that of slices follows from)"""
        rows = models.pop(model)  # what is computed of them goes
        shown = _confusion(request, task, rows, decided) if model else _tables(request, task, rows, decided)
        facts: dict[str, Any] = {"intervals": _intervals(request, rows, metrics)}
        if not model:
            facts |= {"few_rows": few_rows(rows, metrics), "metrics": measured(metrics, rows)}
        return facts | shown, rows.keeping(ORDER)

    names = [*models]
    facts, kept = zip(*_each(request, of_all, names, len(rows), monitor), strict=True)
    models, rows = dict(zip(names, kept, strict=True)), kept[0]
    own = table.column(ROW_LOSS).to_numpy() if ROW_LOSS in table.column_names else None
    losses = row_losses(rows, task.row_loss, own)
    by_loss = None if losses is None else RowsByLoss(table, rows, losses)
    by_slice = {name: _by_slice(request, table, name, models, metrics, by_loss, monitor) for name in request.slices}
    worst_slices = worst(
        table,
        rows,
        task.row_loss,
        request.searched,
        losses=own,
        by_loss=by_loss,
        min_rows=request.slice_min_rows,
        confidence=request.confidence,
        threads=at_once(len(rows)),
        check=monitor.check,
    )
    return {
        "task": task.name,
        "rows": len(rows),
        "spans": list(request.spans),
        "weight": rows.total,
        **facts[0],
        "confidence": request.confidence,
        "drawn_by": drawn_by,
        "compared": [name for name in ("ndcg", *task.tolerances) if name in {metric.name for metric in metrics}],
        "baselines": baselines,
        "champion": facts[1] if len(facts) > 1 else None,
        "by_slice": by_slice,
        "threshold": _threshold(request, decided),
        "titles": {table.name: table.title for table in task.tables_for(rows)},
        "worst_slices": worst_slices,
        "worst_rows": [] if by_loss is None else _worst_rows(request, by_loss, by_slice, worst_slices),
    }


def _worst_rows(
    request: MeasureRequest,
    by_loss: RowsByLoss,
    by_slice: Mapping[str, Mapping[str, Any]],
    worst_slices: Mapping[str, Any] | None,
) -> list[dict[str, Any]]:
    slices = [] if worst_slices is None else worst_slices["slices"]
    first = [*by_loss.numbers(), *(row for each in slices for row in each["worst_rows"])]
    further = [row for of in by_slice.values() for facts in of.values() for row in facts.get("worst_rows", ())]
    return by_loss.told(first, further, shown=request.shown, classes=request.classes)


def _rows(request: MeasureRequest, task: Task, table: pa.Table, metrics: Sequence[Metric]) -> Rows:
    read: tuple[str, ...] = ()
    if any(metric.reads_columns for metric in metrics):
        ranks = [name for name in RETRIEVAL_COLUMNS if name in table.column_names]
        read = (*slice_columns(request.slices), *(name for name in (request.group, request.item) if name), *ranks)
    return rows_of(table, task, request.group, columns=read)


def _intervals(request: MeasureRequest, rows: Rows, metrics: Sequence[Metric]) -> dict[str, Interval | None]:
    return intervals(rows, metrics, confidence=request.confidence, seed=request.seed)


def _by_slice(
    request: MeasureRequest,
    table: pa.Table,
    name: str,
    models: Mapping[str, Rows],
    metrics: Sequence[Metric],
    by_loss: RowsByLoss | None,
    monitor: Monitor,
) -> dict[str, Any]:
    parts = list(slice_rows(table, name, request.slice_min_rows))
    sizes = sorted((len(at) for _, at in parts), reverse=True)
    least = sizes[min(len(sizes), MOST_INTERVALS) - 1] if sizes else 0
    orders = {model: orders_of_parts(rows, [at for _, at in parts]) for model, rows in models.items()}

    def facts(number: int) -> dict[str, Any]:
        _, at = parts[number]
        found: dict[str, Any] = {"rows": len(at)}
        if by_loss is not None and by_loss.excess(at) > 0:
            found["worst_rows"] = by_loss.numbers(at)
        own = models[""].at(at)
        for model, rows in models.items():
            some = own.predicted(rows.prediction[at]) if model else own
            if (order := orders[model]) is not None:
                some.memo[ORDER] = order[number]
            # first: what a metric's value is made of is kept until the next metric
            between = _intervals(request, some, metrics) if len(at) >= least else None
            of: dict[str, Any] = measured(metrics, some) | ({} if between is None else {"intervals": between})
            found |= {model: of} if model else of
            some.memo.clear()
        return found

    found = _each(request, facts, range(len(parts)), max(sizes, default=0), monitor)
    return {value: of for (value, _), of in zip(parts, found, strict=True)}


def at_once(rows: int) -> int:
    """The number of threads for work on so many rows each, whose arrays take a hundred bytes of a row."""
    return max(1, min(MOST_THREADS, ROWS_AT_ONCE // max(rows, 1)))


def _each(
    request: MeasureRequest, of: Callable[[Any], Made], items: Sequence[Any], rows: int, monitor: Monitor
) -> list[Made]:
    """`of` each item, in threads unless code of the user's own runs in it, which may not be made for that.

    Args:
        rows: of one item, at most.
    """
    own = request.metrics or ":" in request.task
    return in_threads(of, items, most=1 if own else at_once(rows), check=monitor.check)


def _baselines(
    request: MeasureRequest,
    task: Task,
    metrics: Sequence[Metric],
    table: pa.Table,
    rows: Rows,
    monitor: Monitor,
) -> tuple[dict[str, Any], Rows | None]:
    """The metrics of the constant, and of other models on the same rows; and the champion's
    rows, with their order by prediction."""
    found: dict[str, Any] = {}
    champion = None
    if request.label is not None and (values := constant(task, request.label, rows, metrics)) is not None:
        found["constant"] = values
    others = request.baselines | {name: ref for name, ref in request.beside.items() if ref.path is not None}

    def of_other(name: str) -> tuple[dict[str, Any], Rows | None]:
        ref = others[name]
        theirs = read_predictions(ref.file, request.columns_of_others, group=request.group, unit=False)
        check_same_rows(table, theirs, f"the baseline {name}'s", str(ref.path))
        their_rows = replace(_rows(request, task, theirs, metrics), label=rows.label, weight=rows.weight)
        del theirs
        return measured(metrics, their_rows), their_rows.keeping(ORDER) if name == CHAMPION else None

    for name, other in zip(others, _each(request, of_other, [*others], len(rows), monitor), strict=True):
        found[name], champion = other[0], other[1] or champion
    return found, champion


def _confusion(request: MeasureRequest, task: Task, rows: Rows, decided: Decided | None) -> dict[str, Any]:
    """The champion's, where the task has one."""
    confusion = next((table for table in task.tables_for(rows) if table.name == CONFUSION.name), None)
    return {} if confusion is None else {"confusion": _with_names(request, confusion, rows, decided)}


def _threshold(request: MeasureRequest, decided: Decided | None) -> dict[str, Any] | None:
    if request.threshold is None:
        return None
    found: dict[str, Any] = {"rule": str(request.threshold), "value": None}
    if decided is None:
        return found | {"chosen_on": "no threshold follows this rule on the eval rows"}
    return found | {
        "value": decided.threshold,
        "chosen_on": decided.chosen_on,
        "metrics": measured(decided.metrics, decided.rows),
        "intervals": decided.intervals(request.confidence, request.seed),
    }


def _tables(request: MeasureRequest, task: Task, rows: Rows, decided: Decided | None) -> dict[str, Any]:
    return {"tables": {table.name: _with_names(request, table, rows, decided) for table in task.tables_for(rows)}}


def _with_names(request: MeasureRequest, table: Table, rows: Rows, decided: Decided | None) -> dict[str, list[Any]]:
    """A table of the rows, with the names of classes. A confusion matrix has decisions by the one threshold that is for use, of
    every model; what judges decisions has those of rows that had no say."""
    if table.decides and decided is not None:
        rows = decided.for_use(rows) if table.name == CONFUSION.name else decided.rows
    columns = table.on(rows)
    names = [name for name in _CLASSES if name in columns] if table.decides and request.classes else ()
    return columns | {name: [request.classes[i] for i in columns[name]] for name in names}
