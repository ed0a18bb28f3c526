"""Tasks by name: what each accepts and predicts."""

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from headway.errors import DataError
from headway.metrics.base import MomentMetric
from headway.tasks.base import LabelFacts
from headway.tasks.table import BUILT_IN, TaskOrAuto, task_of

TASKS = ["binary", "multiclass", "regression", "count", "quantiles"]


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_judged_by_metrics_it_has(name):
    task = task_of(name)
    assert name in BUILT_IN and task_of(task) is task and task_of(task.name).name == task.name
    assert task.primary in task.compared and set(task.tolerances) <= set(task.compared)
    assert len(set(task.metric_names)) == len(task.metrics) and task.metric(task.primary).name == task.primary
    with pytest.raises(KeyError):
        task.metric("nothing")


def test_quantiles_are_named_by_their_levels():
    assert task_of("quantiles").name == "quantiles(0.1, 0.5, 0.9)"
    assert task_of(" quantiles( .05,0.95 )").name == "quantiles(0.05, 0.95)"
    assert task_of("quantiles(0.05, 0.95)").levels == (0.05, 0.95)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("binry", "'binry' is not a task; did you mean 'binary'"),
        ("quantiles(0.9, 0.1)", "in rising order, not 0.9, 0.1"),
        ("quantiles(0, 0.5)", "between 0 and 1"),
        ("quantiles(a)", "'a' are not numbers; write quantiles"),
        ("quantiles(0.5", "is not a task"),
    ],
)
def test_a_name_that_is_not_a_task_is_refused_with_the_fix(name, message):
    with pytest.raises(ValidationError, match=message.replace("(", r"\(")):
        TypeAdapter(TaskOrAuto).validate_python(name)


def test_configs_may_name_auto_and_tasks_of_a_users_module():
    for name in ("auto", "my_tasks:Ordinal", "count"):
        assert TypeAdapter(TaskOrAuto).validate_python(name) == name


@pytest.mark.parametrize(
    ("task", "label", "prediction", "message"),
    [
        ("count", [1.0, -2.0], [1.0, 1.0], "a count is 0 or more, but row 1 is -2"),
        ("quantiles", [1.0], [1.0], "do not fit the task quantiles"),
        ("binary", [0.0, 2.0], [0.1, 0.2], "0 or 1, but row 1 is 2"),
    ],
)
def test_labels_and_predictions_of_another_kind_are_refused(task, label, prediction, message):
    with pytest.raises(DataError, match=message):
        task_of(task).rows(label, prediction)


def test_the_constant_of_each_task():
    assert task_of("count").constant(LabelFacts(mean=3.0, median=2.0), 2).tolist() == [3.0, 3.0]
    assert task_of("count").constant(LabelFacts(mean=3.0, median=2.0), 2, "mae").tolist() == [2.0, 2.0]
    facts = LabelFacts(quantiles=(1.0, 2.0, 9.0))
    assert task_of("quantiles").constant(facts, 2).tolist() == [[1.0, 2.0, 9.0]] * 2
    assert task_of("quantiles").constant(LabelFacts(), 2) is None
    assert task_of("multiclass").constant(LabelFacts(counts=(1, 3)), 1).tolist() == [[0.25, 0.75]]


def test_a_user_writes_a_metric_in_one_line():
    bias = MomentMetric("bias", lambda rows: (rows.prediction - rows.label)[:, None], higher_is_better=None)
    assert bias.value(task_of("regression").rows([1.0, 2.0], [2.0, 4.0])) == pytest.approx(1.5)
    assert bias.value(task_of("regression").rows([1.0], [np.nan])) is None
