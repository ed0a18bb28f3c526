"""The commands on versions, typed on a store whose models are only files."""

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.cli.app import main
from flows.config.pipeline import read_pipeline
from flows.pipeline.predict import find_model
from headway.registry.registry import Registry
from headway.storage.store import Store
from tests.run_files import save_run

LINEAGE = {
    "format": 1,
    "run": {"run": "r"},
    "code": {"git": None, "tools": {"headway": "0.1.0"}, "modules": {}},
    "config": {"training": {"steps": 30}},
    "schema": None,
    "champion": None,
    "verdict": {"status": "promoted", "reasons": []},
    "parts": {"train": [["2026-01", "train"]], "eval": []},
    "spans": [],
    "stages": [],
}


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """Three versions of `toy`; 1 and 2 were promoted; the working folder is the pipeline's."""
    (tmp_path / "pipeline.yaml").write_text("name: toy\nsource: {format: csv, path: data.csv}\nlabel: y\n")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "saved_model.pb").write_bytes(b"graph")
    store = Store(tmp_path / "store")
    store.create()
    registry = Registry(store, "toy")
    for number in (1, 2, 3):
        facts = {"spans": ["2026-01"], "metrics": {"auc": 0.7 + number / 100}}
        registry.publish(tmp_path / "model", facts, LINEAGE)
        if number < 3:
            registry.promote(number, reason="better", run=f"run-{number}", basis="better")
    monkeypatch.chdir(tmp_path)
    return registry


def typed(capsys, *arguments, code=0):
    assert main([*arguments]) == code
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return said.out if code == 0 else said.err


def test_an_alias_is_set_shown_used_and_removed(registry, capsys):
    assert "stable is version 1" in typed(capsys, "promote", "--alias", "stable", "--to", "previous")
    assert "stable is version 2, in place of 1" in typed(capsys, "promote", "--alias", "stable", "--to", "champion")
    typed(capsys, "promote", "--alias", "shadow", "--to", "3")
    shown = typed(capsys, "models")
    wanted = ["3  shadow", "2  champion, stable", "1  previous"]
    assert [line.split("  20")[0].strip() for line in shown.splitlines() if "  20" in line] == wanted
    value = json.loads(typed(capsys, "models", "--json"))["toy"]
    assert value["aliases"] == {"shadow": 3, "stable": 2} and (value["champion"], value["previous"]) == (2, 1)
    assert "version 3 is the champion" in typed(capsys, "promote", "--to", "shadow")
    assert "version 2 is the champion again" in typed(capsys, "rollback", "--to", "stable")
    assert "no longer points at version 2" in typed(capsys, "promote", "--alias", "stable", "--remove")
    assert "'stable' names no version" in typed(capsys, "rollback", "--to", "stable", code=2)


def test_damaged_versions_are_listed_as_damaged(registry, capsys):
    for number in (1, 2):
        (registry.folder / str(number) / "saved_model" / "saved_model.pb").unlink()
    shown = typed(capsys, "models")
    lines = [line.strip() for line in shown.splitlines() if line.startswith("   ")]
    assert "2  champion     cannot be used" in lines and "1  previous     cannot be used" in lines
    assert "version 2 is damaged: saved_model/saved_model.pb is gone" in lines
    value = json.loads(typed(capsys, "models", "--json"))["toy"]
    assert [*value["damaged"]] == ["1", "2"] and [each["number"] for each in value["versions"]] == [3]
    assert "version 1 is damaged: saved_model/saved_model.pb is gone" in typed(capsys, "rollback", code=5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["promote", "--alias", "champion", "--to", "1"], "--alias: Headway itself uses the name 'champion'"),
        (["promote", "--alias", "7", "--to", "1"], "--alias: '7' is not a name for an alias"),
        (["promote", "--alias", "v2", "--to", "1"], "--alias: 'v2' is not a name for an alias"),
        (["promote", "--remove"], "--remove: it removes the alias that --alias names"),
        (["promote", "--to", "stabel"], "'stabel' names no version"),
        (["promote", "2"], "a version is named by --to 2"),
        (["rollback", "1"], "a version is named by --to 1"),
        (["predict", "--version", "stabel", "--input", "a", "--output", "b"], "--model: 'stabel' is neither"),
    ],
)
def test_a_name_that_is_wrong_is_a_usage_error(registry, capsys, arguments, words):
    said = typed(capsys, *arguments, code=2)
    assert words in said and "fix:" in said


def test_predict_takes_whatever_names_a_version(registry, tmp_path):
    registry.set_alias("shadow", 3)
    loaded = read_pipeline(tmp_path)

    def number(name):
        with find_model(loaded, name) as (_, version):
            held = [json.loads(p.read_text())["uses"] for p in (tmp_path / "store" / "locks").glob("use-*.json")]
            assert held == ([[f"models/toy/{version}"]] if version else [])
            return version

    names = ("1", "champion", "previous", "shadow", str(tmp_path / "model"))
    assert [number(name) for name in names] == [1, 2, 1, 3, None]
    (tmp_path / "shadow").mkdir()
    assert number("shadow") == 3, "an alias comes before a folder of its name"
    assert number("./shadow") is None
    assert list((tmp_path / "store" / "locks").glob("*use-*")) == []


def test_a_promotion_that_somebody_else_came_before_is_refused(registry, capsys, monkeypatch):
    looked = Registry.champion_or_nobody

    def look_and_lose(self):
        number = looked(self)
        Registry(self.store, self.name).promote(3, reason="mine first")
        return number

    monkeypatch.setattr(Registry, "champion_or_nobody", look_and_lose)
    said = typed(capsys, "promote", "--to", "1", code=4)
    assert "version 1 was to be promoted against version 2, but version 3 became the champion" in said
    assert "mine first" in said and "--to 1 --force" in said
    assert "version 1 is the champion" in typed(capsys, "promote", "--to", "1", "--force")


ROWS = 4000
SIZES = np.where(np.arange(ROWS) < 3000, "small", "large")


def evaluated(store, fingerprint, label, wrong, key=None):
    """An evaluation whose model gets a share of the rows wrong; its predictions."""
    right = np.random.default_rng(0).random(ROWS) >= wrong
    prediction = np.where(right == (label == 1), 0.8, 0.2)
    with store.open("evaluate", fingerprint, key or {}) as staging:
        pq.write_table(pa.table({"label": label, "prediction": prediction, "size": SIZES}), staging.path / "p.parquet")
        staging.commit(result={"predictions": "p.parquet"})
    return prediction


@pytest.fixture
def judged(registry, tmp_path):
    """Version 4 was judged against version 2, on the same rows; version 5 on rows of its own; with lineages."""
    label = (np.arange(ROWS) % 3 == 0).astype(np.int64)
    shares = {"four": 0.2, "two": 0.25, "five": 0.3}
    for fingerprint, wrong in shares.items():
        evaluated(registry.store, fingerprint, label, wrong)
    config = {"training": {"steps": 60, "rate": 0.01}, "columns": {"x": {}, "z": {}}}
    for number, name in ((4, "four"), (5, "five")):
        stages = [{"stage": "evaluate", "title": "evaluate", "fingerprint": name, "cached": False}]
        if number == 4:
            stages.append({"stage": "evaluate", "title": "evaluate champion 2", "fingerprint": "two", "cached": False})
        lineage = {
            "format": 1,
            "run": {"run": f"run-{number}", "started": "2026-01-01T00:00:00Z", "seed": 0},
            "code": {"git": None, "tools": {"headway": "0.1.0"}, "modules": {"nets.py": "ab12"}},
            "config": config
            if number == 4
            else config | {"training": {"steps": 90, "rate": 0.01}, "columns": {"x": {}}},
            "schema": None,
            "champion": 2 if number == 4 else None,
            "verdict": {"status": "promoted", "reasons": ["auc is better"]},
            "parts": {
                "train": [["2026-01", "train"]] + [["2026-02", "train"]] * (number == 5),
                "eval": [["2026-01", "eval"]],
            },
            "spans": [{"span": "2026-01", "ingest": "i", "rows": None, "files": [], "shards": []}],
            "stages": stages,
        }
        measured = {"accuracy": 1 - shares[name], "loss": 0.5, "auc": 0.7, "ece": 0.1}
        facts = {"task": "binary", "metrics": measured, "data": {"2026-01": name}}
        registry.publish(tmp_path / "model", facts, lineage)
    return registry


def checks_of(value):
    """The checks of a comparison by metric."""
    return {check["metric"]: check for check in value["same"]["checks"]}


def test_two_versions_on_the_same_rows_are_compared_with_the_interval_of_their_difference(judged, capsys, monkeypatch):
    judged.publish(judged.folder.parents[2] / "model", judged.version(5).facts)
    lineage = json.loads((judged.folder / "5" / "lineage.json").read_text())
    lineage["stages"].append(
        {"stage": "evaluate", "title": "evaluate champion 4", "fingerprint": "four", "cached": True}
    )
    with judged.store.open("measure", "m", {}) as staging:
        staging.commit(result={})
    lineage["stages"].append({"stage": "measure", "title": "measure", "fingerprint": "m", "cached": False})
    version = judged.publish(judged.folder.parents[2] / "model", judged.version(5).facts, lineage)
    value = json.loads(typed(capsys, "compare", "4", str(version.number), "--json"))
    found = checks_of(value)["accuracy"]
    assert value["same"]["rows"] == ROWS and found["change"] == pytest.approx(-0.1, abs=0.02)
    assert found["interval"][0] < found["change"] < found["interval"][1] < 0 and found["outcome"] == "worse"
    assert value["a"]["metrics"]["metrics"]["accuracy"] == 0.8 and not value["a"]["metrics"]["intervals"]
    told = {each["key"]: (each["a"], each["b"]) for each in value["differences"]}
    assert told["training.steps"] == (60, 90) and told["columns.z"] == ({}, None)
    assert told["train spans"] == ("2026-01", "2026-01 to 2026-02, 2 spans")
    assert told["raw files"] == (None, "changed: 2026-01")
    monkeypatch.setenv("COLUMNS", "160")
    assert re.search(r"\n  metric +version 4 .+\n  auc ", typed(capsys, "compare", "4", str(version.number), "--all"))
    reverse = json.loads(typed(capsys, "compare", str(version.number), "4", "--json"))
    assert checks_of(reverse)["accuracy"]["change"] == pytest.approx(-found["change"])


def test_runs_are_compared_as_versions_are_on_rows_that_both_scored(judged, capsys):
    label = (np.arange(ROWS) % 3 == 0).astype(np.int64)
    runs = {}
    for name, wrong, spans in (("a", 0.2, "2026-01"), ("b", 0.3, "2026-01"), ("c", 0.3, "2026-02")):
        evaluated(judged.store, f"e{name}", label, wrong, {"inputs": {"examples": [[spans, "eval"]]}})
        with judged.store.open("measure", f"m{name}", {}) as staging:
            staging.commit(result={"task": "binary", "rows": ROWS, "metrics": {}})
        stages = [
            {"stage": s, "title": s, "fingerprint": s[0] + name, "cached": False} for s in ("evaluate", "measure")
        ]
        runs[name] = f"20260101-00000{len(runs)}-{name}"
        record = {"run": runs[name], "pipeline": "toy", "state": "rejected", "started": "2026-01-01T00:00:00Z"}
        record |= {"stages": stages, "metrics": {"accuracy": 1 - wrong}, "config": {"training": {"steps": ord(name)}}}
        save_run(
            judged.store,
            record
            | {
                "verdict": {
                    "status": "rejected",
                    "checks": [{"name": name, "outcome": "no better", "passed": False, "status": "rejected"}],
                }
            },
        )
    value = json.loads(typed(capsys, "compare", runs["a"], runs["b"], "--json"))
    assert checks_of(value)["accuracy"]["change"] == pytest.approx(-0.1, abs=0.02)
    assert {"key": "training.steps", "a": 97, "b": 98} in value["differences"]
    said = typed(capsys, "compare", ".", runs["b"], runs["c"])
    # the state's word is told, the state itself is in JSON
    assert "metrics are of different rows" in said and re.search(r"at the gate +rejected +rejected", said) is None
    said = typed(capsys, "compare", ".", runs["b"], runs["c"], "--all")
    assert re.search(r"\n  run +" + runs["b"], said) and "stands as" not in said, "both are rejected"
    for command in (["show", ".", runs["c"]], ["runs"]):
        shown = typed(capsys, *command)
        assert "rejected" in shown and not re.search(r"\breject\b", shown), command
    assert {run["state"] for run in json.loads(typed(capsys, "runs", "--json"))} >= {"rejected"}
    assert "promote" in typed(capsys, "compare", "4", runs["a"])
    assert f"{runs['c']} and latest are the same run" in typed(capsys, "compare", runs["c"], "latest", code=2)
    assert "there is no run '20991231'" in typed(capsys, "compare", "20991231", "4", code=5)
    again = {"run": "20260101-120000-e", "state": "already champion", "version": 4, "stages": [], "metrics": {}}
    save_run(judged.store, {**record, **again})
    assert "4 and latest are the same version, 4" in typed(capsys, "compare", "4", "latest", code=2)
    save_run(judged.store, {**record, "run": "20260102-000000-d", "pipeline": "other", "stages": []})
    assert "is of the pipeline other" in typed(capsys, "compare", "20260102", "4", code=2)


def test_a_comparison_reads_as_a_table_and_says_what_it_cannot_know(judged, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    judged.set_alias("shadow", 5)
    short = typed(capsys, "compare", ".", "4", "shadow")
    assert "metrics are of different rows" in short and len(short.splitlines()) <= 30
    assert re.search(r"train spans +2026-01 +2026-01 to 2026-02", short) and "changed: 2026-01" in short
    assert "promoted against version 2" in short and re.search(r"training.steps +60 +90", short)
    assert "columns.z" in short
    said = typed(capsys, "compare", ".", "4", "shadow", "--all")
    assert re.search(r"stands as +– +shadow", said)
    assert "are the same version, 2" in typed(capsys, "compare", "2", "champion", code=2)
    assert "'nope' names no version" in typed(capsys, "compare", "2", "nope", code=2)
    assert "two versions or runs are compared, and there is 2 alone" in typed(capsys, "compare", "2", code=2)
    assert typed(capsys, "compare").splitlines()[-1].endswith("compare-toy-4-5.html"), "the last two versions"
    assert ". is a pipeline, and 2 versions are needed beside it" in typed(capsys, "compare", ".", "2", code=2)


def test_a_comparison_leaves_a_page_and_says_where(judged, capsys, monkeypatch):
    page = judged.store.runs_folder / "compare-toy-4-5.html"
    assert typed(capsys, "compare", "4", "5").splitlines()[-1] == f"page: {page}" and page.is_file()

    def refused(*_):
        raise PermissionError(13, "Permission denied", str(page))

    monkeypatch.setattr(Store, "replace", refused)
    assert main(["compare", "4", "5"]) == 0
    told = capsys.readouterr()
    assert "metrics are of different rows" in told.out and "page:" not in told.out
    assert "the page of this comparison was not written: " in told.err and "Permission denied" in told.err
