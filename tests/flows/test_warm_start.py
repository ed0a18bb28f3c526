"""Warm start of a pipeline: which model a training begins with, and when it may not."""

import json

import pytest

from headway.registry.registry import Registry
from headway.storage.store import Store

STEP = ("--set", "training.steps=1", "--set", "training.learning_rate=1e-7")


@pytest.fixture
def champion(exported):
    """(project, store, the train stage's manifest) with the exported model as the champion."""
    store = Store(exported / "store")
    trained, saved = store.manifests("train")[0], store.manifests("export")[0]
    parts = [[span, part] for span, part in (("2013-01", "all"), ("2013-02", "all"), ("2013-03", "all"))]
    facts = {"train": trained.fingerprint, "train_parts": parts, "task": "binary", "split": ""}
    registry = Registry(store, "flights")
    version = registry.publish(store.output("export", saved.fingerprint) / "saved_model", facts)
    registry.promote(version.number, reason="a test")
    return exported, store, trained


@pytest.mark.long
def test_a_training_begins_with_the_champions_weights_and_one_step_later_is_where_it_was(typed, champion):
    project, store, trained = champion
    # the champion's own window and settings: it is not trained on from itself
    plan = json.loads(typed("plan", project, "--set", "training.warm_start=champion", "--json", check=0).stdout)
    assert next(step for step in plan["steps"] if step["stage"] == "train")["fingerprint"] == trained.fingerprint

    typed("run", "--to", "train", project, "--set", "training.warm_start=champion", *STEP, check=0)
    begun = next(m for m in store.manifests("train") if m.fingerprint != trained.fingerprint)
    assert begun.key["warm_start"] == {"train": trained.fingerprint}
    report = begun.result["warm_start"]
    assert report["version"] == 1 and not report["new"] + report["partly"]
    wanted = len(json.loads((store.output("train", trained.fingerprint) / "model.json").read_text())["variables"])
    assert len(report["kept"]) == wanted

    # on other spans the vocabulary is another one, and the first predictions are about the champion's
    own = next(m.result["metrics"]["loss"] for m in store.manifests("evaluate") if "train" in m.key["model"])
    done = typed(
        "run", "--to", "evaluate", project, *STEP, "--set", "training.warm_start=1", "--window", "3", "--json", check=0
    )
    record = json.loads(done.stdout)
    assert record["metrics"]["loss"] == pytest.approx(own, abs=0.03)
    assert own < 0.4  # the constant baseline's is 0.57


def test_a_model_that_knows_the_rows_it_would_be_judged_on_is_refused(typed, champion):
    project, _, _ = champion
    done = typed("plan", project, "--set", "training.warm_start=champion", "--until", "2013-03", check=2)
    assert "version 1 was trained on rows that this candidate will be judged on" in done.stderr
    done = typed("plan", project, "--set", "training.warm_start=7", check=5)
    assert "version 7 does not exist" in done.stderr
