"""A task of the user's own: what its class has to say, and the sentence when it does not."""

import numpy as np
import pyarrow as pa
import pytest

from headway.errors import ConfigError
from headway.tasks.table import task_of
from headway.tasks.user_task import load_task
from tests.headway.evaluation.arrays import results_of

GOOD = """
def error(label, prediction, columns):
    return float(abs(label - prediction).mean())

class Own:
    metrics = {"error": error, "hits": lambda label, prediction, columns: float((label == prediction).mean())}
    higher_is_better = ("hits",)
    def loss(self, batch, outputs):
        return outputs[:, 0]
"""


def loaded(folder, text=GOOD, name="own:Own"):
    (folder / "own.py").write_text(text)
    return load_task(name, folder / "own.py")


def test_a_class_beside_the_pipeline_is_a_task_by_its_name(tmp_path):
    task = loaded(tmp_path)
    assert task_of("own:Own") is task and loaded(tmp_path) is task
    assert task.metric_names == ("own:error", "own:hits") and task.primary == "own:error"
    assert [metric.higher_is_better for metric in task.metrics] == [False, True]
    rows = task.rows([1.0, 2.0], [1.0, 4.0])
    assert [metric.value(rows) for metric in task.metrics] == [1.0, 0.5]
    changed = loaded(tmp_path, GOOD.replace("mean()", "max()"))
    assert changed is not task and task_of("own:Own") is changed


def test_the_name_is_unknown_in_a_process_that_has_not_loaded_it():
    with pytest.raises(ValueError, match="'nowhere:Own' is not a task"):
        task_of("nowhere:Own")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("def loss", "def lost", r"it has no loss\n  fix: def loss\(self, batch, outputs\)"),
        ("metrics = {", "measures = {", "it has no metrics"),
        ('("hits",)', '("hit",)', "higher_is_better names 'hit'"),
        ("class Own:", "class Own:\n    label = 'text'", "label is 'text'"),
        ("class Own:", "class Own:\n    outputs = 1.5", "outputs is 1.5"),
        ("class Own:", "class Own:\n    def __init__(self): raise KeyError('x')", r"Own\(\) failed: KeyError"),
        ("class Own:", "class Owner:", "has no class 'Own'\n  fix: did you mean 'Owner'"),
    ],
)
def test_what_is_wrong_with_it_is_said_with_the_fix(tmp_path, old, new, message):
    with pytest.raises(ConfigError, match=message):
        loaded(tmp_path, GOOD.replace(old, new))


def test_a_wide_prediction_is_checked(tmp_path):
    task = loaded(tmp_path, GOOD.replace("class Own:", "class Own:\n    outputs = 3"))
    assert task.wide and task.outputs() == (("prediction", "float32", (3,)),)
    assert task.rows([1.0], np.zeros((1, 3))).prediction.shape == (1, 3)


@pytest.mark.parametrize(
    ("kind", "width", "label", "prediction", "tables"),
    [
        ("classes", 1, [0, 1, 1], [0.1, 0.9, 0.4], "reliability lift confusion per_class roc precision_recall"),
        ("classes", 1, [0, 1, 1], [-3.0, 2.0, 0.4], "lift roc precision_recall"),
        ("classes", 1, [0, 1, 2], [0.0, 1.0, 2.0], ""),
        ("classes", 3, [0, 1, 2], [[0.2, 0.5, 0.3]] * 3, "reliability confusion per_class"),
        ("classes", 3, [0, 1, 2], [[0.2, 5.0, 0.3]] * 3, ""),
        ("number", 1, [0, 1, 1], [0.1, 0.9, 0.4], "reliability lift confusion per_class roc precision_recall"),
        ("number", 1, [0, 1, 1], [0.1, 1.9, 0.4], "residuals"),
        ("number", 2, [3.0, 4.0, 5.0], [[0.1, 0.2]] * 3, ""),
    ],
)
def test_tables_are_those_that_its_labels_and_predictions_allow(tmp_path, kind, width, label, prediction, tables):
    task = loaded(tmp_path, GOOD.replace("class Own:", f"class Own:\n    label, outputs = {kind!r}, {width}"))
    rows = task.rows(label, prediction)
    found = task.tables_for(rows)
    assert " ".join(table.name for table in found) == tables
    assert all(table.compute(rows) for table in found)


def test_the_worst_slices_are_those_of_its_loss_per_row(tmp_path):
    task, kind = loaded(tmp_path), np.arange(2000) % 4
    loss = np.random.default_rng(0).random(2000) + (kind == 2)
    table = pa.table({"label": np.ones(2000), "prediction": np.ones(2000), "row_loss": loss, "kind": kind})
    (worst,) = results_of(table, task.name, searched=["kind"])["worst_slices"]["slices"]
    assert (worst["slice"], worst["value"], worst["rows"]) == ("kind", "2", 500)
    assert worst["loss"] == pytest.approx(loss[kind == 2].mean())
    assert results_of(table.drop_columns("row_loss"), task.name, searched=["kind"])["worst_slices"] is None


def test_its_metrics_see_the_columns_of_the_predictions(tmp_path):
    task = loaded(
        tmp_path, GOOD.replace("return float(abs(label", "return float((columns['kind'] == 'b').sum() + abs(label")
    )
    table = pa.table({"label": [1.0, 2.0], "prediction": [1.0, 2.0], "kind": ["a", "b"]})
    found = results_of(table, task.name, slices=["kind"])
    assert found["metrics"]["own:error"] == 1.0
    wanted = {"a": 0.0, "b": 1.0}
    assert {value: of["metrics"]["own:error"] for value, of in found["by_slice"]["kind"].items()} == wanted
