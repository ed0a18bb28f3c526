"""Comparisons of plain arrays and tables, as the tests of evaluation write them."""

from pathlib import Path

import numpy as np

from headway.evaluation.compare import compare
from headway.evaluation.measure import measure_table
from headway.evaluation.predictions import measured, metrics_of
from headway.evaluation.requests import MeasureRequest
from headway.monitor import Monitor
from headway.tasks.table import task_of


def measure(task, label, prediction, weight=None):
    """Every metric of a task, weighted; None where one is undefined."""
    return measured(task_of(task).metrics, task_of(task).rows(label, prediction, weight))


def compare_arrays(task, label, candidate, champion, weight=None, *, metrics, group=None, ndcg_at=None, **options):
    """`compare` of a built-in task's metrics by name."""
    by_name = {metric.name: metric for metric in metrics_of(task, ndcg_at)}
    rows = task_of(task).rows(label, candidate, weight, groups=group)
    other = task_of(task).rows(label, champion, weight).prediction
    return compare(rows, rows.predicted(other), metrics=[by_name[name] for name in metrics], **options)


def results_of(table, task, **options):
    """What the measuring stage says of a predictions table."""
    options = {"slice_min_rows": 1} | options
    return measure_table(table, MeasureRequest(task=task, predictions=Path("unread"), **options), Monitor())


def scored(task, weighted=True, grouped=False, rows=2000, seed=0):
    """Rows of a task; scores of a binary one have ties."""
    r = np.random.default_rng(seed)
    weight = r.uniform(0.2, 3, rows) if weighted else None
    groups = r.integers(0, 150, rows) if grouped else None
    score, x = np.round(r.random(rows), 2) * 0.9 + 0.05, r.normal(size=rows)
    if task == "binary":
        return task_of(task).rows(r.random(rows) < score, score * 0.9 + 0.05, weight, groups=groups)
    if task == "multiclass":
        probabilities = r.dirichlet([1, 2, 3], rows)
        label = np.array([r.choice(3, p=row) for row in probabilities])
        return task_of(task).rows(
            label, probabilities**2 / (probabilities**2).sum(1, keepdims=True), weight, groups=groups
        )
    if task == "count":
        return task_of(task).rows(r.poisson(np.exp(x / 2)), np.exp(x / 2) * 1.2, weight, groups=groups)
    label = x + r.normal(size=rows) + 3
    prediction = x + 3.2 if task == "regression" else x[:, None] + np.array([2, 3, 4.5])
    return task_of(task).rows(label, prediction, weight, groups=groups)
