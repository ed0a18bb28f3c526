"""`headway knobs`: what it shows, what it writes, and what it refuses."""

import json

import pytest

from flows.cli.app import main

PIPELINE = """
name: small
source: {format: csv, path: "{span}.csv"}
label: y
model: {dropout: 0.1}
training: {learning_rate: {name: cosine, initial: 0.01}, knobs: {label_smoothing: 0.05}}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    return tmp_path


def test_knobs_are_shown_and_set_and_let_go(folder, capsys, monkeypatch):
    assert main(["knobs", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "cosine initial=0.01" in shown and "label_smoothing" in shown and "dropout" in shown
    assert main(["knobs", "--json", str(folder), "learning_rate=0.0001", "dropout=0.2"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {knob["knob"]: knob["by_hand"] for knob in told["knobs"]} == {
        "learning_rate": 0.0001,
        "dropout": 0.2,
        "label_smoothing": None,
    }
    monkeypatch.chdir(folder)
    assert main(["knobs", "dropout=schedule"]) == 0
    assert json.loads((folder / "store/control/small.json").read_text()) == {"learning_rate": 0.0001, "dropout": None}


def test_a_learning_rate_that_is_left_out_is_not_shown_as_the_constant_of_large_tables(folder, capsys):
    (folder / "pipeline.yaml").write_text(PIPELINE.replace("learning_rate: {name: cosine, initial: 0.01}, ", ""))
    (folder / "a.csv").write_text("x,y\n" + "".join(f"{i},{i % 2}\n" for i in range(50)))
    assert main(["knobs", str(folder), "--json"]) == 0
    (rate,) = (knob for knob in json.loads(capsys.readouterr().out)["knobs"] if knob["knob"] == "learning_rate")
    assert rate["pipeline"] == {"name": "auto"}
    assert main(["knobs", str(folder)]) == 0
    assert "chosen by the train rows: headway plan" in capsys.readouterr().out
    assert not (folder / "store").exists()


@pytest.mark.parametrize(
    ("item", "words"),
    [("temperature=2", "set it in the pipeline"), ("dropout=1.5", "below 1"), ("x", "not NAME=VALUE")],
)
def test_mistakes_are_named_and_write_nothing(folder, capsys, item, words):
    assert main(["knobs", str(folder), "learning_rate=0.1", item]) == 2
    assert words in capsys.readouterr().err
    assert not (folder / "store").exists()
