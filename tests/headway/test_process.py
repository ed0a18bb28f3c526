"""Warnings of libraries stay with their developers; a child's temporary files go with it."""

import os
import queue
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from headway.process import SCRATCH, ChildProcess

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
    file = Path(answers.get(timeout=60))
    assert file.exists() and file.parent.parent == Path(tempfile.gettempdir())
    if end == "killed":
        os.kill(child.pid, signal.SIGKILL)
    child.close(60.0)
    assert not file.parent.exists()


def test_a_child_that_loses_its_parent_takes_its_temporary_files_away(tmp_path):
    script = "from headway.process import leave; leave(3)"
    environment = {**os.environ, SCRATCH: str(tmp_path / "scratch")}
    (tmp_path / "scratch/inner").mkdir(parents=True)
    assert subprocess.run([sys.executable, "-c", script], env=environment, check=False).returncode == 3
    assert not (tmp_path / "scratch").exists()
