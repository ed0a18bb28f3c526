"""The summary of a run that ends early."""

from types import SimpleNamespace

from flows.cli.options import summary_text
from flows.records import read_record
from headway.storage.store import Store


def test_headway_export_names_the_folder_of_the_saved_model_and_not_of_its_replay(monkeypatch, tmp_path):
    monkeypatch.setattr("flows.report.text.summary", lambda record, places, verbose: str(dict(places)))
    stages = [
        {"stage": stage, "title": stage, "fingerprint": "ab", "cached": False}
        for stage in ("train", "export", "replay")
    ]
    store = Store(tmp_path / "store")
    for last, folder in (("export", "export"), ("train", "train")):
        done = stages[: 3 if last == "export" else 1]
        record = {"run": "r", "pipeline": "p", "started": "", "state": "done", "stages": done}
        text = summary_text(read_record(record), SimpleNamespace(last=last, store=store))
        assert text == str({"output": str(tmp_path / "store" / "stages" / folder / "ab")})
