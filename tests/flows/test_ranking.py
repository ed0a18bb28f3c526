"""A pipeline that learns the order within groups, as it is typed."""

import json

import numpy as np
import pytest

from flows.config.pipeline import read_pipeline

PIPELINE = """
name: ranked
source: {format: csv, path: "{span}.csv"}
label: y
task: binary
columns: {query: {type: string, role: group}, x: }
split: {key: query, eval: 0.3}
training: {steps: 40, batch_size: 64, learning_rate: 0.01, ranking: {share: 0.5, kind: lambdarank, k: 5}}
"""


def test_groups_are_the_key_of_a_split_by_hash_that_has_none(tmp_path):
    def key(split):
        (tmp_path / "pipeline.yaml").write_text(PIPELINE.replace("split: {key: query, eval: 0.3}", split))
        return read_pipeline(tmp_path).pipeline.split

    assert key("split: {eval: 0.3}").key == ("query",) and key("split: {eval: 0.3}").eval == 0.3
    assert key("").key == ("query",)
    assert key("split: {key: x}").key == ("x",)
    assert key("split: {mode: time}").key == ()
    assert key("split: {mode: column, column: x}").key == ()


@pytest.mark.slow
def test_a_pipeline_ranks_within_its_group_column_and_says_when_there_is_none(headway, tmp_path):
    rng = np.random.default_rng(0)
    query, x = np.sort(rng.integers(0, 60, 1500)), rng.normal(size=1500)
    y = (x + rng.normal(size=60)[query] > 0).astype(int)
    judged = "gate: {thresholds: {ndcg: {min: 0.2}, mrr: {min: 0.2}}}\nevaluation: {slice_min_rows: 1}\n"
    (tmp_path / "pipeline.yaml").write_text(PIPELINE + judged)
    rows = [f"q{q},{value:.4f},{label}" for q, value, label in zip(query, x, y, strict=True)]
    (tmp_path / "2013-01.csv").write_text("\n".join(["query,x,y", *rows]) + "\n")
    assert json.loads(headway("run", tmp_path, "--json", check=0).stdout)["state"] == "promoted"
    (verdict,) = tmp_path.glob("store/stages/gate/*/verdict.json")
    found = json.loads(verdict.read_text())
    assert 0.2 < found["metrics"]["candidate"]["mrr"] <= 1 and found["settings"]["ndcg_at"] == 5
    assert [check["metric"] for check in found["thresholds"]] == ["ndcg", "mrr"]
    (metrics,) = tmp_path.glob("store/stages/measure/*/metrics.json")
    assert json.loads(metrics.read_text())["metrics"]["ndcg"] == found["metrics"]["candidate"]["ndcg"]

    rng.shuffle(rows)
    (tmp_path / "2013-01.csv").write_text("\n".join(["query,x,y", *rows]) + "\n")
    said = headway("train", tmp_path, check=3).stderr
    assert "in 'query' do not lie together, as those of 'q" in said and "sort the input by query" in said
    assert "Traceback" not in said

    (tmp_path / "pipeline.yaml").write_text(PIPELINE.split("training:")[0] + judged)
    said = headway("train", tmp_path, check=2).stderr
    assert "metric 'ndcg' judges the order within groups, and this pipeline has no groups to rank" in said

    text = PIPELINE.replace("{type: string, role: group}", "{type: string, role: key}")
    (tmp_path / "pipeline.yaml").write_text(text)
    said = headway("train", tmp_path, check=2).stderr
    assert "training.ranking" in said and "needs a column with role: group" in said and "Traceback" not in said
