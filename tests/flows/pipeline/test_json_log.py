"""`--log-format json`: a JSON object on a line of stderr for each thing that is told of a run."""

import json
import logging
import warnings

import pytest

from flows.pipeline.json_log import LOGGER, JsonLog, log_as_json
from flows.pipeline.listeners import Reporter
from headway.redaction import remember


def _lines(text):
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def logged(capsys):
    """logged(quiet=False) -> a function that gives the lines so far."""
    root = logging.getLogger()
    before = root.handlers[:]

    def begin(*, quiet=False):
        log_as_json(quiet=quiet)
        return lambda: _lines(capsys.readouterr().err)

    yield begin
    logging.captureWarnings(False)
    root.handlers[:] = before
    LOGGER.setLevel(logging.NOTSET)


def test_a_line_is_one_object_without_a_secret(logged):
    lines = logged()
    remember("A_TOKEN", "s3cr3t-value-1234")
    report = Reporter([JsonLog()])
    report.note("the password is s3cr3t-value-1234\nand a second line")
    with report.step("ingest 2013-05") as monitor:
        monitor.warn("\N{SNOWMAN} \udcff")
    report.relay("W0000 from the child")
    found = lines()
    assert [(line["level"], line.get("stage"), line.get("span"), line.get("status")) for line in found] == [
        ("info", None, None, None),
        ("info", "ingest", "2013-05", "started"),
        ("warning", "ingest", "2013-05", None),
        ("info", None, None, None),
    ]
    assert found[0]["message"] == "the password is ${A_TOKEN}\nand a second line"
    assert set(found[0]) == {"time", "level", "message"}


def test_a_quiet_log_has_warnings_and_errors_only(logged):
    lines = logged(quiet=True)
    report = Reporter([JsonLog()])
    report.note("goes on")
    with report.step("train") as monitor:
        monitor.warn("full")
    assert [line["message"] for line in lines()] == ["train: full"]


def test_what_libraries_warn_of_and_an_exception_are_lines_too(logged):
    lines = logged()
    warnings.warn("old", stacklevel=1)
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        logging.getLogger("somebody").exception("it broke")
    warned, broke = lines()
    assert "old" in warned["message"] and broke["message"] == "it broke" and "ZeroDivisionError" in broke["traceback"]


def test_a_run_is_told_in_lines(project, headway):
    done = headway("run", "--to", "ingest", project, "--log-format", "json", "--json", "--window", 2, check=0)
    run = json.loads(done.stdout)["run"]  # the answer is where it always is
    lines = _lines(done.stderr)
    about = [(line.get("stage"), line.get("span"), line.get("status")) for line in lines if line.get("run") == run]
    assert about[0] == (None, None, "started") and about[-1] == (None, None, "done")
    assert {("ingest", "2013-03", "done"), ("ingest", "2013-04", "done")} <= set(about)
    again = headway("run", "--to", "ingest", project, "--log-format=json", "--json", "--window", 2, check=0)
    assert {line["status"] for line in _lines(again.stderr) if line.get("span")} == {"reused"}


def test_a_mistake_is_a_line_also_before_anything_runs(headway, tmp_path):
    for arguments in (["run", tmp_path / "none"], ["run", tmp_path, "--windov", "3"], ["wrong"]):
        done = headway(*arguments, "--log-format=json", "--json", check=2)
        (line,), answer = _lines(done.stderr), json.loads(done.stdout)
        assert (line["level"], line["status"]) == ("error", "failed") and answer["error"]["problem"] in line["message"]
    done = headway("run", tmp_path, "--log-format", "xml", check=2)
    assert '"xml"' in done.stderr and "Traceback" not in done.stderr
