"""Limits that stop the work, and retries of errors that pass."""

import errno
import json
import os
import shutil
import sys
from types import SimpleNamespace
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.dag.step import Step
from flows.execution.engine import Engine
from flows.execution.retries import passing, tried
from flows.progress.reporter import Reporter
from headway.config import Result
from headway.errors import Cancelled, ConfigError, DataError, HeadwayError, LimitExceeded, StoreError
from headway.monitor import Monitor
from headway.stages.stage_class import Key, Stage
from headway.storage.process_identity import alive
from headway.storage.store import Store
from tfcore.runtime.limits import StageLimit, limited, memory_of
from tfcore.runtime.tensorflow_process import Child, ChildError

STAGES = """
import ctypes, errno, os, pathlib, subprocess, time
from headway.config import Result
from headway.errors import DataError
def slow(request, out, monitor):
    while True:
        try:
            monitor.check()
        except Exception:
            (out / "checkpoint").write_text("saved")
            raise
        time.sleep(0.02)

def stubborn(request, out, monitor):
    while True: time.sleep(0.1)

def hungry(request, out, monitor):
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1 << 20) * 20)); time.sleep(0.02)

def echo(request, out, monitor):
    return {"pid": os.getpid()}

def echo_many(requests, outs, monitor):
    return [{"pid": os.getpid(), "folder": out.is_dir(), **request} for request, out in zip(requests, outs)]

def native(request, out, monitor):
    other = subprocess.Popen(["sleep", "600"])
    pathlib.Path(request["pids"], "pids").write_text(f"{os.getpid()} {other.pid}")
    ctypes.PyDLL(None).sleep(600)  # holds the interpreter's lock: no thread of this process runs

def away(request, out, monitor):
    try:
        raise OSError(errno.ESTALE, "Stale file handle")
    except OSError as error:
        raise DataError("the file cannot be read") from error
"""


class Lines(Monitor):
    def __init__(self):
        super().__init__()
        self.lines = []

    def log(self, line):
        self.lines.append(line)

    def warn(self, line):
        self.lines.append(("to look at", line))


@pytest.fixture
def child(tmp_path):
    (tmp_path / "limit_stages.py").write_text(STAGES)
    path = os.pathsep.join(p for p in (str(tmp_path), os.environ.get("PYTHONPATH", "")) if p)
    with Child(on_line=lambda line: None, preload=(), environment={"PYTHONPATH": path}) as child:
        yield child


def _call(child, function, out, limit, grace=10.0):
    pid = child.call("limit_stages:echo", {}, out)["pid"]
    with pytest.raises(LimitExceeded) as raised, limited("train", limit, Monitor(), child, grace=grace) as monitor:
        child.call(f"limit_stages:{function}", {}, out, monitor)
    return pid, str(raised.value)


def test_a_training_past_its_time_saves_first(child, tmp_path):
    pid, said = _call(child, "slow", tmp_path, StageLimit(minutes=0.01))
    assert said.startswith("limits.train.minutes: train ran for 0.0") and "the limit is 0.01" in said
    assert "fix: raise limits.train.minutes" in said
    assert (tmp_path / "checkpoint").read_text() == "saved"
    assert child.call("limit_stages:echo", {}, tmp_path)["pid"] == pid  # it heeded, and lives


def test_a_process_that_does_not_heed_its_time_is_killed(child, tmp_path):
    pid, said = _call(child, "stubborn", tmp_path, StageLimit(minutes=0.01), grace=0.5)
    assert "limits.train.minutes" in said and not alive(pid)
    assert child.call("limit_stages:echo", {}, tmp_path)["pid"] != pid  # the next call has a new one


def test_a_process_that_takes_too_much_memory_is_killed(child, tmp_path):
    pid, said = _call(child, "hungry", tmp_path, StageLimit(memory_gb=0.4))
    assert said.startswith("limits.train.memory_gb: train took 0.") and "the limit is 0.4" in said
    assert not alive(pid)


def test_without_a_limit_or_below_it_nothing_happens(child, tmp_path):
    monitor = Monitor()
    with limited("train", StageLimit(), monitor, child) as same:
        assert same is monitor
    with limited("train", StageLimit(minutes=1, memory_gb=50), monitor, child) as watched:
        assert child.call("limit_stages:echo", {}, tmp_path, watched)
    with (
        pytest.raises(HeadwayError, match="no function 'missing'"),
        limited("train", StageLimit(minutes=1), monitor, child) as watched,
    ):
        child.call("limit_stages:missing", {}, tmp_path, watched)


def test_a_warning_of_a_stage_with_a_limit_stays_one(child):
    lines = Lines()
    with limited("train", StageLimit(minutes=1), lines, child) as watched:
        watched.warn("the loss rises")
    assert lines.lines == [("to look at", "the loss rises")]


def test_a_stage_without_tensorflow_that_hangs_in_native_code_is_ended_with_all_that_it_started(
    child, tmp_path, monkeypatch
):
    monkeypatch.setitem(limited.__wrapped__.__kwdefaults__, "grace", 0.3)
    store = Store(tmp_path / "store")
    store.create()

    class Native(Stage[Result]):
        name, version, runs = "ingest", 1, "limit_stages:native"
        pids: str

    class Several(Stage[Result]):
        name, version, runs, runs_many = "ingest", 1, "limit_stages:echo", "limit_stages:echo_many"
        number: Annotated[int, Key()]

    engine = Engine(store, child=child, report=Reporter(), limits={"ingest": StageLimit(minutes=0.1)})
    with pytest.raises(LimitExceeded, match=r"ingest ran for 0\.1.* min, and the limit is 0\.1"):
        engine.call_many([Step(Native(pids=str(tmp_path)), "ingest")])
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2 and os.getpid() not in pids and not any(map(alive, pids))
    assert not list(store.staging.iterdir()) and not child.alive()
    # the next stage has a new process, and several requests go as one
    steps = [Step(Several(number=number), "ingest") for number in (2, 3)]
    results = [output.result for output in engine.call_many(steps)]
    assert [result["number"] for result in results] == [2, 3] and results[0]["pid"] != os.getpid()
    assert [result["folder"] for result in results] == [True, True]


@pytest.mark.slow
def test_a_limit_changes_no_byte_of_what_the_stages_without_tensorflow_write(exported, typed):
    def written():
        manifests = (exported / "store" / "stages").glob("*/*/manifest.json")
        return {file.parent: json.loads(file.read_text())["files"] for file in manifests}

    before, ran = written(), ("ingest", "statistics", "splits", "validate", "transform", "measure", "replay")
    for stage in ran:
        shutil.rmtree(exported / "store" / "stages" / stage, ignore_errors=True)
    limits = {stage: {"minutes": 10, "memory_gb": 20} for stage in ran}
    with (exported / "pipeline.yaml").open("a") as file:
        file.write(f"limits: {json.dumps(limits)}\n")
    stages = json.loads(typed("run", "--to", "export", exported, "--json", check=0).stdout)["stages"]
    assert {s["stage"] for s in stages if not s["cached"]} == {s["stage"] for s in stages} & set(ran)
    after = written()
    measured = {folder for folder in before if folder.parent.name == "replay"}  # it has latencies
    assert after.keys() == before.keys()
    assert {folder for folder in before if before[folder] != after[folder]} <= measured


def test_an_error_that_passes_still_passes_when_it_comes_from_a_stage_of_another_process(child, tmp_path):
    with pytest.raises(DataError, match="cannot be read") as raised:
        child.plain.call("limit_stages:away", {}, tmp_path)
    assert passing(raised.value)


def test_a_run_that_is_stopped_is_no_limit(child):
    monitor = Monitor()
    monitor.stop.set()
    with pytest.raises(Cancelled), limited("ingest", StageLimit(minutes=1), monitor, child) as watched:
        assert watched.cancelled()
        watched.check()


def test_memory_counts_what_a_process_started():
    assert memory_of(os.getpid()) > 10_000_000 and memory_of(None) == 0 and memory_of(2**22 + 1) == 0


def _caused(error, cause):
    error.__cause__ = cause
    return error


def _instead(error, context):
    """An error raised `from None` where another was handled."""
    try:
        try:
            raise context
        except type(context):
            raise error from None
    except type(error) as raised:
        return raised


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (ConnectionResetError(), True),
        (_instead(DataError("no such column"), TimeoutError()), False),
        (TimeoutError(), True),
        (OSError(errno.EIO, "Input/output error"), True),
        (
            OSError("When reading information for key 'a': AWS Error NETWORK_CONNECTION during HeadObject operation"),
            True,
        ),
        (StoreError("cannot be written: input/output error"), True),
        (StoreError("SlowDown: Please reduce your request rate."), True),
        (StoreError("no answer for 30 s"), True),
        (StoreError("Generic S3 error: HTTP error: request or response body error"), True),
        (StoreError("the bucket refuses it: AccessDenied: Access Denied"), False),
        (_caused(DataError("cannot be read"), OSError(errno.ESTALE, "Stale file handle")), True),
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (FileNotFoundError(errno.ENOENT, "No such file"), False),
        (PermissionError(errno.EACCES, "Permission denied"), False),
        (DataError("column 'a' has 3 values that are no numbers"), False),
        (ConfigError("training.learning_rate: 'timed out' is not a number"), False),
        (ValueError("timed out"), False),
        (ChildError("InternalError: Graph execution error:"), False),
        (ChildError("ValueError: the feature is unavailable"), False),
        (KeyError("x"), False),
    ],
)
def test_only_errors_of_the_network_and_the_disk_are_tried_again(error, passes):
    assert passing(error) == passes


@given(retries=st.integers(0, 6), failures=st.integers(0, 8), draw=st.floats(0, 1, exclude_max=True))
def test_each_pause_is_twice_the_one_before_give_or_take_half(retries, failures, draw):
    pauses, calls = [], []

    def work():
        calls.append(1)
        if len(calls) <= failures:
            raise ConnectionResetError("reset")
        return "done"

    def pause(seconds):
        pauses.append(seconds)
        return False

    if failures > retries:
        with pytest.raises(ConnectionResetError):
            tried(work, retries, Lines, pause=pause, draw=lambda: draw)
    else:
        assert tried(work, retries, Lines, pause=pause, draw=lambda: draw) == "done"
    assert len(calls) == min(failures, retries) + 1
    assert pauses == [min(2.0 * 2**n, 60) * (0.5 + draw) for n in range(min(failures, retries))]


class Flaky(Stage[Result]):
    name, version, runs = "one", 1, "flaky_stages:flaky"


class Wrong(Stage[Result]):
    name, version, runs = "two", 1, "flaky_stages:wrong"


def test_the_engine_tries_a_step_again_and_a_mistake_only_once(tmp_path, monkeypatch):
    calls, lines = [], Lines()

    def flaky(request, out, monitor):
        calls.append(1)
        if len(calls) < 3:
            raise OSError(errno.EIO, "Input/output error")
        (out / "data").write_text("right")
        return {}

    def wrong(request, out, monitor):
        calls.append(1)
        raise DataError("wrong")

    monkeypatch.setitem(sys.modules, "flaky_stages", SimpleNamespace(flaky=flaky, wrong=wrong))
    monkeypatch.setattr("flows.execution.retries.FIRST_PAUSE_SECONDS", 0.01)
    store = Store(tmp_path / "store")
    store.create()
    told = Reporter()
    told.monitor = lambda title: lines
    engine = Engine(store, child=None, report=told, retries=2)
    engine.call_many([Step(Flaky(), "one")])
    assert len(calls) == 3 and "trying again in" in lines.lines[0] and "(1 of 2)" in lines.lines[0]
    calls.clear()
    with pytest.raises(DataError):
        engine.call_many([Step(Wrong(), "two")])
    assert len(calls) == 1
