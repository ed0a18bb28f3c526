"""The flows of production as they are typed: backfill, predict --spans, monitor."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.config.pipeline import read_pipeline
from headway.monitor import Monitor
from headway.registry.registry import Registry
from headway.schema.columns import Column
from headway.storage.store import Store
from headway.validation.serving import span_statistics

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_a_backfill_judges_each_window_and_promotes_nothing(typed, churn):
    done = typed(
        "backfill", churn, "--from", "2024-01", "--to", "2024-04", "--window", "2", "--parallel", "2", "--json", check=0
    )
    result = json.loads(done.stdout)
    rows = {row["until"]: row for row in result["rows"]}
    assert rows["2024-01"]["state"] == "too short" and rows["2024-02"]["spans"] == ["2024-01", "2024-02"]
    # the champion was trained on 2024-01 and 2024-02, and judged on 2024-03
    assert rows["2024-02"]["state"] == "needs a person"
    assert rows["2024-04"]["state"] in ("promoted", "kept", "rejected") and rows["2024-04"]["metrics"]["auc"]
    champion = json.loads((churn / "store" / "models" / "churn" / "champion.json").read_text())
    assert champion["version"] == 1
    # a second call finds all of it
    again = typed("backfill", churn, "--from", "2024-02", "--to", "2024-04", "--window", "2", "--json", check=0)
    assert all(row["cached"] for row in json.loads(again.stdout)["rows"])
    text = typed("backfill", churn, "--from", "2024-02", "--to", "2024-02", "--window", "2", check=0).stdout
    assert "needs a person" in text and "cached" in text, "the word that every list has for it"


def test_a_backfill_may_ingest_alone_and_one_span(typed, churn):
    result = json.loads(typed("backfill", churn, "--from", "2024-04", "--upto", "ingest", "--json", check=0).stdout)
    assert [(row["until"], row["state"]) for row in result["rows"]] == [("2024-04", "ingested")]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--from", "2030-01"], "no span lies between '2030-01' and '2024-04'"),
        (["--from", "2024-01", "--to", "2024-01"], "none of 1 window has enough spans"),
        (["--from", "2024-01", "--upto", "train", "--promote"], "has nothing to promote"),
        (["--from", "2024-01", "--parallel", "0"], "--parallel"),
        ([], "--from SPAN is needed"),
    ],
)
def test_a_backfill_that_cannot_be_says_why(arguments, words, typed, months):
    assert words in typed("backfill", months, *arguments, check=2).stderr


def test_each_span_is_predicted_once_and_appears_whole(typed, churn, land):
    result = json.loads(typed("predict", churn, "--spans", "--since", "2024-03", "--json", check=0).stdout)
    assert [row["span"] for row in result["spans"]] == ["2024-03", "2024-04"]
    folder = churn / "predictions" / "span=2024-04"
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert pq.read_table(folder / "part-00000-of-00001.parquet").num_rows == 300
    land(churn / "data", "2024-05", labels=False)  # of what is to be predicted nobody knows the label
    result = json.loads(typed("predict", churn, "--spans", "--since", "2024-03", "--json", check=0).stdout)
    assert [row["span"] for row in result["spans"]] == ["2024-05"] and result["there"] == 2
    assert before == {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert not list((churn / "predictions").glob(".span*"))
    assert "nothing to predict: 3 spans" in typed("predict", churn, "--spans", "--since", "2024-03", check=0).stdout


def test_drift_and_a_champion_that_became_worse_are_alarms(typed, churn, land):
    assert "300 rows" in typed("monitor", churn, check=0).stdout
    land(churn / "data", "2024-05", shift=3.0)
    done = typed("monitor", churn, "--json", check=3)
    (row,) = json.loads(done.stdout)["spans"]
    assert row["span"] == "2024-05" and row["scored"] == 300
    assert any("column 'x' has drifted from version 1" in text for text in row["drift"])
    assert any("has become worse since it was promoted" in text for text in row["decay"])
    assert "nothing new to check" in typed("monitor", churn, check=0).stdout
    # what was found of a champion is kept when another comes, and counts again when it comes back
    registry = Registry(Store(churn / "store"), "churn")
    other = registry.publish(registry.version(1).saved_model, registry.version(1).facts)
    registry.promote(other.number, reason="another")
    typed("monitor", churn, check=3)
    kept = json.loads((churn / "store" / "monitor" / "churn.json").read_text())
    wanted = {"1": ["2024-04", "2024-05"], "2": ["2024-04", "2024-05"]}
    assert {number: [*spans] for number, spans in kept["versions"].items()} == wanted
    registry.rollback()
    assert "nothing new to check" in typed("monitor", churn, check=0).stdout


RANKED = """
name: ranked
source: {format: parquet, path: "data/{span}.parquet"}
label: y
task: binary
columns: {query: {role: group}, x: standardize}
split: {mode: time}
model: {name: mlp, hidden: [4]}
training: {steps: 60, batch_size: 64, learning_rate: 0.02, ranking: {kind: lambdarank, k: 5}}
evaluation: {slices: []}
gate: {baseline: false, tolerance: {ndcg: 0.1}, thresholds: {mrr: {min: 0.2}}}
validation: {drift: {min_rows: 100}}
arrival: {quiet_minutes: 0}
"""


def test_a_champion_that_ranks_is_scored_again_by_the_order_within_groups(typed, tmp_path):
    (tmp_path / "pipeline.yaml").write_text(RANKED)
    (tmp_path / "data").mkdir()

    def land(name, sign=1.0):
        r = np.random.default_rng(int(name[-1]))
        query, x = np.repeat(np.arange(80), 8), r.normal(size=640)
        y = (x * sign + 0.3 * r.normal(size=640) > 0.8).astype(np.int64)
        pq.write_table(pa.table({"query": query, "x": x, "y": y}), tmp_path / "data" / f"{name}.parquet")

    for name in ("2024-01", "2024-02", "2024-03"):
        land(name)
    typed("run", tmp_path, "--until", "2024-02", check=0)
    (row,) = json.loads(typed("monitor", tmp_path, "--json", check=0).stdout)["spans"]
    assert row["span"] == "2024-03" and row["scored"] == 640 and row["metrics"]["ndcg"] > 0.8 and not row["decay"]
    land("2024-04", sign=-1.0)
    result = json.loads(typed("monitor", tmp_path, "--json", check=3).stdout)
    (row,) = result["spans"]
    assert row["metrics"]["ndcg"] < 0.6 and not result["notes"]
    assert any("has become worse since it was promoted: ndcg was" in text for text in row["decay"])


def test_labels_that_come_later_are_scored_when_they_come(typed, churn, land):
    config = churn / "pipeline.yaml"
    config.write_text(config.read_text() + 'predictions: {path: "incoming/{span}.parquet"}\n')
    land(churn / "incoming", "2024-05", shift=3.0, labels=False)
    typed("monitor", churn, check=3)  # 2024-04, which was trained on by nobody, and the drift of 2024-05
    known = json.loads((churn / "store" / "monitor" / "churn.json").read_text())["versions"]["1"]
    assert known["2024-05"]["rows"] == 300 and known["2024-05"]["drift"] and "scored" not in known["2024-05"]
    land(churn / "data", "2024-05", shift=3.0)
    result = json.loads(typed("monitor", churn, "--json", check=3).stdout)
    (row,) = result["spans"]
    assert row["span"] == "2024-05" and row["scored"] == 300
    assert all("become worse" in alarm for alarm in result["alarms"]), "the drift was told before"
    known = json.loads((churn / "store" / "monitor" / "churn.json").read_text())["versions"]["1"]
    assert known["2024-05"]["drift"] and known["2024-05"]["scored"] == 300


def test_without_a_champion_there_is_nothing_to_watch_over(typed, months):
    assert "has no champion to watch over" in typed("monitor", months, check=5).stderr


def test_statistics_of_raw_files_need_no_label(months, land):
    land(months / "data", "2024-09", labels=False)
    columns = [Column(name="x", type="float32", nullable=False), Column(name="c", type="bytes", nullable=False)]
    found = span_statistics(read_pipeline(months).pipeline.source, "2024-09", columns, Monitor())
    assert found.rows == 300 and set(found.columns) == {"x", "c"}
    assert found.columns["c"].values == 300
