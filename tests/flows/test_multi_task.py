"""Two labels, two heads: from raw files to predictions of the promoted version."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from headway.evaluation.verdict import Verdict

pytestmark = pytest.mark.slow
PIPELINE = """
name: two
source: {format: parquet, path: table.parquet}
label: minutes > 8
labels:
  minutes: {weight: 0.5}
  mood: mood
columns: {kind: auto, size: auto}
model: {hidden: [8]}
training: {steps: 200, batch_size: 64, learning_rate: 0.01, early_stopping: {every_steps: 100}}
gate: {thresholds: {minutes/rmse: {max: 8}}, tolerance: {auc: 5%, minutes/rmse: 20%}}
"""


def rows():
    random = np.random.default_rng(0)
    kind, size = random.integers(0, 3, 600), random.normal(size=600)
    minutes = 10 * size + 5 * kind + 3 * random.normal(size=600)
    mood = np.array(["glad", "sad"])[(minutes > 5).astype(int)]
    kinds = pa.array(["a", "b", "c"]).take(pa.array(kind))
    return {
        "kind": kinds,
        "size": size,
        "minutes": minutes,
        "mood": pa.array(mood, mask=random.random(600) < 0.3),
        "constant": np.ones(600),
    }


@pytest.fixture
def trained(made_once, typed):
    """A folder whose pipeline was run once."""

    def make(folder):
        pq.write_table(pa.table(rows()), folder / "table.parquet")
        (folder / "pipeline.yaml").write_text(PIPELINE)
        (folder / "run.json").write_text(typed("run", folder, "--json", check=0).stdout)

    return made_once("multi_task", make)


@pytest.fixture
def project(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "project")


def test_every_label_is_measured_and_one_decides(trained):
    record = json.loads((trained / "run.json").read_text())
    metrics = record["metrics"]
    verdict = Verdict.model_validate_json(next(trained.glob("store/stages/gate/*/verdict.json")).read_text())
    assert verdict.verdict == "first model" and verdict.primary == "auc"
    assert metrics["auc"] > 0.9 and metrics["mood/auc"] > 0.9
    assert metrics["minutes/rmse"] < 5 and verdict.compared("threshold")[0].metric == "minutes/rmse"
    assert verdict.metrics.baselines["constant"]["minutes/rmse"] > 9
    result = json.loads(next(trained.glob("store/stages/measure/*/metrics.json")).read_text())
    assert {"minutes/rmse", "mood/auc"} <= {name for name, value in result["intervals"].items() if value}
    history = json.loads(next(trained.glob("store/stages/train/*/history.json")).read_text())["history"]
    looks = [point for point in history if "holdout_loss" in point]
    parts = [sum(value for name, value in look.items() if name.startswith("holdout_loss/")) for look in looks]
    assert parts == pytest.approx([look["holdout_loss"] for look in looks])


def test_no_label_is_seen_by_the_model_and_a_row_without_one_of_the_further_stays(trained):
    ingested = json.loads(next(trained.glob("store/stages/ingest/*/manifest.json")).read_text())["result"]
    assert ingested["counts"]["written"] == 600
    signatures = next(trained.glob("store/models/two/1/saved_model/assets.extra/signatures.json"))
    serving = json.loads(signatures.read_text())["serving_default"]
    assert [tensor["name"] for tensor in serving["inputs"]] == ["kind", "size"]
    outputs = {tensor["name"] for tensor in serving["outputs"]}
    assert outputs == {"probability", "logit", "minutes/prediction", "mood/probability", "mood/logit"}
    card = (signatures.parent / "model_card.md").read_text()
    assert (
        "It also predicts `minutes` (regression), as `minutes/...`." in card and "the classes are 'glad', 'sad'" in card
    )
    replayed = json.loads(next(trained.glob("store/stages/replay/*/replay.json")).read_text())
    assert replayed["largest_difference"] < 1e-5


def test_predictions_have_a_column_for_each_label(typed, project):
    typed("predict", project, "--input", project / "table.parquet", "--output", project / "out", check=0)
    predicted = ds.dataset([str(path) for path in (project / "out").glob("*.parquet")]).to_table()
    assert {"prediction", "minutes/prediction", "mood/prediction"} <= set(predicted.column_names)
    assert np.abs(predicted["minutes/prediction"].to_numpy() - rows()["minutes"]).mean() < 4
    assert ((predicted["mood/prediction"].to_numpy() > 0.5) == (rows()["minutes"] > 5)).mean() > 0.85


def test_a_weight_trains_anew_and_ingests_nothing(typed, project):
    plan = json.loads(typed("plan", project, "--set", "labels.minutes.weight=2", "--json", check=0).stdout)
    cached = {step["stage"]: step["cached"] for step in plan["steps"]}
    assert cached["ingest"] and cached["transform"] and not cached["train"]
    again = json.loads(typed("plan", project, "--json", check=0).stdout)
    assert all(step["cached"] for step in again["steps"])


def test_a_candidate_whose_further_label_became_worse_is_rejected(typed, project):
    worse = json.loads(typed("run", project, "--set", "labels.minutes.weight=0.0001", "--json").stdout)
    assert worse["verdict"]["verdict"] == "reject"
    assert any(reason["summary"].startswith("minutes/rmse rose from") for reason in worse["verdict"]["reasons"])
