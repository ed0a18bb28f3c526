"""The measuring stage: what kept predictions amount to, so that a metric or a slice can be added without predicting again.

    result = measure(MeasureRequest(task="binary", predictions=path), out, monitor)
    result["metrics"]["auc"], result["intervals"]["auc"], result["tables"]["roc"], result["worst_slices"]

`out/metrics.json` is the result. Only the columns that are asked for are read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from headway.evaluation.baseline import constant
from headway.evaluation.clusters import find
from headway.evaluation.gate_checks import check_same_rows, read_predictions
from headway.evaluation.metrics import measured, metrics_of, rows_of
from headway.evaluation.results.intervals import Interval, intervals
from headway.evaluation.results.request import MeasureRequest
from headway.evaluation.results.threshold import Decided, decide
from headway.evaluation.results.worst_slices import worst
from headway.evaluation.slices import slice_columns, slice_rows
from headway.metrics.base import Metric, Rows
from headway.monitor import Monitor
from headway.tasks.base import Task
from headway.tasks.table import task_of

VERSION = 3
METRICS = "metrics.json"
MOST_INTERVALS = 200
"""Slices of one column with intervals: the largest."""
_CLASSES = ("class", "label", "predicted")
"""Columns of tables that hold classes."""


def measure(request: MeasureRequest, out: Path, monitor: Monitor) -> dict[str, Any]:
    """Measure the predictions, and write out/metrics.json.

    Returns:
        rows, weight, metrics (by name), intervals (by name, [low, high] or None), confidence, drawn_by (a sentence, where
        rows are drawn by more than one), baselines (metrics by model), by_slice (rows, metrics and intervals by column and
        value), threshold (rule, value, chosen_on, metrics, intervals; None without a rule), tables (by name, a list per
        column), worst_slices (see `headway.evaluation.results.worst_slices`).

    Raises:
        DataError: the predictions cannot be read, or break the task's rules; baselines are of other rows.
        ConfigError: a metric of the user's own fails.
    """
    result = results(read_predictions(request.predictions, request.columns), request, monitor)
    (out / METRICS).write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return result


def results(table: pa.Table, request: MeasureRequest, monitor: Monitor) -> dict[str, Any]:
    """The result of `measure` for a predictions table."""
    task = task_of(request.task)
    metrics = metrics_of(task, request.ndcg_at, request.metrics, request.item)
    rows = _rows(request, task, table, metrics)
    baselines = _baselines(request, task, metrics, table, rows, monitor)
    clusters = None
    if request.group is None and "loss" in task.metric_names:
        clusters = find(request.clusters, table, rows, None, task.metric("loss"))
        rows = rows if clusters is None else replace(rows, groups=clusters.codes, memo={})
    decided = None
    if request.threshold is not None and task.name == "binary":
        decided = decide(request.threshold, rows, given=request.given_threshold, seed=request.seed)
    return {
        "task": task.name,
        "rows": len(rows),
        "weight": rows.total,
        "metrics": measured(metrics, rows),
        "intervals": _intervals(request, rows, metrics),
        "confidence": request.confidence,
        "drawn_by": _drawn_by(request, clusters.sentence if clusters else None),
        "baselines": baselines,
        "by_slice": {name: _by_slice(request, table, name, rows, metrics, monitor) for name in request.slices},
        "threshold": _threshold(request, decided),
        "tables": _tables(request, task, rows, decided),
        "worst_slices": worst(
            table,
            rows,
            task.row_loss,
            request.searched,
            min_rows=request.slice_min_rows,
            confidence=request.confidence,
            check=monitor.check,
        ),
    }


def _rows(request: MeasureRequest, task: Task, table: pa.Table, metrics: Sequence[Metric]) -> Rows:
    read: tuple[str, ...] = ()
    if any(metric.reads_columns for metric in metrics):
        read = (*slice_columns(request.slices), *(name for name in (request.group, request.item) if name))
    return rows_of(table, task, request.group, columns=read)


def _drawn_by(request: MeasureRequest, clusters: str | None) -> str | None:
    return f"rows of one {request.group} are drawn together" if request.group else clusters


def _intervals(request: MeasureRequest, rows: Rows, metrics: Sequence[Metric]) -> dict[str, Interval | None]:
    return intervals(rows, metrics, confidence=request.confidence, seed=request.seed)


def _by_slice(
    request: MeasureRequest, table: pa.Table, name: str, rows: Rows, metrics: Sequence[Metric], monitor: Monitor
) -> dict[str, Any]:
    parts = list(slice_rows(table, name, request.slice_min_rows))
    sizes = sorted((len(at) for _, at in parts), reverse=True)
    least = sizes[min(len(sizes), MOST_INTERVALS) - 1] if sizes else 0
    found: dict[str, Any] = {}
    for value, at in parts:
        monitor.check()
        some = rows.at(at)
        found[value] = {"rows": len(at), **measured(metrics, some)}
        if len(at) >= least:
            found[value]["intervals"] = _intervals(request, some, metrics)
    return found


def _baselines(
    request: MeasureRequest, task: Task, metrics: Sequence[Metric], table: pa.Table, rows: Rows, monitor: Monitor
) -> dict[str, Any]:
    """The metrics of the constant, and of other models on the same rows."""
    found: dict[str, Any] = {}
    if request.label is not None and (values := constant(task, request.label, rows, metrics)) is not None:
        found["constant"] = values
    for name, path in request.baselines.items():
        monitor.check()
        theirs = read_predictions(path, request.columns)
        check_same_rows(table, theirs, f"the baseline {name}'s", str(path))
        found[name] = measured(metrics, _rows(request, task, theirs, metrics))
    return found


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
        "intervals": _intervals(request, decided.rows, decided.metrics),
    }


def _tables(
    request: MeasureRequest, task: Task, rows: Rows, decided: Decided | None
) -> dict[str, dict[str, list[Any]]]:
    found = {}
    for table in task.tables:
        columns = table.on(decided.rows if table.decides and decided is not None else rows)
        names = [name for name in _CLASSES if name in columns] if table.decides and request.classes else ()
        found[table.name] = columns | {name: [request.classes[i] for i in columns[name]] for name in names}
    return found
