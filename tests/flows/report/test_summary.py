"""A finished run in words."""

import sys
from types import SimpleNamespace

from flows.cli.options import summary_text
from flows.records import read_record
from flows.report.text import summary
from headway.storage.store import Store

COMPARED = {
    "name": "champion",
    "against": "version 2",
    "better": "higher",
    "allowed": 0.01,
    "confidence": 0.95,
    "outcome": "better",
}
RECORD = {
    "run": "20240501-100000-aa",
    "pipeline": "flights",
    "started": "2024-05-01T10:00:00.000Z",
    "state": "promoted",
    "version": 3,
    "spans": ["2024-01", "2024-02"],
    "stages": [
        {"stage": "ingest", "title": "ingest 2024-01", "fingerprint": "a", "cached": True, "seconds": 9.0},
        {"stage": "train", "title": "train", "fingerprint": "b", "cached": False, "seconds": 61.0},
    ],
    "verdict": {
        "status": "promoted",
        "basis": "better",
        "task": "binary",
        "primary": "auc",
        "champion": {"version": 2, "model": "old"},
        "checks": [
            COMPARED | {"metric": "auc", "value": 0.9, "before": 0.88, "change": 0.02, "interval": [0.01, 0.03]},
            COMPARED
            | {"metric": "loss", "value": 0.31, "before": 0.35, "change": -0.04, "interval": [-0.06, -0.02]}
            | {"better": "lower"},
        ],
    },
    "metrics": {"auc": 0.9},
    "notes": [],
    "warnings": ["few rows"],
    "seconds": 70.0,
}


def test_the_summary_is_a_fact_per_line_in_a_pipe_the_warnings_first(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert summary(read_record(RECORD), [("model", "/m")]).splitlines() == [
        "warning: few rows",
        "flights: Version 3 is promoted: auc rose from 0.88 (version 2) to 0.9, which is better.",
        "  verdict   promoted, with warnings (amber)",
        "  check                   before   now  change (95% interval)   worst allowed  outcome",
        "  auc against version 2     0.88   0.9  +0.02 (+0.01 to +0.03)          -0.01  better",
        "  loss against version 2    0.35  0.31  -0.04 (-0.06 to -0.02)          +0.01  better",
        "  metrics   auc 0.9",
        "  data      2024-01 to 2024-02, 2 spans",
        "  model     /m",
        "  time      70 s; 1 of 2 steps ran",
        "  run       20240501-100000-aa",
    ]


def test_the_summary_wraps_on_a_terminal_and_leaves_paths_whole(monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    path = "/a/very/long/path" * 5
    lines = summary(read_record(RECORD), [("model", path)]).splitlines()
    assert path in "\n".join(lines)
    assert max(len(line) for line in lines if path not in line) <= 60


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
