"""A pipeline that learns the order within groups, as it is typed."""

import importlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
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


@pytest.mark.long
def test_a_pipeline_ranks_within_its_group_column_and_says_when_there_is_none(typed, tmp_path):
    rng = np.random.default_rng(0)
    query, x = np.sort(rng.integers(0, 150, 3750)), rng.normal(size=3750)
    y = (x + rng.normal(size=150)[query] > 0).astype(int)
    judged = "gate: {thresholds: {ndcg: {min: 0.2}, mrr: {min: 0.2}}}\nevaluation: {slice_min_rows: 1}\n"
    (tmp_path / "pipeline.yaml").write_text(PIPELINE + judged)
    rows = [f"q{q},{value:.4f},{label}" for q, value, label in zip(query, x, y, strict=True)]
    (tmp_path / "2013-01.csv").write_text("\n".join(["query,x,y", *rows]) + "\n")
    assert json.loads(typed("run", tmp_path, "--json", check=0).stdout)["state"] == "promoted"
    (verdict,) = tmp_path.glob("store/stages/gate/*/verdict.json")
    found = json.loads(verdict.read_text())
    assert 0.2 < found["metrics"]["candidate"]["mrr"] <= 1
    assert [check["metric"] for check in found["checks"] if check["name"] == "threshold"] == ["ndcg", "mrr"]
    (metrics,) = tmp_path.glob("store/stages/measure/*/metrics.json")
    assert json.loads(metrics.read_text())["metrics"]["ndcg"] == found["metrics"]["candidate"]["ndcg"]

    rng.shuffle(rows)
    (tmp_path / "2013-01.csv").write_text("\n".join(["query,x,y", *rows]) + "\n")
    said = typed("run", "--to", "train", tmp_path, check=3).stderr
    assert "in 'query' do not lie together, as those of 'q" in said and "sort the input by query" in said
    assert "Traceback" not in said

    (tmp_path / "pipeline.yaml").write_text(PIPELINE.split("training:")[0] + judged)
    said = typed("run", "--to", "train", tmp_path, check=2).stderr
    assert "metric 'ndcg' judges the order within groups, and this pipeline has no groups to rank" in said

    text = PIPELINE.replace("{type: string, role: group}", "{type: string, role: key}")
    (tmp_path / "pipeline.yaml").write_text(text)
    said = typed("run", "--to", "train", tmp_path, check=2).stderr
    assert "training.ranking" in said and "needs a column with role: group" in said and "Traceback" not in said


MOVIELENS = Path(__file__).parents[2] / "examples" / "movielens"


@pytest.fixture
def example(monkeypatch):
    """The example's modules generate and prepare."""
    monkeypatch.syspath_prepend(str(MOVIELENS))
    for name in ("generate", "prepare"):  # another example has a prepare too
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module("generate"), importlib.import_module("prepare")
    for name in ("generate", "prepare"):
        sys.modules.pop(name, None)


def test_the_examples_rows_know_of_a_user_what_was_rated_before_them(example, tmp_path):
    generate, prepare = example
    generate.write(tmp_path / "ml-100k", users=30, movies=60)
    rows = prepare.table(tmp_path / "ml-100k")
    ratings = [tuple(map(int, line.split())) for line in (tmp_path / "ml-100k" / "u.data").read_text().splitlines()]
    assert rows.num_rows == len(ratings) and set(rows.column("rating").to_pylist()) <= {1, 2, 3, 4, 5}
    for row in rows.slice(0, 300).to_pylist():
        past = {
            m: r for u, m, r, t in ratings if u == row["user_id"] and t < np.datetime64(row["time"], "s").astype(int)
        }
        assert all(past[movie] >= 4 for movie in row["liked"]) and all(past[movie] < 4 for movie in row["disliked"])
        assert len(row["liked"]) == min(50, sum(rating >= 4 for rating in past.values()))
    (tmp_path / "ml-100k" / "u.user").write_text("1|24|M\n")
    with pytest.raises(SystemExit, match=r"u\.user:1: 5 fields are expected, and it has 3.*grouplens"):
        prepare.table(tmp_path / "ml-100k")
    with pytest.raises(SystemExit, match=r"is missing: fetch ml-100k\.zip"):
        prepare.table(tmp_path)


@pytest.mark.long
def test_two_towers_find_the_taste_in_histories_and_beat_popularity_and_the_items_mean(typed, tmp_path, example):
    generate, prepare = example
    generate.write(tmp_path / "ml-100k", users=300, movies=120)
    rows = prepare.table(tmp_path / "ml-100k")
    months = rows.column("time").to_numpy().astype("datetime64[M]")
    (tmp_path / "data").mkdir()
    for month in np.unique(months):
        pq.write_table(rows.filter(months == month), tmp_path / "data" / f"{month}.parquet")
    shutil.copy(MOVIELENS / "pipeline.yaml", tmp_path)
    window = ("--window", str(len(np.unique(months))))
    first = json.loads(typed("run", tmp_path, *window, "--json", check=0).stdout)
    ndcg = {name: metrics["ndcg"] for name, metrics in (first["baselines"] | {"model": first["metrics"]}).items()}
    assert first["state"] == "promoted" and ndcg["popularity"] < ndcg["item_mean"] < ndcg["model"] - 0.03, ndcg
    (measured,) = tmp_path.glob("store/stages/measure/*/metrics.json")
    result = json.loads(measured.read_text())
    for name in ("retrieval_recall", "retrieval_ndcg", "retrieval_mrr", "retrieval_coverage"):
        low, high = result["intervals"][name]
        assert 0 < result["metrics"][name] < 1 and low < high and name in result["by_slice"]["gender"]["F"]["metrics"]
    assert 0 < first["metrics"]["item_coverage"] <= 1 and 0 < first["metrics"]["recall_at_k"] < 1
