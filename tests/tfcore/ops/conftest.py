"""The op, built once by its own command; where there is no compiler, what needs it is skipped and says so."""

import shutil
import subprocess
import sys

import pytest

from tfcore.ops.library import library


@pytest.fixture(scope="session")
def op():
    """The module with the ops."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed, and the op in C++ needs it")
    done = subprocess.run([sys.executable, "-m", "tfcore.ops.build"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("HEADWAY_OPS", raising=False)
        found = library()
        assert found is not None
        yield found
