"""The op, built by its own command, once for all processes that test; without a compiler, what needs it is skipped."""

import fcntl
import shutil
import subprocess
import sys

import pytest

from tfcore.ops.library import FOLDER, library


@pytest.fixture(scope="session")
def op():
    """The module with the ops."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed, and the op in C++ needs it")
    with (FOLDER / "__init__.py").open() as lock:  # another process may be at it: half a minute's work
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run([sys.executable, "-m", "tfcore.ops.compile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("HEADWAY_OPS", raising=False)
        found = library()
        assert found is not None
        yield found
