"""Warnings of libraries stay with their developers; a child's temporary files go with it."""

import gc
import os
import queue
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from headway.process import SCRATCH, ChildProcess, Forked, Scratch, gc_paused, in_threads, remove_abandoned

CODE = """
import warnings
from headway.process import quiet_libraries
quiet_libraries()
for module in ("keras.src.models", "numpy", "my_model"):
    warnings.warn_explicit("of " + module, UserWarning, module.replace(".", "/") + ".py", 3, module)
"""


def test_a_library_s_warnings_are_kept_and_those_of_the_user_s_module_are_shown():
    told = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True).stderr
    assert "my_model.py:3: UserWarning: of my_model" in told and "keras" not in told and "numpy" not in told
    asked = subprocess.run([sys.executable, "-W", "default", "-c", CODE], capture_output=True, text=True, check=True)
    assert "keras" in asked.stderr


@pytest.mark.parametrize("end", ["by itself", "killed"])
def test_the_temporary_files_of_a_child_go_with_it(end):
    script = "import json, sys, tempfile; print(json.dumps(tempfile.mkstemp()[1]), flush=True); sys.stdin.read()"
    answers = queue.Queue()
    child = ChildProcess(["-c", script], answers.put)
    file = Path(answers.get())
    assert file.exists() and file.parent.parent == Path(tempfile.gettempdir())
    if end == "killed":
        os.kill(child.pid, signal.SIGKILL)
    child.close(60.0)
    assert not file.parent.exists()


def test_a_child_that_loses_its_parent_takes_its_temporary_files_away(tmp_path):
    script = "from headway.process import exit_now; exit_now(3)"
    environment = {**os.environ, SCRATCH: str(tmp_path / "scratch")}
    (tmp_path / "scratch/inner").mkdir(parents=True)
    assert subprocess.run([sys.executable, "-c", script], env=environment, check=False).returncode == 3
    assert not (tmp_path / "scratch").exists()


def test_a_fork_that_other_code_waited_for_has_ended():
    streams = [subprocess.DEVNULL] * 3
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    os.waitpid(process.pid, 0)
    forked = Forked(process.pid, *streams)
    assert forked.wait(0.0) == 0 == process.wait()
    forked.kill()


MADE = """
import sys, time
from pathlib import Path
from headway.process import Scratch
folder = Scratch("test")
Path(folder.name, "deep").mkdir()
Path(folder.name, "deep", "file").write_text("x")
print(folder.name, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def made(place):
    environment = {**os.environ, "TMPDIR": str(place)}
    process = subprocess.Popen(
        [sys.executable, "-c", MADE], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    return process, Path(process.stdout.readline().strip())


def hour_ago(path):
    os.utime(path, (time.time() - 3600,) * 2)


def test_the_folder_of_a_killed_process_goes_when_the_next_is_made_and_not_before(place):
    process, folder = made(place)
    with process:
        assert folder.parent == place
        hour_ago(folder)
        remove_abandoned()
        assert (folder / "deep" / "file").exists(), "its process lives"
        process.send_signal(signal.SIGKILL)
        process.wait()
        with Scratch("other") as other:
            assert not folder.exists() and Path(other).is_dir()
    assert not list(place.iterdir())


def test_a_new_folder_and_those_of_other_programs_stay(place):
    (place / "headway-scratch-new").mkdir()  # as between its making and its lock
    others = [place / "headway-child-1", place / "scratch"]
    for other in others:
        other.mkdir()
        hour_ago(other)
    link = place / "headway-scratch-link"
    link.symlink_to(place / "scratch")
    remove_abandoned()
    assert all(other.is_dir() for other in others) and (place / "headway-scratch-new").is_dir() and link.is_symlink()


def test_a_folder_is_unlocked_when_it_is_removed(place):
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        with Scratch("test"):
            pass
        Scratch("test").cleanup()
    assert len(list(Path("/proc/self/fd").iterdir())) == before and not list(place.iterdir())


def test_the_collector_is_off_meanwhile_and_as_before_then():
    assert gc.isenabled()
    with gc_paused():
        assert not gc.isenabled()
        with gc_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), gc_paused():
        raise ImportError
    assert gc.isenabled()


@pytest.mark.parametrize("cores", [1, 3])
def test_threads_answer_in_order_and_the_first_error_is_raised_and_ends_the_rest(monkeypatch, cores):
    monkeypatch.setattr("headway.process.cores", lambda: cores)
    assert in_threads(lambda number: number**2, range(20)) == [number**2 for number in range(20)]
    assert in_threads(str, []) == []
    began = []

    def failing(number):
        began.append(number)
        if number in (3, 4):
            raise ValueError(number)

    with pytest.raises(ValueError, match="3"):
        in_threads(failing, range(10_000))
    assert len(began) < 10_000

    def check():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_threads(str, range(5), check=check)


def test_a_command_multiplies_in_one_thread_unless_the_user_says_another_number(monkeypatch):
    program = "import os; from flows.cli.app import main; main(); print(os.environ['OPENBLAS_NUM_THREADS'])"
    for before, number in ((None, "1"), ("2", "2")):
        if before:
            monkeypatch.setenv("OPENBLAS_NUM_THREADS", before)
        else:
            monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
        done = subprocess.run(
            [sys.executable, "-c", program, "runs", "nowhere"], capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == [number], done.stderr
