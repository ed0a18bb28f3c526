"""Every metric that a built-in task reports has a plain meaning for those who do not know its name."""

import pytest

from headway.evaluation.predictions import metrics_of
from headway.metrics.meanings import meaning
from headway.tasks.table import BUILT_IN


@pytest.mark.parametrize("task", BUILT_IN)
def test_every_metric_of_a_built_in_task_has_a_meaning(task):
    metrics = metrics_of(task, 10, item="item", retrieval=True)
    assert len(metrics) > 12 and not [metric.name for metric in metrics if not meaning(metric.name, task)]


def test_a_name_that_tasks_share_means_another_thing_in_each():
    assert len({meaning("loss", task) for task in BUILT_IN}) == 4  # binary and multiclass have the log loss
    assert len({meaning("bias", task) for task in ("binary", "multiclass", "regression")}) == 3
    assert meaning("loss", "quantiles(0.1, 0.9)") == meaning("loss", "quantiles")


def test_of_a_metric_of_the_users_own_no_more_is_said_than_is_known():
    assert meaning("costs:money", "binary") == meaning("loss") == ""
