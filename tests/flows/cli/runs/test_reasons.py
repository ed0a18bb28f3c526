"""`headway why`, `headway path`, `headway logs` and `headway clean`, on a store of two runs."""

import json

import pytest

import headway
from flows.cli.app import main
from headway.storage.fingerprint import fingerprint
from headway.storage.store import Store


def _step(store, title, why=None, *, cached=False, **key):
    stage = title.split()[0]
    key = {"stage": stage, "version": 1, **key}
    name = fingerprint(key)
    if store.find(stage, name) is None:
        with store.open(stage, name, key) as staging:
            (staging.path / "data").write_text("x" * 100)
            staging.commit(result={})
    return {"stage": stage, "title": title, "fingerprint": name, "cached": cached, "seconds": 3.0, "why": why}


@pytest.fixture
def project(tmp_path):
    (tmp_path / "pipeline.yaml").write_text("name: p\nsource: {format: csv, path: d.csv}\nlabel: y\n")
    store = Store(tmp_path / "store")
    store.create()
    run = {"pipeline": "p", "state": "done", "spans": ["a"], "seed": 0, "seconds": 1.0}
    ingest = _step(store, "ingest a", "never run", files=[1])
    train = _step(store, "train", "never run", config={"steps": 100}, inputs={"examples": ingest["fingerprint"]})
    record = {"run": "20240501-100000-aa", "started": "2024-05-01T10:00:00.000Z", "stages": [ingest, train]}
    store.save_run(run | record)
    again = _step(store, "ingest a", cached=True, files=[1])
    why = {"kind": "value", "place": ["config", "steps"], "old": "100", "new": "200"}
    train = _step(store, "train", why, config={"steps": 200}, inputs={"examples": ingest["fingerprint"]})
    record = {"run": "20240501-110000-bb", "started": "2024-05-01T11:00:00.000Z", "stages": [again, train]}
    store.save_run(run | record)
    return tmp_path


def say(capsys, *arguments):
    code = main(list(map(str, arguments)))
    said = capsys.readouterr()
    return code, said.out + said.err


@pytest.mark.parametrize("order", [("train", "."), (".", "train")])
def test_why_names_the_difference_and_what_the_stage_reads(order, project, capsys, monkeypatch):
    monkeypatch.chdir(project)
    code, text = say(capsys, "why", *order)
    assert code == 0 and "run 20240501-110000-bb" in text
    assert "train ran, 3.0 s: steps is 200, before 100" in text and "differs   config.steps: 100 -> 200" in text
    assert "reads     ingest a (reused)" in text


@pytest.mark.parametrize("order", [("train", "."), (".", "train"), ("train",)])
def test_path_is_the_folder_of_a_stages_output(order, project, capsys, monkeypatch):
    monkeypatch.chdir(project)
    newest, older = (headway.open(project).last_run(name) for name in ("20240501-11", "20240501-10"))
    code, text = say(capsys, "path", *order)
    folder = newest.output("train")
    assert (code, text) == (0, f"{folder}\n") and (folder / "data").is_file() and older.output("train") != folder
    code, text = say(capsys, "path", *order, "--run", "20240501-10", "--json")
    assert json.loads(text) == {"run": older.name, "stage": "train", "path": str(older.output("train"))}


def test_path_takes_a_step_and_says_what_a_run_has(project, capsys):
    code, text = say(capsys, "path", "ingest a", project)
    assert code == 0 and text.strip() == str(headway.open(project).last_run().output("ingest"))
    code, text = say(capsys, "path", "evaluate", project)
    assert code == 5 and "has no evaluate" in text and "fix: it has ingest, train" in text


def test_why_names_the_run_that_made_what_was_reused(project, capsys):
    code, text = say(capsys, "why", "ingest", project)
    assert code == 0 and "ingest a was reused" in text and "made by   run 20240501-100000-aa, in 3.0 s" in text
    code, text = say(capsys, "why", "train", project, "--run", "20240501-10", "--json")
    (step,) = json.loads(text)["steps"]
    assert (code, step["reason"], step["reads"][0]["title"], step["kept"]) == (
        0,
        "for the first time",
        "ingest a",
        True,
    )


def test_why_of_a_stage_takes_the_last_run_that_finished_it(project, capsys):
    failed = {"run": "20240501-120000-cc", "started": "2024-05-01T12:00:00.000Z", "stages": [], "error": "no span x"}
    Store(project / "store").save_run({"pipeline": "p", "state": "failed", "spans": [], "seed": 0} | failed)
    code, text = say(capsys, "why", "train", project)
    assert code == 0 and "run 20240501-110000-bb of p" in text and "steps is 200, before 100" in text
    # it may have ended in this stage as well as before: a record has the finished ones
    assert "the latest run, 20240501-120000-cc (failed), has not finished this stage: no span x" in text
    code, text = say(capsys, "why", "trian", project)
    assert code == 2 and "run 20240501-110000-bb has no step 'trian'" in text and "did you mean 'train'?" in text
    code, text = say(capsys, "why", project)
    assert code == 0 and "run 20240501-120000-cc" in text and "then it ended: no span x" in text


def test_why_without_a_stage_has_every_step_and_a_wrong_one_is_corrected(project, capsys):
    code, text = say(capsys, "why", project)
    assert code == 0 and "ingest a" in text and "train" in text
    code, text = say(capsys, "why", "trian", project)
    assert code == 2 and "did you mean 'train'?" in text and "it has ingest, train" in text


def test_logs_prints_the_lines_of_a_run_and_says_where_there_are_none(project, capsys, monkeypatch):
    log = project / "store" / "runs" / "20240501-110000-bb.log"
    log.write_text("2024-05-01T11:00:01.000Z   train: 5 of 9 steps\n2024-05-01T11:00:02.000Z done\n")
    monkeypatch.chdir(project)
    for arguments in ((), (".",), ("latest", "."), (".", "20240501-11")):
        assert say(capsys, "logs", *arguments) == (0, "11:00:01   train: 5 of 9 steps\n11:00:02 done\n")
    assert json.loads(say(capsys, "logs", "--json")[1])["lines"][1] == {
        "time": "2024-05-01T11:00:02.000Z",
        "line": "done",
    }
    code, text = say(capsys, "logs", "20240501-10")
    assert code == 5 and "has no log" in text and "headway show 20240501-100000-aa" in text


def test_clean_says_first_and_deletes_only_when_told(project, capsys):
    (project / "store" / "runs" / "20240501-100000-aa.log").write_text("a line\n")
    files = {path for path in (project / "store").rglob("*") if path.is_file() and path.parent.name != "locks"}
    code, text = say(capsys, "clean", project, "--keep", "1")
    assert code == 0 and "nothing was deleted; with --yes" in text and "no kept run and no version points at it" in text
    assert all(path.exists() for path in files)
    code, text = say(capsys, "clean", project, "--keep", "1", "--yes", "--json")
    removed = json.loads(text)["removed"]
    assert {item["path"].rpartition(".")[2] for item in removed if "/runs/" in item["path"]} == {"json", "log"}
    assert not any(path.exists() for path in files if "20240501-100000" in path.name)
    assert "nothing to delete" in say(capsys, "clean", project, "--keep", "1")[1]
