"""Metrics that a task does not have are told before anything runs, or as soon as the task is known."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.cli.app import main
from flows.config.pipeline import read_pipeline
from flows.pipeline.context import check_metrics, label_facts, possible_tasks
from headway.errors import ConfigError
from headway.messages import metrics_line
from headway.schema.columns import Column
from headway.statistics.summary import ColumnSummary, WindowStatistics
from headway.tabular.label import LabelConfig
from headway.tasks.base import LabelFacts
from tfcore.heads.label_parameters import LabelParameters

COLUMNS = tuple(
    Column(name=name, type=kind, nullable=False) for name, kind in [("n", "int64"), ("x", "float32"), ("t", "bytes")]
)
PIPELINE = """
name: toy
source: {format: parquet, path: data.parquet}
label: LABEL
columns: {x: , z: }
"""


@pytest.fixture
def project(tmp_path):
    """project(label, more) -> the folder of a pipeline over 60 rows with labels of every kind."""
    r = np.random.default_rng(0)
    rows = {"x": r.normal(size=60), "z": r.normal(size=60), "n": np.arange(60) % 3, "t": [*"abc"] * 20}
    pq.write_table(pa.table(rows), tmp_path / "data.parquet")

    def write(label, more):
        (tmp_path / "pipeline.yaml").write_text(PIPELINE.replace("LABEL", label) + more)
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("task", "label", "tasks"),
    [
        ("regression", "n", {"regression"}),
        ("auto", "x > 1", {"binary"}),
        ("auto", "n == 1 and t == 'a'", {"binary"}),
        ("auto", "x * 2", {"binary", "regression"}),
        ("auto", "t", {"binary", "multiclass"}),
        ("auto", "n", {"binary", "multiclass", "regression"}),
        ("auto", "gone > 1", {"binary", "multiclass", "regression"}),
    ],
)
def test_the_task_is_inferred_from_the_label_where_possible(task, label, tasks):
    assert set(possible_tasks(task, LabelConfig.model_validate(label), COLUMNS)) == tasks


@pytest.mark.parametrize(
    ("label", "gate", "words"),
    [
        (
            "x > 0",
            "gate: {thresholds: {rmse: {max: 1}}}",
            ["'rmse' does not exist for a binary task", "gate.thresholds"],
        ),
        ("x > 0", "gate: {tolerance: {rmse: 1%}}", ["'rmse' does not exist for a binary task", "gate.tolerance"]),
        ("x > 0", "gate: {primary: mae}", ["'mae' does not exist for a binary task", "gate.primary"]),
        (
            "n",
            "task: multiclass\ngate: {thresholds: {auc: {min: 0.8}}}",
            ["'auc' does not exist for a multiclass task"],
        ),
        ("t", "gate: {tolerance: {auc: 0.1, rmse: 1%}}", ["auc, rmse do not all exist", "multiclass"]),
        (
            "n",
            "gate: {tolerance: {mrr: 0.1}}",
            ["judges the order within groups, and this pipeline has no groups to rank"],
        ),
    ],
)
def test_a_metric_that_the_task_does_not_have_is_reported_by_a_plan(typed, project, label, gate, words):
    told = typed("plan", project(label, gate), check=2).stderr
    assert all(word in told for word in [*words, "pipeline.yaml", "fix:"]), told
    assert not (project(label, gate) / "store").exists()


@pytest.mark.slow  # imports Beam
def test_a_metric_that_only_the_data_rule_out_is_reported_before_training(typed, project):
    """Three classes in text: an AUC might have been meant for two."""
    folder = project("t", "gate: {thresholds: {auc: {min: 0.8}}}\n")
    typed("plan", folder, check=0)
    told = typed("run", "--to", "train", folder, check=2).stderr
    assert "metric 'auc' does not exist for a multiclass task" in told and "gate.thresholds" in told
    assert not list(folder.glob("store/stages/train/*")) and list(folder.glob("store/stages/transform/*"))


def test_a_stage_that_the_dag_lacks_is_refused_before_a_run_is_recorded(project, capsys):
    folder = project("t", "")
    assert main(["run", "--to", "trian", str(folder)]) == 2
    told = capsys.readouterr().err
    assert "'trian' is no stage" in told and "validate, transform, train" in told
    assert not list(folder.glob("store/runs/*"))


@pytest.mark.parametrize(
    ("setting", "task", "words"),
    [
        ("ndcg_at: 3", "multiclass", "ndcg_at needs an order"),
        ("threshold: f1", "regression", "decides between two classes, and the task is regression"),
    ],
)
def test_a_setting_that_the_task_has_no_use_for_is_refused(project, setting, task, words):
    loaded = read_pipeline(project("t", f"evaluation: {{{setting}}}\n"))
    with pytest.raises(ConfigError, match=words):
        check_metrics(loaded, (task,))
    check_metrics(loaded, ("binary", "multiclass"))


MEDIANS = {"label": 2.0, "x": 9.0}


def test_what_the_constant_needs_of_the_labels():
    columns = [ColumnSummary(column=name, type="float32", rows=10, median=median) for name, median in MEDIANS.items()]
    statistics = WindowStatistics(columns={"train": columns})
    label = LabelParameters(task="regression", type="float32", mean=3.0)
    assert label_facts(label, statistics) == LabelFacts(counts=(), mean=3.0, median=2.0)
    label = LabelParameters(task="binary", type="int64", counts=(7, 3))
    assert label_facts(label, statistics) == LabelFacts(counts=(7, 3), mean=None, median=None)


def test_a_line_of_metrics_has_the_baselines_beside_them():
    found = {"auc": 0.912, "loss": 0.3, "calibration": 1.01}
    baselines = {"constant": {"auc": 0.5, "loss": 0.6, "calibration": 1.0}, "linear": {"auc": 0.9, "loss": None}}
    wanted = "auc 0.912 (constant 0.5, linear 0.9), loss 0.3 (constant 0.6), calibration 1.01"
    assert metrics_line(found, baselines) == wanted
    assert metrics_line(found) == "auc 0.912, loss 0.3, calibration 1.01" and metrics_line(None, baselines) == ""
