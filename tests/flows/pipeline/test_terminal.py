"""What a run shows: a live line per step on a terminal, plain lines in a pipe."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from flows.pipeline.listeners import Lines, Listener, Reporter, _detail
from headway.stages.step import Output

RUN = """
import os, time
from pathlib import Path
from headway.stages.step import Output
from flows.pipeline import listeners
listeners.Pace._SECONDS = listeners.Lines.seconds = listeners.Brief.seconds = 0.0
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
        assert ("  train: a line of the step [bold]" in done.stderr) == ("VERBOSE" in environment), (
            "only where asked for"
        )
        assert "a_column_with_a_long_name, a_column_with_a_long_name\n" in done.stderr  # nothing is cut


def test_the_lines_of_a_window_that_runs_beside_others_name_it_and_its_titles_stay(capsys):
    told = []

    class Titles(Listener):
        def line(self, scope, text, level="info", step=""):
            if step:
                told.append(step)

    report = Reporter([Lines(), Titles()])
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
