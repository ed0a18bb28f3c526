"""Who a candidate is compared with from run to run, on the real DAG and gate, with models that are only predictions."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.config.pipeline import read_pipeline
from flows.pipeline.context import Context
from flows.pipeline.dag import walk
from flows.pipeline.run import promote
from flows.report.verdict import explain
from headway.errors import Overtaken
from headway.evaluation.gate import gate
from headway.evaluation.measure import measure
from headway.monitor import Monitor

ROWS = 5_000
NONE = {"quarantined": 0, "filtered": 0}
LABEL = (np.arange(ROWS) % 10 < 4).astype(np.int64)
PIPELINE = """
name: toy
source: {format: parquet, path: "data/{span}.parquet"}
label: y > 0
columns: {x: , z: }
split: {eval: 0.2, test: 0.1}
gate: {tolerance: {accuracy: 0.01}, primary: accuracy}
"""


@pytest.fixture(autouse=True)
def made_up(monkeypatch):
    """Results are made up here: of them there is no table to show."""
    monkeypatch.setattr("flows.pipeline.steps.column_table", lambda *_: [])


class Predicted:
    """A caller whose models get a share of the rows wrong: {train fingerprint or version: share}."""

    def __init__(self, folder, share):
        self.folder, self.share, self.known, self.titles = folder, share, {}, []

    def call_many(self, steps):
        return [self.call(step) for step in steps]

    def call(self, step):
        out = self.folder / step.fingerprint
        out.mkdir(exist_ok=True)
        self.titles.append(step.title)
        result = getattr(self, "_" + step.stage.name, lambda step, out: {})(step, out)
        return step.output(out, result)

    def _ingest(self, step, out):
        splits = {part: {"rows": 9, "statistics": part, "shards": []} for part in ("train", "eval", "test")}
        return {"splits": splits, "columns": [], "counts": dict.fromkeys(("read", "written"), 27) | NONE}

    def _statistics(self, step, out):
        return {"columns": {"train": []}, "rows": {}}

    def _validate(self, step, out):
        return {"anomalies": [], "errors": 0}

    def _transform(self, step, out):
        label = {"task": "binary", "type": "int64", "counts": [600, 400]}
        return {"notes": [], "parameters": {"fitted": [], "label": label}}

    def _train(self, step, out):
        by_seed = isinstance(self.share, dict)
        self.known[step.fingerprint] = self.share[step.key["config"]["seed"]] if by_seed else self.share
        return {}

    def _evaluate(self, step, out):
        model = step.key["model"]
        wrong = self.known[model["train"] if "train" in model else model["export"]]
        right = np.arange(ROWS) >= wrong * ROWS
        pq.write_table(
            pa.table({"label": LABEL, "prediction": np.where(right == LABEL, 0.8, 0.2)}), out / "predictions.parquet"
        )
        return {"predictions": "predictions.parquet", "rows": ROWS, "metrics": {"accuracy": 1 - wrong, "loss": 0.3}}

    def _measure(self, step, out):
        return measure(step.stage, out, Monitor())

    def _gate(self, step, out):
        return gate(step.stage, out, Monitor())

    def _export(self, step, out):
        self.known[step.fingerprint] = self.known[step.key["inputs"]["train"]]
        return {"saved_model": "saved_model", "signatures": []}

    def _replay(self, step, out):
        return {}


def with_columns(monkeypatch, names, values):
    """Predictions have columns of these values, named by names(step)."""
    plain = Predicted._evaluate

    def evaluate(self, step, out):
        result = plain(self, step, out)
        table = pq.read_table(out / "predictions.parquet")
        for name in names(step):
            table = table.append_column(name, pa.array(values))
        pq.write_table(table, out / "predictions.parquet")
        return result

    monkeypatch.setattr(Predicted, "_evaluate", evaluate)


@pytest.fixture
def run(tmp_path):
    """run(until, share, seed) -> (the run's result, the steps' titles); promotes what passed."""
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "data").mkdir()
    (tmp_path / "outputs").mkdir()
    (tmp_path / "saved_model").mkdir()
    for span in range(1, 4):
        rows = np.random.default_rng(span).normal(size=(3, 50))
        pq.write_table(pa.table(dict(zip("xzy", rows, strict=True))), tmp_path / "data" / f"2024-0{span}.parquet")
    known = {}

    def go(until, share, seed=0, meanwhile=lambda registry: None, last=None, force=False, **overrides):
        loaded = read_pipeline(tmp_path, {key.replace("__", "."): value for key, value in overrides.items()})
        store = loaded.open_store()
        store.create()
        context = Context(loaded=loaded, store=store, until=until, seed=seed, last=last, force=force, freezes=False)
        executor = Predicted(tmp_path / "outputs", share)
        executor.known = known
        end = walk(context, executor)
        if end.verdict.promote:
            version = context.registry.publish(tmp_path / "saved_model", json.loads(json.dumps(end.facts)))
            meanwhile(context.registry)
            promote(context, version, run="r")
        return end, executor.titles, context.registry

    return go


def test_equal_rows_count_as_one_where_a_split_by_row_kept_many_together(run, monkeypatch):
    split = {"rows": ROWS, "distinct": 4}
    monkeypatch.setattr(Predicted, "_splits", lambda *_: {"splits": {"eval": split}}, raising=False)
    with_columns(monkeypatch, lambda step: step.key["columns"], np.arange(ROWS) % 4)
    held, *_ = run("2024-01", 0.10)
    assert held.verdict.status == "needs a person" and not held.verdict.promote
    said = explain(held.verdict).sentences[0]
    assert said.startswith("5,000 eval rows are too few to say") and "under 5 groups, equal rows, " in said
    split["distinct"] = ROWS - 400
    assert run("2024-02", 0.10)[0].verdict.status == "promoted"


def test_what_is_as_good_stays_and_what_is_newer_and_not_blocked_is_promoted(run):
    first, titles, registry = run("2024-01", 0.10)
    assert first.verdict.status == "promoted"
    assert titles[-5:] == ["gate", "evaluate test", "measure test", "export", "replay"]
    facts = registry.champion().facts
    assert facts["test"] == first.test.model_dump() and first.test.rows == ROWS
    assert first.test.metrics["accuracy"] == pytest.approx(0.9) and first.evaluation.baselines.keys() == {"constant"}
    assert facts["baselines"]["constant"]["accuracy"] == 0.6 and facts["compared"] is None

    # another seed, a hair worse, on the same data: the champion stays, and the test split is not looked at
    other, titles, _ = run("2024-01", 0.1005, seed=7)
    assert other.verdict.status == "kept" and "evaluate test" not in titles and other.test is None

    # 0.9 points down with newer data: within the tolerance of one
    second, titles, registry = run("2024-02", 0.109)
    assert second.verdict.status == "promoted" and second.verdict.compared()[0].outcome == "cannot tell"
    compared = registry.champion().facts["compared"]
    assert (compared["version"], compared["check"]["metric"]) == (1, "accuracy")
    assert compared["check"]["change"] == pytest.approx(-0.009)
    beside = second.evaluation.baselines["champion"]
    assert beside["accuracy"] == pytest.approx(0.9), "the champion's, on the same rows"


def test_small_losses_are_held_against_the_anchor_which_a_person_moves(run):
    run("2024-01", 0.10)
    second, titles, registry = run("2024-02", 0.109)
    assert (second.verdict.basis, registry.anchor()) == ("newer data", 1) and "evaluate anchor 1" not in titles
    third, titles, registry = run("2024-03", 0.118)
    assert "evaluate champion 2" in titles and "evaluate anchor 1" in titles
    assert third.verdict.status == "rejected" and registry.champion().number == 2
    assert "(version 1, the anchor) to 0.882" in explain(third.verdict).sentences[0]
    registry.promote(1, reason="by hand")
    registry.promote(2, reason="by hand")
    third, titles, registry = run("2024-03", 0.118)
    assert "evaluate anchor 1" not in titles and third.verdict.promote
    assert (registry.champion().number, registry.anchor()) == (3, 2)
    shutil.rmtree(registry.folder / "2")
    gone, _, _ = run("2024-03", 0.119, seed=3)
    assert any("version 2, the anchor, cannot be compared" in note.text for note in gone.notes)


def test_the_champion_is_evaluated_anew_when_asked_and_not_beside_itself(run):
    run("2024-01", 0.10)
    again, titles, _ = run("2024-01", 0.10)
    assert again.evaluation is None and "measure" not in titles, "a run has nothing to promote"
    asked, titles, _ = run("2024-01", 0.10, last="evaluate")
    assert asked.verdict.status == "kept" and titles[-1] == "measure"
    assert asked.evaluation.metrics["accuracy"] == pytest.approx(0.9)
    assert asked.evaluation.baselines.keys() == {"constant"} and "evaluate champion 1" not in titles


def test_a_champion_of_another_task_is_reported_plainly(run, monkeypatch):
    run("2024-01", 0.10)
    label = {"task": "regression", "type": "float32", "mean": 0.4}
    changed = {"notes": [], "parameters": {"fitted": [], "label": label}}
    monkeypatch.setattr(Predicted, "_transform", lambda self, step, out: changed)
    end, titles, _ = run("2024-02", 0.10, gate={"tolerance": {"rmse": "1%"}}, label="y")
    said = "it was trained for a binary label, and this pipeline's label is regression"
    assert end.verdict.status == "needs a person" and not end.verdict.promote
    assert said in explain(end.verdict).sentences[0] and any(said in note.text for note in end.notes)
    assert "evaluate champion 1" not in titles


def test_a_champion_of_another_label_is_not_compared(run):
    run("2024-01", 0.10, label="x > 1")
    end, _, _ = run("2024-02", 0.10, label="(x)>1")
    assert end.verdict.status == "promoted"
    end, titles, registry = run("2024-03", 0.05, label="x < 1")
    assert end.verdict.status == "needs a person" and registry.champion().number == 2
    assert "was trained for the label x > 1, and this pipeline's label is x < 1" in explain(end.verdict).sentences[0]
    assert "evaluate champion 2" not in titles


def test_a_verdict_does_not_promote_against_a_champion_that_it_did_not_compare_with(run, tmp_path):
    def another(registry):
        registry.publish(tmp_path / "saved_model", {"train": "other"})
        registry.promote(max(version.number for version in registry.versions()), reason="by hand")

    said = "version 1 was to be promoted when there was no champion, but version 2 became"
    with pytest.raises(Overtaken, match=said):
        run("2024-01", 0.10, meanwhile=another)


def test_a_promotion_that_comes_too_late_leaves_its_version_in_the_registry(run, tmp_path):
    _, _, registry = run("2024-01", 0.10)
    registry.publish(tmp_path / "saved_model", {})
    with pytest.raises(Overtaken, match="version 3 was to be promoted against version 1, but version 2 became"):
        run("2024-02", 0.08, meanwhile=lambda registry: registry.promote(2, reason="by hand"))
    assert [version.number for version in registry.versions()] == [1, 2, 3] and registry.champion().number == 2


def test_slices_are_chosen_where_none_are_named_and_the_verdict_says_which(run, monkeypatch):
    numbers = [{"column": name, "type": "float32", "rows": 600, "distinct": 500} for name in ("x", "z")]
    statistics = {"columns": {"train": numbers}, "rows": {"eval": ROWS}}
    strengths = {"anomalies": [], "errors": 0, "strengths": {"z": 0.9, "x": 0.6}}
    monkeypatch.setattr(Predicted, "_statistics", lambda self, step, out: statistics)
    monkeypatch.setattr(Predicted, "_validate", lambda self, step, out: strengths)
    with_columns(monkeypatch, lambda step: ("x", "z"), np.arange(ROWS) % 24)
    run("2024-01", 0.10)
    second, _, _ = run("2024-02", 0.10)
    said = "evaluation.slices names no slices, so Headway chose z in 4 bins and x in 4 bins"
    assert said in explain(second.verdict).sentences
    assert {c.slice for c in second.verdict.compared(slices=True)} == {"z: 4", "x: 4"}
    third, _, _ = run("2024-03", 0.10, evaluation={"slices": []})
    assert third.verdict.compared(slices=True) == []
    assert "names no slices" not in " ".join(explain(third.verdict).sentences)
    fourth, _, _ = run("2024-03", 0.10, seed=3, evaluation={"slices": ["x x z: 2", {"x": 3}]})
    assert {c.slice for c in fourth.verdict.compared(slices=True)} == {"x x z: 2", "x: 3"}


def test_a_champion_that_became_worse_is_an_alarm(run, monkeypatch):
    run("2024-01", 0.10)
    assert explain(run("2024-02", 0.10)[0].verdict).alarms == ()
    as_promoted = Predicted._evaluate

    def worse_today(self, step, out):
        if "version" in step.key["model"]:
            self.known[step.key["model"]["export"]] = 0.2
        return as_promoted(self, step, out)

    monkeypatch.setattr(Predicted, "_evaluate", worse_today)
    third, _, _ = run("2024-03", 0.10)
    [alarm] = explain(third.verdict).alarms
    assert alarm.text.summary == (
        "version 2 became worse, from accuracy 0.9 on 2024-01 to 2024-02 to 0.8 on 2024-01 to 2024-03, "
        "and the candidate makes up for it"
    )
    said = "0.3 better than the constant then, 0.2 better than it today: worse by 0.1, 95% interval"
    assert said in alarm.text.detail
    assert not alarm.concern, "the candidate is as good as the champion was"
    assert third.verdict.status == "promoted"
    assert third.verdict.of("champion decay", "accuracy").before == pytest.approx(0.9)


def test_another_metric_slice_or_threshold_predicts_nothing_anew(run, tmp_path):
    (tmp_path / "mine.py").write_text(
        "def cost(label, prediction, columns):\n    return float(abs(label - prediction).mean())\n"
    )
    steps = {}

    def fingerprints(**overrides):
        end, _, _ = run("2024-01", 0.10, gate__hold=True, **overrides)
        steps.update({output.title: output.fingerprint for output in end.outputs})
        return dict(steps), end.evaluation

    before, _ = fingerprints()
    after, evaluation = fingerprints(evaluation={"metrics": {"mine:cost": "lower"}, "threshold": {"recall": 0.9}})
    assert before["evaluate"] == after["evaluate"] and before["measure"] != after["measure"]
    assert evaluation.metrics["mine:cost"] == pytest.approx(0.26) and evaluation.intervals["mine:cost"]
    assert evaluation.threshold.value == pytest.approx(0.5)
