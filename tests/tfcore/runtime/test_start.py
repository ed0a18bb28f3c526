"""How a TensorFlow process begins: TensorFlow is imported once, for it and for the process of its replay."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tfcore
from tests.fork_server import ForkServer
from tests.tfcore.runtime.test_tensorflow_process import gone
from tfcore.runtime import early_start
from tfcore.runtime.tensorflow_process import Child

START = Path(tfcore.__file__).parent / "runtime" / "start.py"
REPLAY = Path(tfcore.__file__).parent / "export" / "replay_main.py"
STAGES = """
import os
import threading
from pathlib import Path
from headway.monitor import Monitor
from headway.process import Forked
from tfcore.export.replay import ReplayProcess

def look(request, out, monitor):
    import keras
    import tensorflow as tf
    from tensorflow.keras.layers import Dense  # as users write it
    return {
        "one": tf.keras.layers.Dense is keras.layers.Dense and Dense is keras.layers.Dense,
        "waiting": [forked.pid for forked in Forked.waiting],
    }

def hang(request, out, monitor):
    (out / "saved_model").mkdir()
    os.mkfifo(out / "saved_model" / "saved_model.pb")  # opening it waits for a writer
    sent = threading.Event()

    class Asked(Monitor):
        def check(self):
            sent.set()

    ask = {"columns": [], "saved_model": str(out / "saved_model")}
    threading.Thread(target=ReplayProcess().ask, args=(ask, Asked()), daemon=True).start()
    sent.wait()

def ask(request, out, monitor):
    return ReplayProcess().ask({"columns": [], "saved_model": str(out / "none")}, Monitor())
"""

IMPORTED = f"""
import runpy
import sys
forked = runpy.run_path({str(START)!r}, run_name="start")["fork_replay"]({str(REPLAY)!r})
from headway.process import Forked
from tfcore.runtime import worker
Forked.waiting.append(Forked(*forked))
sys.argv = ["start.py", "tensorflow", "keras"]
worker.main()
"""
"""What START does once TensorFlow is imported."""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "looking.py").write_text(STAGES)
    return os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))


@pytest.fixture
def child(place, monkeypatch):
    monkeypatch.setattr("headway.process.subprocess", subprocess)  # this is about the start itself
    with Child(environment={"PYTHONPATH": place}) as child:
        yield child


@pytest.fixture
def imported_child(place, tmp_path, monkeypatch, fork_server):
    """The same, of a process that forks its replay as `child` does, and begins with TensorFlow imported: for what comes
    after the start."""
    (tmp_path / "imported.py").write_text(IMPORTED)

    class Server(ForkServer):
        def Popen(self, command, *, env, cwd=None, **more):
            return fork_server._forked("worker", ["-P", "-u", str(tmp_path / "imported.py")], env, cwd)

    monkeypatch.setattr("headway.process.subprocess", Server(tmp_path))
    with Child(environment={"PYTHONPATH": place}) as child:
        yield child


@pytest.mark.long
def test_the_process_and_its_replay_share_one_import_of_tensorflow(child, tmp_path):
    found = child.call("looking:look", {}, tmp_path)
    assert found["one"], "Keras is not the one that it would be without the detour"
    (pid,) = found["waiting"]
    assert "SavedModel file does not exist" in child.call("looking:ask", {}, tmp_path)["error"]
    assert gone(pid)
    assert not child.call("looking:look", {}, tmp_path)["waiting"], "a process replays once"
    assert "SavedModel file does not exist" in child.call("looking:ask", {}, tmp_path)["error"], "a second one is new"


def test_a_child_takes_the_process_that_the_command_began_unless_its_own_is_another(
    place, tmp_path, monkeypatch, forked
):
    monkeypatch.setenv("PYTHONPATH", place)
    with early_start.early_process():
        ((process, scratch),) = early_start.waiting
        with Child(environment={"ANOTHER": "1"}) as child:
            child.spawn()
            assert child.pid != process.pid
        with Child() as child:
            assert child.call("looking:look", {}, tmp_path)["one"]
            assert child.pid == process.pid and not early_start.waiting
    assert process.wait(60) == 0 and not Path(scratch.name).exists()


def test_a_waiting_replay_that_was_killed_is_told_and_one_whose_parent_was_killed_ends(imported_child, tmp_path):
    (pid,) = imported_child.call("looking:look", {}, tmp_path)["waiting"]
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(Exception, match="the replay process was ended by SIGKILL"):
        imported_child.call("looking:ask", {}, tmp_path)
    imported_child.close()
    (pid,) = imported_child.call("looking:look", {}, tmp_path)["waiting"]
    os.kill(imported_child.pid, signal.SIGKILL)
    assert gone(pid)


@pytest.mark.parametrize("end", ["closed", "killed", "its parent has ended"])
def test_a_replay_that_is_stuck_in_native_code_ends_with_its_process(imported_child, tmp_path, end):
    (pid,) = imported_child.call("looking:look", {}, tmp_path)["waiting"]
    imported_child.call("looking:hang", {}, tmp_path)
    if end == "its parent has ended":
        imported_child._process.close_stdin()
    else:
        if end == "killed":
            os.kill(imported_child.pid, signal.SIGKILL)
        imported_child.close()
    try:
        assert gone(pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """What a process says that imports TensorFlow by START, forks a script, and then imports what users do, by parts."""
    script = tmp_path_factory.mktemp("started") / "looks.py"
    script.write_text(
        "import runpy, sys, threading\n"
        "foreign = {name.split('.')[0] for name in sys.modules} & {'headway', 'tfcore', 'flows', 'pydantic', 'sklearn'}\n"
        "print(foreign, 'tensorflow' in sys.modules, 'numpy' in sys.modules, threading.active_count(), flush=True)\n"
        "print(sys.stdin.readline(), file=sys.stderr, flush=True)\n"
        "import sklearn\n"
    )
    program = (
        f"import runpy, sys; start = runpy.run_path({str(START)!r}, run_name='start'); assert start['import_tensorflow']()\n"
        f"pid, stdin, stdout, stderr = start['fork_replay']({str(script)!r})\n"
        "stdin.write(b'its own'); stdin.close(); print(stdout.read().decode(), stderr.read().decode())\n"
    )
    told = ["-W", "always::DeprecationWarning:start"]  # as in the process itself, where it is of __main__
    done = subprocess.run([sys.executable, "-P", *told, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr, done.stdout


@pytest.mark.long
def test_the_replay_begins_with_tensorflow_and_nothing_of_headway_or_that_keras_takes_where_it_is(started):
    errors, said = started
    assert "DeprecationWarning" not in errors, errors
    assert said.startswith("set() True True 1\n") and "its own" in said
