"""Tables for a terminal line up, and a finished run is told in words."""

import sys
from types import SimpleNamespace

import pytest

from flows.cli.options import summary_text
from flows.records import read_record
from flows.report.model import Table, cell
from flows.report.text import summary, table_text, text_table
from headway.storage.store import Store

V, R = "v" * 60, "r" * 60 + " at byte 7"


@pytest.mark.parametrize(
    ("rows", "options", "lines"),
    [
        (  # numbers stand right, text left, and empty columns are left out
            [
                {"name": "a", "rows": 1200, "gone": None, "share": "1.5%"},
                {"name": "long", "rows": 7, "gone": "", "share": "12%"},
            ],
            {},
            ["  name   rows  share", "  a     1,200   1.5%", "  long      7    12%"],
        ),
        ([{"a": 1}, {"a": 2, "b": "x"}], {}, ["  a  b", "  1", "  2  x"]),  # the first row lacks a column
        ([{"a": "x\ny\tz"}], {}, ["  a", "  x\\ny\\tz"]),  # a row is one line
        ([{"a\n": "\x1b[2Jé\u202e東"}], {}, ["  a\\n", "  \\x1b[2Jé\\u202e東"]),
        ([], {}, []),
        # long cells are cut but for columns that are wanted whole
        ([{"v": V, "r": R}], {"whole": ["r"]}, ["  v" + " " * 49 + "r", f"  {'v' * 45}...  {R}"]),
        ([{"v": V, "r": R}], {}, ["  v" + " " * 49 + "r", f"  {'v' * 45}...  {'r' * 45}..."]),
    ],
)
def test_a_table_lines_up(rows, options, lines):
    assert text_table(rows, width=200, **options).splitlines() == lines


def test_names_in_the_first_column_wrap_where_the_others_fit_beside_them_then():
    name = "auc against the constant baseline on carrier=UA and origin=EWR"
    row = {"check": name, "now": 0.9, "change": "+0.4 (+0.1 to +0.5)", "outcome": "worse, perhaps within the limit"}
    lines = text_table([row], whole=["outcome"], width=72, fit=True).splitlines()
    assert max(map(len, lines)) <= 72 and lines[0].split() == ["check", "now", "change", "outcome"]
    start = lines[1].index("0.9")
    assert " ".join(" ".join(line[:start] for line in lines[1:]).split()) == name, "none of it is cut"
    assert " ".join(line[lines[0].index("outcome") :].strip() for line in lines[1:]).strip() == row["outcome"]
    assert text_table([row], width=200, fit=True).splitlines()[1].startswith(f"  {name}  0.9"), "all fits"


def test_a_wide_table_goes_on_below_at_the_width_of_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    row = {"column": "income", "type": "float32", "mean": 3011.71, "deviation": 923.6, "most frequent": "x" * 60}
    lines = text_table([row]).splitlines()
    assert max(map(len, lines)) <= 40
    assert [line.split()[0] for line in lines if line] == ["column", "income"] * 2
    assert "deviation" in "".join(lines) and "xxx..." in lines[-1] and "mean" in lines[0]


def test_a_list_is_shown_by_its_values():
    shown = table_text(Table("", [{"interval": [0.123456, 0.2], "top": [["a", 3], ["b", 1]]}]))
    assert "0.1235, 0.2" in shown and "[a, 3], [b, 1]" in shown


def test_a_cell_has_one_text_in_every_renderer():
    values = [None, 1200, 0.712345, 12345.678, "x", True, [0.5, None]]
    assert [cell(value) for value in values] == ["", "1,200", "0.7123", "12,345.68", "x", "True", "0.5, "]


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
        "  check                   before   now  change (95% interval)   limit  outcome",
        "  auc against version 2     0.88   0.9  +0.02 (+0.01 to +0.03)  -0.01  better",
        "  loss against version 2    0.35  0.31  -0.04 (-0.06 to -0.02)  +0.01  better",
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
