"""`--log-format json`: a JSON object on every line of stderr, whoever prints there."""

import errno
import json
import os
import subprocess
import sys

import pytest

from flows.config.pipeline import read_pipeline
from flows.dag.run_spec import RunSpec
from flows.execution.run import execute
from flows.observability.json_log import JsonLog
from flows.observability.json_stream import JsonStream
from flows.progress.reporter import Event
from headway.errors import HeadwayError
from headway.redaction import remember
from headway.storage.store import Store

KEYS = ["time", "level", "event", "message", "pipeline", "run", "stage", "step", "pid", "fields"]


@pytest.fixture
def log():
    """A JSON log, and the records that it has written."""
    lines = []
    records = lambda: [json.loads(line) for line in lines]  # noqa: E731
    return JsonLog(JsonStream(lines.append)), records


def test_a_record_is_one_line_with_all_its_keys_and_no_secret(log):
    report, records = log
    remember("A_TOKEN", "s3cr3t-value-1234")
    report.note("the password is s3cr3t-value-1234\nand a second line")
    monitor = report.monitor("train")
    monitor.progress(10, 100, "steps", loss=float("nan"))
    monitor.warn("\N{SNOWMAN} \udcff")
    report.happened(Event("headway.drift.found", "churn", "a", {"alarms": ["a"]}))
    report.relay("W0000 from the child")
    found = records()
    assert all(list(record) == KEYS for record in found)
    assert [(record["event"], record["level"]) for record in found] == [
        ("note", "info"),
        ("stage.progress", "info"),
        ("stage.log", "warning"),
        ("headway.drift.found", "info"),
        ("line", "info"),
    ]
    assert "s3cr3t" not in json.dumps(found) and found[0]["message"].count("\n") == 1
    assert found[1]["fields"] == {"done": 10, "total": 100, "unit": "steps", "loss": None}
    assert found[3]["pipeline"] == "churn", "an event of no run is about a pipeline, too"
    assert found[3]["fields"] == {"alarms": ["a"]} and found[4]["fields"] == {"source": "tensorflow"}


def test_a_quiet_log_has_warnings_and_errors_only():
    lines = []
    report = JsonLog(JsonStream(lines.append), quiet=True)
    report.note("goes on")
    report.monitor("train").warn("full")
    assert [json.loads(line)["message"] for line in lines] == ["full"]


NOISY = """
import os, subprocess, sys, threading
from flows.observability.json_stream import stream, take_over
take_over()
print("from Python", file=sys.stderr)
os.write(2, b"from native code, \\xff")
os.write(2, b" in two pieces\\n")
subprocess.run([sys.executable, "-c", "import sys; print('from a child', file=sys.stderr)"])
stream().write("mine", "a record", fields={"n": 1})
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
raise ValueError("the end")
"""


def test_whatever_is_printed_to_stderr_is_a_record():
    done = subprocess.run([sys.executable, "-P", "-c", NOISY], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    records = [json.loads(line) for line in done.stderr.splitlines()]
    told = {record["message"]: record for record in records}
    assert {"from Python", "from native code, \N{REPLACEMENT CHARACTER} in two pieces", "from a child"} < set(told)
    assert told["a record"]["fields"] == {"n": 1}
    for words in ("ZeroDivisionError: division by zero", "ValueError: the end"):
        assert told[words]["event"] == "crashed" and "Traceback" in told[words]["fields"]["traceback"]


def test_a_stderr_that_is_closed_costs_the_log_and_not_the_answer():
    code = "import os; from flows.observability.json_stream import stream, take_over; take_over(); print(stream())"
    shell = ["sh", "-c", 'exec "$0" -P -c "$1" 2>&-', sys.executable, code]
    assert subprocess.run(shell, stdout=subprocess.PIPE, text=True, check=True).stdout == "None\n"


def _records(done):
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_a_run_on_beams_workers_is_told_in_records(project, headway):
    config = (project / "pipeline.yaml").read_text()
    (project / "pipeline.yaml").write_text(config + "runner: {name: direct, workers: 2}\n")
    done = headway("ingest", project, "--log-format", "json", "--json", "--window", 2, check=0)
    run = json.loads(done.stdout)["run"]  # the answer is where it always is
    records = _records(done)
    assert all(list(record) == KEYS for record in records)
    events = [record["event"] for record in records if record["run"] == run]
    assert events[0] == "run.started" and events[-1] == "run.ended"
    assert events.count("headway.span.ingested") == 2
    ended = [record for record in records if record["event"] == "stage.ended"]
    assert {record["step"] for record in ended} == {"ingest 2013-03", "ingest 2013-04"}
    assert all(record["fields"]["counts"]["read"] == 2000 and record["fields"]["bytes"] > 0 for record in ended)
    assert len({record["pid"] for record in records}) == 1, "the direct runner's workers are threads"
    assert all(record["stage"] == "ingest" and record["pipeline"] == "flights" for record in ended)


@pytest.mark.parametrize("broken", ["save_run", "sweep"])
def test_a_run_that_a_full_disk_ends_has_its_end_in_the_log(project, log, monkeypatch, broken):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    report, records = log
    loaded = read_pipeline(project / "pipeline.yaml")
    monkeypatch.setattr(Store, broken, full)
    spec = RunSpec(loaded=loaded, store=loaded.open_store(), window=1, last="ingest")
    with pytest.raises(HeadwayError, match=r"No space left|full"):
        execute(spec, report)
    ended = next(record for record in records() if record["event"] == "run.ended")
    assert ended["level"] == "error" and ended["fields"]["state"] == "failed" and ended["fields"]["error"]


def test_a_mistake_is_a_record_also_before_anything_runs(headway, tmp_path):
    for arguments in (["run", tmp_path / "none"], ["run", tmp_path, "--windov", "3"], ["wrong"]):
        done = headway(*arguments, "--log-format=json", check=2)
        (record,) = _records(done)
        assert record["event"] == "command.failed" and record["level"] == "error"
        assert record["fields"]["exit_code"] == 2
    done = headway("run", tmp_path, "--log-format", "xml", check=2)
    assert "'xml' is not a log format" in done.stderr and "Traceback" not in done.stderr


def test_what_a_command_says_without_a_run_is_about_its_pipeline(project, headway):
    done = headway("predict", project, "--input", project / "none.csv", "--output", "out", "--log-format", "json")
    assert done.returncode and {record["pipeline"] for record in _records(done)} == {"flights"}, done.stderr


def test_the_environment_asks_for_it_too(exported, headway):
    env = os.environ | {"HEADWAY_LOG_FORMAT": "json"}
    assert _records(headway("stats", exported, env=env, check=0))[-1]["event"] == "run.ended"
    assert not headway("stats", exported, "--log-format", "text", "--quiet", env=env, check=0).stderr


MODULE = """
import os, sys
import tensorflow as tf

print("module imported")

def build(layout, options):
    os.write(2, b"native line\\n")
    raise RuntimeError("broken model")
"""


@pytest.mark.slow
def test_what_the_tensorflow_process_prints_is_told_in_records(project, headway):
    (project / "mine.py").write_text(MODULE)
    config = (project / "pipeline.yaml").read_text()
    config = config.replace("model: {hidden: [16, 8], embedding: 4}", 'model: {name: "mine:build"}')
    (project / "pipeline.yaml").write_text(config)
    done = headway("train", project, "--log-format", "json")
    records = _records(done)
    lines = [record["message"] for record in records if record["event"] == "line"]
    assert done.returncode and {"module imported", "native line"} <= set(lines), records
    failed = next(record for record in records if record["event"] == "stage.failed")
    assert failed["stage"] == "train" and failed["fields"]["error"]
    ended = next(record for record in records if record["event"] == "run.ended")
    assert ended["fields"]["state"] == "failed" and "error" not in ended["fields"], "the failed stage has it"
    assert records[-1]["event"] == "command.failed" and not {"problem", "error"} & records[-1]["fields"].keys()
