"""`headway promote` without a version: the candidate that the last run left, and no other model."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from flows.pipeline import promote as promotions
from flows.pipeline.champion import recognise_same_model
from flows.pipeline.context import Context
from flows.pipeline.plan import PlannedStep
from flows.report.verdict import explain
from headway.errors import ConfigError
from headway.evaluation.config import EvaluationConfig
from headway.evaluation.verdict import Verdict
from headway.registry.registry import Version
from headway.stages.step import Output
from headway.storage.store import Store
from tests.run_files import save_run


def test_promote_takes_the_candidate_of_the_last_run_though_newer_data_have_landed(typed, exported):
    held = json.loads(typed("run", exported, "--json", "--set", "gate.hold=true", check=4).stdout)
    assert held["state"] == "needs a person" and len(held["spans"]) == 4
    shutil.copy(exported / "data" / "2013-04.parquet", exported / "data" / "2013-05.parquet")

    # what would be trained anew is refused, and said
    said = typed("promote", exported, "--set", "training.steps=61", check=2).stderr
    assert "train would run again (training.steps is 61, before 60)" in said and held["run"] in said

    done = json.loads(typed("promote", exported, "--json", "--reason", "looked at by hand", check=0).stdout)
    (model,) = json.loads(typed("models", exported, "--json", check=0).stdout).values()
    wanted = "; ".join(["looked at by hand", *map(str, explain(Verdict.model_validate(done["verdict"])).reasons)])
    assert model["history"][-1]["reason"] == wanted
    assert done["spans"] == held["spans"] and done["state"] == "promoted", "the window of the run that was held"
    assert not [step["title"] for step in done["stages"] if not step["cached"] and step["stage"] in ("ingest", "train")]
    assert done["verdict"]["status"] == "promoted"
    assert "no candidate waits" in typed("promote", exported, check=5).stderr
    shutil.rmtree(exported / "store" / "runs")
    assert "no candidate waits" in typed("promote", exported, check=5).stderr


def test_a_model_that_an_earlier_run_trained_is_not_taken_for_the_candidate_of_the_last_one(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.stages.mkdir()
    trained = {"stage": "train", "title": "train", "fingerprint": "b" * 32, "cached": False}
    run = {
        "run": "20261123-000714-4081",
        "pipeline": "churn",
        "state": "needs a person",
        "started": "2026-11-23T00:07:14.900Z",
        "window": None,
        "until": "latest",
        "seed": 0,
    }
    save_run(
        store, run | {"last": None, "verdict": {"status": "needs a person"}, "spans": ["2013-01"], "stages": [trained]}
    )
    loaded = SimpleNamespace(pipeline=SimpleNamespace(name="churn", source=SimpleNamespace(has_spans=True)))
    spec = Context(loaded, store)

    def plans(fingerprint):
        step = PlannedStep(step="train", stage="train", fingerprint=fingerprint, cached=True, differs=None)
        monkeypatch.setattr(promotions, "plan_run", lambda spec: SimpleNamespace(steps=[step]))

    plans("b" * 32)
    found = promotions.last_candidate(spec)
    assert (found.until, found.window) == ("2013-01", "all"), "that run had all spans, whatever window: says today"
    plans("a" * 32)  # pipeline.yaml is as it was before that run
    with pytest.raises(ConfigError, match="another training, so this would promote another model"):
        promotions.last_candidate(spec)


F1 = {"config": EvaluationConfig(threshold="f1").threshold.model_dump(mode="json"), "value": 0.31}


def test_a_run_that_ends_with_the_training_says_nothing_of_the_champion():
    context = Context(SimpleNamespace(pipeline=pipeline_with(None)), None, last="train")
    context.champion = Version(number=4, path=Path(), created="", facts={"train": "t"})
    context.add([Output("train", "train", "t", Path(), {}, hit=True)])
    recognise_same_model(context)
    assert context.verdict is None and context.champion is not None


def pipeline_with(rule):
    return SimpleNamespace(evaluation=EvaluationConfig(threshold=rule))


@pytest.mark.parametrize(
    ("rule", "kept", "note"),
    [
        (None, None, None),
        ("f1", F1, None),
        ("f1", None, "(none was chosen: 0.5)"),
        (0.3, F1, "(0.31)"),
        (None, F1, "(0.31)"),
    ],
)
def test_a_champion_that_keeps_another_threshold_than_the_config_names_is_said(rule, kept, note):
    context = Context(SimpleNamespace(pipeline=pipeline_with(rule)), None)
    context.champion = Version(number=4, path=Path(), created="", facts={"threshold": kept, "train": "t"})
    context.add([Output("train", "train", "t", Path(), {}, hit=True)])
    recognise_same_model(context)
    assert context.verdict.status == "kept" and context.over
    assert len(context.notes) == (note is not None)
    if note:
        (said,) = context.notes
        assert "`classify` of version 4 keep the threshold" in said.text and note in said.text
