"""Comparisons of plain arrays and tables, as the tests of evaluation write them."""

from pathlib import Path

from headway.evaluation.compare import compare
from headway.evaluation.measure import results
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
    return compare(rows, other, metrics=[by_name[name] for name in metrics], **options)


def results_of(table, task, **options):
    """What the measuring stage says of a predictions table."""
    options = {"slice_min_rows": 1} | options
    return results(table, MeasureRequest(task=task, predictions=Path("unread"), **options), Monitor())
