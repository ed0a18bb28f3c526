"""`headway show` and `headway clean`, on a store of two runs."""

import json

import pytest

import headway
from flows.cli.app import main
from headway.storage.fingerprint import fingerprint
from headway.storage.store import Store
from tests.run_files import save_run


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
    ingest = _step(store, "ingest a", {"kind": "never run"}, files=[1])
    train = _step(
        store, "train", {"kind": "never run"}, config={"steps": 100}, inputs={"examples": ingest["fingerprint"]}
    )
    record = {"run": "20240501-100000-aa", "started": "2024-05-01T10:00:00.000Z", "stages": [ingest, train]}
    save_run(store, run | record)
    again = _step(store, "ingest a", cached=True, files=[1])
    why = {"kind": "value", "place": ["config", "steps"], "old": "100", "new": "200"}
    train = _step(store, "train", why, config={"steps": 200}, inputs={"examples": ingest["fingerprint"]})
    record = {"run": "20240501-110000-bb", "started": "2024-05-01T11:00:00.000Z", "stages": [again, train]}
    save_run(store, run | record)
    return tmp_path


def say(capsys, *arguments):
    code = main(list(map(str, arguments)))
    said = capsys.readouterr()
    return code, said.out + said.err


def test_show_says_why_each_step_ran_who_made_what_was_reused_and_where_it_lies(project, capsys):
    run, _ = headway.open(project).runs()
    code, text = say(capsys, "show", project)
    assert code == 0 and "run 20240501-110000-bb of p" in text
    told = {line.split()[0]: line for line in text.splitlines() if line.startswith("  ")}
    assert told["ingest"].endswith("made by run 20240501-100000-aa") and "steps is 200, before 100" in told["train"]
    assert f"      {run.output('train')}" in text.splitlines()
    Store(project / "store").discard(run.output("train"))
    assert f"{run.record['run']}" in text and "(no longer in the store)" in say(capsys, "show", project)[1]


def test_the_json_of_a_run_names_the_folder_of_each_output(project, capsys):
    newest, older = headway.open(project).runs()
    code, text = say(capsys, "show", project, "20240501-10", "--json")
    outputs = json.loads(text)["outputs"]
    assert code == 0 and outputs == {step: str(older.output(step)) for step in ("ingest a", "train")}
    assert outputs["train"] != str(newest.output("train"))


def test_show_with_log_prints_the_lines_of_a_run_and_says_where_there_are_none(project, capsys, monkeypatch):
    log = project / "store" / "runs" / "20240501-110000-bb.log"
    log.write_text("2024-05-01T11:00:01.000Z   train: 5 of 9 steps\n2024-05-01T11:00:02.000Z done\n")
    monkeypatch.chdir(project)
    for arguments in ((), (".",), ("latest", "."), (".", "20240501-11")):
        told = say(capsys, "show", *arguments, "--log")
        assert told == (0, "11:00:01   train: 5 of 9 steps\n11:00:02 done\n")
    assert json.loads(say(capsys, "show", "--log", "--json")[1])["log"][1] == "2024-05-01T11:00:02.000Z done"
    code, text = say(capsys, "show", "20240501-10", "--log")
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
