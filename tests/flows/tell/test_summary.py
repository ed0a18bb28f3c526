"""A finished run in words."""

import sys

import pytest

from flows.records import read_record
from flows.tell.summary import headline, sentence, summary

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
    "verdict": {"verdict": "promote", "promote": True, "reasons": ["auc rose", "loss fell"]},
    "metrics": {"auc": 0.9},
    "notes": [],
    "warnings": ["few rows"],
    "seconds": 70.0,
}


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (RECORD, "promoted version 3"),
        (
            RECORD | {"verdict": {"verdict": "first model", "promote": True, "reasons": []}},
            "promoted version 3: first model",
        ),
        (RECORD | {"state": "already champion"}, "version 3 is the champion already; nothing to promote"),
        (RECORD | {"state": "worse"}, "not promoted: worse"),
        (RECORD | {"state": "named", "alias": "shadow"}, "shadow is version 3; the champion is as before"),
        (RECORD | {"state": "done", "last": "validate"}, "done up to validate"),
        (RECORD | {"state": "killed"}, "killed"),
    ],
)
def test_the_headline_is_what_became_of_the_candidate(record, words):
    assert headline(read_record(record)) == words


def test_a_candidate_that_is_turned_down_has_its_reasons_in_the_sentence():
    assert sentence(read_record(RECORD | {"state": "worse"})) == "not promoted: worse: auc rose; loss fell (auc 0.9)"


def test_the_summary_is_a_fact_per_line_in_a_pipe():
    assert summary(read_record(RECORD), [("model", "/m")]).splitlines() == [
        "flights: promoted version 3",
        "  why       auc rose",
        "            loss fell",
        "  metrics   auc 0.9",
        "  data      2024-01 to 2024-02, 2 spans",
        "  warning   few rows",
        "            what to do about the data: headway validate, or the report",
        "  model     /m",
        "  time      70 s (train 61 s); 1 of 2 steps ran",
        "  run       20240501-100000-aa",
    ]


def test_the_summary_wraps_on_a_terminal_and_leaves_paths_whole(monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    path = "/a/very/long/path" * 5
    record = RECORD | {"verdict": {"verdict": "better", "promote": True, "reasons": ["a reason of many words " * 6]}}
    lines = summary(read_record(record), [("model", path)]).splitlines()
    assert path in "\n".join(lines)
    assert max(len(line) for line in lines if path not in line) <= 60
