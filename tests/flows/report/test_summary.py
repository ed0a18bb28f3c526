"""A finished run in words."""

import sys

from flows.records import read_record
from flows.report.text import summary

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
        "reasons": [{"status": "promoted", "summary": "auc rose"}, {"status": "promoted", "summary": "loss fell"}],
    },
    "metrics": {"auc": 0.9},
    "notes": [],
    "warnings": ["few rows"],
    "seconds": 70.0,
}


def test_the_summary_is_a_fact_per_line_in_a_pipe_the_warnings_first():
    assert summary(read_record(RECORD), [("model", "/m")]).splitlines() == [
        "warning: few rows",
        "flights: Version 3 is promoted: auc rose.",
        "  verdict   promoted, with warnings (amber)",
        "            loss fell",
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
    reasons = [{"status": "promoted", "summary": "a reason of many words " * 6}]
    record = RECORD | {"verdict": {"status": "promoted", "reasons": reasons}}
    lines = summary(read_record(record), [("model", path)]).splitlines()
    assert path in "\n".join(lines)
    assert max(len(line) for line in lines if path not in line) <= 60
