"""Temporary folders go with their process, however it ended."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from headway.scratch import Scratch, remove_abandoned

MADE = """
import sys, time
from pathlib import Path
from headway.scratch import Scratch
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
