"""What a run shows: a live line per step on a terminal, plain lines in a pipe, and few of them: a person reads a first run, and a
rejected one, without scrolling."""

import fcntl
import math
import os
import pty
import random
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from flows.pipeline.listeners import BriefWriter, LineWriter, Listener, ProgressBars, Reporter, _detail
from headway.stages.step import Output

RUN = """
import os, time
from pathlib import Path
from headway.stages.step import Output
from flows.pipeline import listeners
listeners.Pace._SECONDS = listeners.LineWriter.seconds = listeners.BriefWriter.seconds = 0.0
with listeners.reporter(verbose=bool(os.environ.get("VERBOSE"))) as report:
    with report.step("train") as monitor:
        for step in range(0, 1001, 100):
            monitor.progress(step, 1000, "steps", loss=0.5)
            time.sleep(0.3 if step == 500 else 0.02)  # a live line is drawn ten times a second
        monitor.log("a line of the step [bold]")
    columns = [{"name": "a_column_with_a_long_name"}] * 5
    report.output(Output("train", "analyse", "0", Path(), {"rows": 5, "columns": columns}, False, 2.0))
    report.note("a note")
"""
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def in_terminal(columns, **environment):
    """What a terminal of this width got, as it came."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    env = kept | {"TERM": "xterm-256color"} | environment
    with subprocess.Popen([sys.executable, "-c", RUN], stdout=theirs, stderr=theirs, stdin=theirs, env=env) as process:
        os.close(theirs)
        data = b""
        try:
            while block := os.read(ours, 1 << 16):
                data += block
        except OSError:  # the terminal's other end is closed
            pass
        assert process.wait(60) == 0, data
    os.close(ours)
    return data.decode()


@pytest.mark.parametrize("columns", [60, 200])
def test_a_terminal_has_a_line_per_step_that_fits(columns):
    text = in_terminal(columns)
    lines = [CODES.sub("", line) for line in re.split(r"[\r\n]+", text)]
    assert max(map(len, lines)) <= columns
    live = [line for line in lines if "━" in line]
    assert any(("50%" if columns == 60 else "500 of 1,000 steps") in line for line in live)
    assert any("steps/s" in line and " s left" in line and ("loss 0.5" in line or columns == 60) for line in live)
    assert sum(line.startswith("  train ") for line in lines if "━" not in line) == 1
    assert any(line.startswith("  train ") and line.rstrip().endswith("…") for line in lines) == (columns == 60)


@pytest.mark.long
def test_no_color_leaves_no_colour_and_a_dumb_terminal_gets_plain_lines():
    assert re.search(r"\x1b\[(\d+;)*3\dm|\x1b\[38", in_terminal(80))
    assert not re.search(r"\x1b\[(\d+;)*3\dm|\x1b\[38", in_terminal(80, NO_COLOR="1"))
    assert "\x1b" not in in_terminal(80, TERM="dumb")


@pytest.mark.slow  # types the command
def test_a_pipe_gets_plain_lines_and_no_control_codes():
    for environment in ({}, {"FORCE_COLOR": "1"}, {"VERBOSE": "1"}):
        done = subprocess.run(
            [sys.executable, "-c", RUN], capture_output=True, text=True, check=True, env=os.environ | environment
        )
        assert "\x1b" not in done.stderr and "\r" not in done.stderr and not done.stdout
        assert "  train: 500 of 1,000 steps, " in done.stderr
        wanted = "VERBOSE" in environment
        assert ("  train: a line of the step [bold]" in done.stderr) == wanted, "only where asked for"
        assert "a_column_with_a_long_name, a_column_with_a_long_name\n" in done.stderr  # nothing is cut


def test_the_lines_of_a_window_that_runs_beside_others_name_it_and_its_titles_stay(capsys):
    told = []

    class Titles(Listener):
        def on_line(self, scope, text, level="info", step=""):
            if step:
                told.append(step)

    report = Reporter([LineWriter(), Titles()])
    of_window = report.window("2013-05")
    with of_window.step("train") as monitor:
        monitor.log("resumed")
    of_window.note("  removed a folder")
    report.note("window up to 2013-06")
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["  2013-05: train: resumed", "  2013-05: removed a folder", "window up to 2013-06"]
    assert told == ["train"] and of_window.stop is report.stop


def test_the_line_of_measure_has_the_metrics_of_ones_own_and_the_threshold():
    result = {"metrics": {"auc": 0.9, "mine:cost": 0.42721}, "threshold": {"value": 0.31}}
    assert _detail(Output("measure", "measure", "0", Path(), result, False, 1.0)) == "mine:cost 0.4272, threshold 0.31"
    assert _detail(Output("measure", "measure", "0", Path(), {"metrics": {"auc": 0.9}}, False, 1.0)) == ""


def lines_of(done, columns=100):
    """How many lines of a terminal the output takes, but for those that come by the clock: a slow machine has more."""
    said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    said = [line for line in said if not re.match(r"  train: \d+ of \d+ steps", line)]
    return sum(math.ceil(len(line) / columns) for line in said)


@pytest.mark.long
def test_a_first_run_has_20_lines_at_most_and_a_rejected_one_25(typed, tmp_path):
    draw = random.Random(3)
    rows = [(round(draw.uniform(0, 12), 2), draw.choice(["Bonn", "Mainz", "Trier"])) for _ in range(6000)]
    told = [f"{km},{city},{15 + 3 * km + 9 * (city == 'Bonn') + draw.gauss(0, 6):.0f}" for km, city in rows]
    (tmp_path / "deliveries.csv").write_text("\n".join(["distance,city,minutes", *told]))
    typed("init", tmp_path / "deliveries.csv", "--label", "minutes > 35", "--folder", tmp_path, check=0)
    wide = {"COLUMNS": "100"}
    first = typed("run", tmp_path, "--set", "training.steps=100", check=0, env=wide)
    assert lines_of(first) <= 20, first.stderr + first.stdout
    assert str(tmp_path) not in first.stderr + first.stdout, "paths are asked for"
    worse = ("--set", "training.steps=2", "--set", "model.hidden=[4]", "--set", "gate.thresholds.auc.min=0.999")
    rejected = typed("run", tmp_path, *worse, check=4, env=wide)
    assert lines_of(rejected) <= 25, rejected.stderr + rejected.stdout
    assert "since version 1: training.steps 100 -> 2; model.hidden " in rejected.stdout
    assert "gate.thresholds.auc.min not set -> 0.999" in " ".join(rejected.stdout.split())
    checks = rejected.stdout[rejected.stdout.index("  check ") :].splitlines()
    assert re.split("  +", checks[0].strip()) == ["check", "before", "now", "change", "limit", "outcome"]
    assert max(map(len, checks[:4])) <= 100, "beside each other, with the longest words"
    assert checks[1].endswith("beyond the limit") and re.search("  auc +0.*at least 0.999  missed", rejected.stdout)
    everything = typed("show", tmp_path, check=0).stdout
    assert "  training  " in everything and str(tmp_path / "store") in everything


def test_a_step_says_how_far_it_is_every_15_seconds_however_often_it_is_told(capsys, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with BriefWriter() as shown, Reporter([shown]).step("train") as monitor:
        for step in range(460):
            monitor.progress(step, 1000, "steps")
            now[0] += 0.1
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("  train: ")]
    assert 2 <= len(said) <= 4, said


@pytest.mark.parametrize("shows", [BriefWriter, ProgressBars])
def test_all_spans_are_a_line_a_proof_that_holds_is_none_and_a_warning_stays(shows, capsys, tmp_path, monkeypatch):
    def ingested(span, *, hit):
        counts = {"read": 1000, "written": 990, "filtered": 10, "quarantined": 0}
        return Output(f"ingest {span}", "ingest", "0", tmp_path, {"counts": counts, "span": span}, hit, 0.5)

    monkeypatch.setenv("COLUMNS", "200")
    with shows() as shown:
        report = Reporter([shown])
        for month in range(1, 11):
            report.output(ingested(f"2013-{month:02d}", hit=month < 10))
        report.line("compared 3 spans", step="splits")
        report.line("few rows", "warning", "validate")
        report.output(Output("splits", "splits", "0", tmp_path, {"anomalies": [], "says": ["disjoint"]}, False, 0.1))
        report.output(Output("gate", "gate", "0", tmp_path, {"status": "promoted"}, False, 0.1))
    assert capsys.readouterr().err.rstrip().splitlines() == [
        "  validate: warning: few rows",
        f"  {'ingest':<22} {'0.5 s':>8}  10 spans: 1 new, 9 reused; 9,900 rows, 100 filtered",
        f"  {'gate':<22} {'0.1 s':>8}  promoted",
    ]
    with shows() as shown:
        Reporter([shown]).output(ingested("2013-01", hit=True))
    assert capsys.readouterr().err.strip() == f"{'ingest 2013-01':<22} {'cached':>8}  990 rows, 10 filtered"
