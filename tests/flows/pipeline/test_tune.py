"""Tuning: trials share all but their training, are judged on train rows, go on after a kill; the best goes through the gate."""

import json

import pytest

from flows.cli.operations import _tune_text
from flows.pipeline.tune import HoldoutLoss, Trial, Tuning
from headway.registry.registry import Registry
from headway.storage.store import Store

optuna = pytest.importorskip("optuna")

SPACE = """
tune:
  space:
    training.learning_rate: {low: 1.0e-5, high: 0.05, log: true}
    model.hidden: [[16, 8], []]
"""


@pytest.fixture
def tuned(project):
    """The project with a space, whose own settings are easy to beat."""
    file = project / "pipeline.yaml"
    file.write_text(
        file.read_text().replace("learning_rate: 0.01", "learning_rate: 1.0e-5").replace("steps: 60", "steps: 20")
        + SPACE
    )
    return project


def _trains(project):
    return {m.fingerprint: m for m in Store(project / "store").manifests("train")}


@pytest.mark.long
def test_a_study_shares_the_data_resumes_after_a_kill_and_its_best_goes_through_the_gate(typed, tuned):
    done = typed("tune", tuned, "--trials", "2", "--json", check=0)
    result = json.loads(done.stdout)
    assert [trial["state"] for trial in result["trials"]] == ["complete"] * 2
    best = result["best"]
    assert best["loss"] == min(trial["loss"] for trial in result["trials"]) < result["base"]["loss"]
    # a trial is a training, and nothing else: no eval row is looked at
    store = Store(tuned / "store")
    wanted = {*("ingest", "statistics", "splits", "validate", "transform", "train")}
    assert {stage for stage, _ in store.all_outputs()} == wanted
    trains = _trains(tuned)
    assert len(trains) == 3
    assert len({json.dumps(manifest.key["inputs"]) for manifest in trains.values()}) == 1
    assert all(manifest.key["trial"] == {"holdout": 0.2} for manifest in trains.values())
    assert not store.children(store.checkpoints) and not (tuned / "store" / "models").exists()

    # a process that was killed: a trial that did not end, and a line that was not written whole
    from tfcore.train.request import storage_of

    journal = next((tuned / "store" / "studies" / "flights").iterdir())
    study = optuna.load_study(study_name=result["study"], storage=storage_of(journal))
    begun = study.ask()
    rate = begun.suggest_float("training.learning_rate", 1e-5, 0.05, log=True)
    begun.suggest_categorical("model.hidden", ["[16,8]", "[]"])
    with journal.open("ab") as file:
        file.write(b'{"op_code": 8, "worker')
    again = json.loads(typed("tune", tuned, "--trials", "3", "--json", check=0).stdout)
    assert again["study"] == result["study"] and again["trials"][:2] == result["trials"]
    assert len(again["trials"]) == 3 and again["trials"][2]["params"]["training.learning_rate"] == rate
    trains = _trains(tuned)

    # what is there already costs nothing
    done = json.loads(typed("tune", tuned, "--trials", "3", "--json", check=0).stdout)
    assert done["trials"] == again["trials"] and _trains(tuned) == trains

    # the best goes where every candidate goes
    overlay = ("--set", f"@{again['overlay']}")
    promoted = json.loads(typed("run", tuned, *overlay, "--json", check=0).stdout)
    assert promoted["state"] == "promoted"
    assert len(_trains(tuned)) == len(trains) + 1  # the run trains on the holdout's rows too
    assert Registry(store, "flights").champion().number == 1
    plan = typed("plan", tuned, *overlay, "--json", check=0)
    assert {step["step"] for step in json.loads(plan.stdout)["steps"] if not step["cached"]} == set()


def test_a_mistake_in_the_space_ends_before_a_training(typed, project):
    file = project / "pipeline.yaml"
    file.write_text(file.read_text() + "tune: {space: {training.lerning_rate: [0.1, 0.2]}}\n")
    done = typed("tune", project, check=2)
    assert "training.lerning_rate" in done.stderr and "did you mean 'learning_rate'" in done.stderr
    assert not _trains(project)
    assert "--trials: '0' is not a whole number of 1 or more" in typed("tune", project, "--trials", "0", check=2).stderr


def _found(**more):
    base = HoldoutLoss(loss=0.2, steps=1, training_seconds=1.0)
    study = {"pipeline": "p", "study": "s", "journal": "j", "holdout": 0.2, "space": {"model.dropout": (0.0, 0.1)}}
    return Tuning(**study, base=base, **{"trials": (), "same": False, "best": None, "overlay": None} | more)


def test_a_study_in_which_no_setting_matters_says_so():
    trials = tuple(Trial(number=number, loss=0.20002, state="complete", params={}) for number in range(2))
    said = list(_tune_text(_found(trials=trials, same=True), "own"))[-1]
    assert said.startswith("no trial differs from the pipeline's own settings: every loss is 0.2")
    assert "model.dropout" in said


def test_what_to_type_next_works_from_the_folder_that_tune_was_typed_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    best = Trial(number=0, loss=0.1, state="complete", params={})
    found = _found(best=best, overlay=str(tmp_path / "own" / "tuned.yaml"))
    assert "; headway run own --set @own/tuned.yaml takes it" in list(_tune_text(found, "own"))[-1]
