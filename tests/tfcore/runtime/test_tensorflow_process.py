"""The TensorFlow child's protocol, its ties to the parent and its errors; mostly without TensorFlow, to be quick."""

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from headway.config import Frozen
from headway.errors import Cancelled, ConfigError, DataError, HeadwayError
from headway.monitor import Monitor
from headway.stages.stage_class import Stage
from tests.waiting import until
from tfcore.runtime.tensorflow_process import Child, ChildError

STAGES = """
import os, sys, time, signal
import numpy as np
from pathlib import Path
from headway.config import Frozen
from headway.errors import DataError, Locked, HeadwayError
from headway.monitor import Monitor

class Request(Frozen):
    rows: int
    names: tuple[str, ...] = ()
    limit: float = 1.0

def echo(request: Request, out: Path, monitor: Monitor, *, extra: int = 0, folder: Path | None = None) -> dict:
    assert isinstance(request, Request) and isinstance(out, Path) and (folder is None or isinstance(folder, Path))
    print("one", "two"); print("to stderr", file=sys.stderr)
    monitor.log("a line"); monitor.warn("a doubt"); monitor.progress(1, 1, "rows", loss=np.float32(0.5))
    return {"rows": request.rows, "names": list(request.names), "limit": request.limit, "extra": np.int64(extra),
            "array": np.arange(3), "out": out, "pid": os.getpid()}

def untyped(request, out, monitor):
    return {"request": request}

def data_error(request: Request, out, monitor):
    raise DataError("record 7 is cut off", where="train-0.tfrecord", fix="run headway verify")

class Deeper(DataError): pass

def deeper(request: Request, out, monitor):
    raise Deeper("deep")

def bug(request: Request, out, monitor):
    return {}["missing"]

def leave(request: Request, out, monitor):
    raise SystemExit(3)

def die(request: Request, out, monitor):
    print("my last words"); os.kill(os.getpid(), getattr(signal, request.names[0]) if request.names else 9)

def exits(request: Request, out, monitor):
    os._exit(7)

def unanswerable(request: Request, out, monitor):
    return {"x": object()}

def slow(request: Request, out, monitor):
    for i in range(request.rows):
        monitor.check(); monitor.progress(i, request.rows, "steps"); time.sleep(0.02)
    return {"stopped": False}

def stubborn(request: Request, out, monitor):
    import faulthandler
    (out / "pid").write_text(str(os.getpid()))
    while True: sum(range(10000))
"""


@pytest.fixture
def stages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stages")
    (folder / "my_stages.py").write_text(STAGES)
    return {"PYTHONPATH": os.pathsep.join(p for p in (str(folder), os.environ.get("PYTHONPATH", "")) if p)}


@pytest.fixture
def child(stages):
    lines = []
    with Child(on_line=lines.append, preload=(), environment=stages) as child:
        child.lines = lines
        yield child


class Recorder(Monitor):
    def __init__(self):
        super().__init__()
        self.events = []

    def progress(self, done, total, unit, **facts):
        self.events.append((done, total, unit, facts))

    def log(self, line):
        self.events.append(line)

    def warn(self, line):
        self.events.append(("warning", line))


def gone(pid, seconds=5.0):
    """Whether the process ends within `seconds` (a zombie has ended)."""
    for _ in range(int(seconds / 0.02)):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


def test_a_call_crosses_validated_and_its_output_is_relayed(child, tmp_path):
    monitor = Recorder()
    request = {"rows": 3, "names": ["ä"], "limit": float("inf")}
    result = child.call("my_stages:echo", request, tmp_path, monitor, extra=4, folder=tmp_path)
    assert result.pop("pid") == child.pid
    assert result == {
        "rows": 3, "names": ["ä"], "limit": float("inf"), "extra": 4, "array": [0, 1, 2], "out": str(tmp_path),
    }  # fmt: skip
    assert monitor.events == ["a line", ("warning", "a doubt"), (1, 1, "rows", {"loss": 0.5})]
    assert child.call("my_stages:untyped", {"any": 1}, tmp_path) == {"request": {"any": 1}}
    child.close()
    assert child.lines == ["one two", "to stderr"]


def test_errors_keep_their_kind(child, tmp_path):
    with pytest.raises(DataError) as info:
        child.call("my_stages:data_error", {"rows": 1}, tmp_path)
    wanted = ("record 7 is cut off", "train-0.tfrecord", "run headway verify")
    assert (info.value.problem, info.value.where, info.value.fix) == wanted
    with pytest.raises(DataError, match="deep"):
        child.call("my_stages:deeper", {"rows": 1}, tmp_path)
    with pytest.raises(ConfigError, match=r"rows.*'x'") as info:
        child.call("my_stages:echo", {"rows": "x"}, tmp_path)
    assert info.value.where == "my_stages.echo"
    for call, problem in [("my_stages:nothing", "no function 'nothing'"), ("no_such_module:f", "no module no_such")]:
        with pytest.raises(HeadwayError, match=problem):
            child.call(call, {}, tmp_path)


def test_other_exceptions_bring_their_traceback_and_the_child_lives_on(child, tmp_path):
    with pytest.raises(ChildError, match="KeyError: 'missing'") as info:
        child.call("my_stages:bug", {"rows": 1}, tmp_path)
    assert "\n" not in info.value.problem and 'return {}["missing"]' in info.value.traceback
    assert pickle.loads(pickle.dumps(info.value)).traceback == info.value.traceback
    with pytest.raises(ChildError, match="SystemExit: 3"):
        child.call("my_stages:leave", {"rows": 1}, tmp_path)
    with pytest.raises(ChildError, match="JSON cannot hold"):
        child.call("my_stages:unanswerable", {"rows": 1}, tmp_path)
    pid = child.pid
    assert child.call("my_stages:echo", {"rows": 1}, tmp_path)["pid"] == pid


@pytest.mark.parametrize(
    ("call", "request_", "message"),
    [
        ("die", {"rows": 1}, "SIGKILL"),
        ("die", {"rows": 1, "names": ["SIGSEGV"]}, "SIGSEGV"),
        ("exits", {"rows": 1}, "exit code 7"),
    ],
)
def test_a_death_in_a_call_names_its_cause_and_last_lines(child, tmp_path, call, request_, message):
    with pytest.raises(ChildError, match=message) as info:
        child.call(f"my_stages:{call}", request_, tmp_path)
    assert info.value.where == f"my_stages.{call}"
    assert ("| my last words" in info.value.problem) == (call == "die")
    assert (info.value.fix is not None) == (message == "SIGKILL")
    assert child.call("my_stages:echo", {"rows": 1}, tmp_path)["rows"] == 1  # a new process


def test_a_death_between_calls_is_survived(child, tmp_path):
    child.spawn()
    first = child.pid
    os.kill(first, signal.SIGKILL)
    assert gone(first)
    assert child.call("my_stages:echo", {"rows": 1}, tmp_path)["pid"] != first


def test_a_stop_reaches_the_running_call_only(child, tmp_path):
    monitor = Recorder()
    child.call("my_stages:echo", {"rows": 1}, tmp_path)  # it takes a second to start where others work too
    threading.Timer(0.7, monitor.stop.set).start()
    with pytest.raises(Cancelled):
        child.call("my_stages:slow", {"rows": 100_000}, tmp_path, monitor)
    progress = [event for event in monitor.events if event[2] == "steps"]
    assert 1 <= len(progress) <= 12  # thinned out to ten a second
    assert child.call("my_stages:slow", {"rows": 2}, tmp_path) == {"stopped": False}
    with pytest.raises(Cancelled):
        child.call("my_stages:echo", {"rows": 1}, tmp_path, monitor)  # cancelled before it began


def test_ctrl_c_does_not_touch_the_child(child, tmp_path):
    child.call("my_stages:echo", {"rows": 1}, tmp_path)
    os.kill(child.pid, signal.SIGINT)
    assert child.call("my_stages:echo", {"rows": 1}, tmp_path)["rows"] == 1
    assert os.getpgid(child.pid) != os.getpgid(0)


def test_close_ends_a_child_that_is_busy(child, tmp_path):
    failed = []

    def call():
        try:
            child.call("my_stages:stubborn", {"rows": 1}, tmp_path)
        except HeadwayError as error:
            failed.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    while not (tmp_path / "pid").exists():
        time.sleep(0.02)
    pid = child.pid
    child.close()
    assert gone(pid)
    thread.join()
    assert "exit code 0" in failed[0], "it was killed"


def test_the_child_ends_when_its_parent_is_killed(stages, tmp_path):
    script = textwrap.dedent(f"""
        from pathlib import Path
        from tfcore.runtime.tensorflow_process import Child
        Child(preload=(), environment={stages!r}).call("my_stages:stubborn", {{"rows": 1}}, Path({str(tmp_path)!r}))
    """)
    parent = subprocess.Popen([sys.executable, "-c", script])
    try:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        pid = int((tmp_path / "pid").read_text())
    finally:
        parent.kill()
        parent.wait()
    assert gone(pid, 3.0)


def test_a_call_says_that_it_waits_for_an_import_once_and_only_if_it_is_long(stages, tmp_path, monkeypatch):
    monkeypatch.setattr("tfcore.runtime.tensorflow_process.SILENT_SECONDS", 0.05)
    folder = stages["PYTHONPATH"].split(os.pathsep)[0]
    (Path(folder) / "slow_to_import.py").write_text("import time; time.sleep(1)")
    monitor = Recorder()
    with Child(on_line=lambda line: None, preload=("slow_to_import",), environment=stages) as child:
        for _ in range(2):
            child.call("my_stages:echo", {"rows": 1}, tmp_path, monitor)
    said = [event for event in monitor.events if event != "a line" and isinstance(event, str)]
    assert said == ["importing slow_to_import"]


def test_a_child_that_is_not_called_is_let_go_at_once_while_it_imports(stages):
    folder = stages["PYTHONPATH"].split(os.pathsep)[0]
    (Path(folder) / "long_to_import.py").write_text("import time; time.sleep(60)")
    with Child(on_line=lambda line: None, preload=("long_to_import",), environment=stages) as child:
        child.spawn()
        pid, began = child.pid, time.monotonic()
    assert time.monotonic() - began < 4.0, "it gets five seconds where it works"
    assert gone(pid)


def test_a_module_that_cannot_be_imported_is_reported_at_the_first_call(stages, tmp_path):
    with Child(preload=("no_such_tensorflow",), environment=stages) as child, pytest.raises(ChildError) as info:
        child.call("my_stages:echo", {"rows": 1}, tmp_path)
    assert "cannot import" in info.value.problem and "headway doctor" in info.value.fix


class Cluster(Stage[Frozen]):
    """A stage with a process of its own."""

    name, version, runs = "cluster", 1, "my_stages:echo"
    rows: int = 1

    @property
    def own_process(self):
        return True


def test_a_stage_that_wants_a_process_of_its_own_has_one(child, tmp_path):
    before = child.call("my_stages:echo", {"rows": 1}, tmp_path)["pid"]
    own = child.call("my_stages:echo", Cluster(), tmp_path)["pid"]
    assert not child.alive()
    after = child.call("my_stages:echo", {"rows": 1}, tmp_path)["pid"]
    assert len({before, own, after}) == 3
