"""The summary of a run: of a wide table, and of one that ends early."""

from types import SimpleNamespace

from flows.cli import commands
from flows.records import read_record


def test_of_a_wide_table_only_the_columns_left_out_are_printed(monkeypatch):
    monkeypatch.setattr("flows.tell.summary.summary", lambda record, places, notes: "promoted")
    rows = [{"column": f"c{i}", "type": "number", "transform": "standardize", "why": "auto"} for i in range(100)]
    rows[7] = {"column": "same", "type": "number", "transform": "left out", "why": "constant"}
    record = {"run": "r", "pipeline": "p", "started": "", "state": "done", "columns": rows}
    text = commands.summary_text(read_record(record), SimpleNamespace(last=None))
    assert "same" in text and "c8 " not in text and "and 99 more columns; headway schema --columns shows all" in text
    text = commands.summary_text(read_record(record | {"columns": rows[:3]}), SimpleNamespace(last=None))
    assert "c2" in text and "(headway schema --columns shows this again)" in text


def test_headway_export_names_the_folder_of_the_saved_model_and_not_of_its_replay(monkeypatch):
    monkeypatch.setattr("flows.tell.summary.summary", lambda record, places, notes: str(dict(places)))
    stages = [
        {"stage": stage, "title": stage, "fingerprint": "ab", "cached": False}
        for stage in ("train", "export", "replay")
    ]
    store = SimpleNamespace(output=lambda stage, fingerprint: f"stages/{stage}/{fingerprint}")
    for last, folder in (("replay", "export"), ("train", "train")):
        done = stages[: 3 if last == "replay" else 1]
        record = {"run": "r", "pipeline": "p", "started": "", "state": "done", "stages": done}
        text = commands.summary_text(read_record(record), SimpleNamespace(last=last, store=store))
        assert text == str({"output": f"stages/{folder}/ab"})
