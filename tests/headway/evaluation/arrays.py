"""Comparisons of plain arrays and tables, as the tests of evaluation write them."""

from pathlib import Path

from headway.evaluation.bootstrap import paired
from headway.evaluation.metrics import metrics_of
from headway.evaluation.results.request import MeasureRequest
from headway.evaluation.results.stage import results
from headway.monitor import Monitor
from headway.tasks.table import task_of


def paired_arrays(task, label, candidate, champion, weight=None, *, metrics, group=None, ndcg_at=None, **options):
    """`paired` of a built-in task's metrics by name."""
    by_name = {metric.name: metric for metric in metrics_of(task, ndcg_at)}
    rows = task_of(task).rows(label, candidate, weight, groups=group)
    other = task_of(task).rows(label, champion, weight).prediction
    return paired(rows, other, metrics=[by_name[name] for name in metrics], **options)


def results_of(table, task, **options):
    """What the measuring stage says of a predictions table."""
    options = {"slice_min_rows": 1} | options
    return results(table, MeasureRequest(task=task, predictions=Path("unread"), **options), Monitor())
