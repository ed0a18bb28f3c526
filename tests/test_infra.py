"""The wheel that other machines install holds all four packages and works from a foreign folder."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.long
def test_the_wheel_is_built_and_works_alone(tmp_path):
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: the wheel is built from what git tracks")
    command = [str(ROOT / "infra" / "wheel.sh"), sys.executable, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    names = zipfile.ZipFile(done.stdout.strip().splitlines()[-1]).namelist()
    assert {"flows", "beam_jobs", "tfcore", "headway"} <= {name.split("/")[0] for name in names}
    assert not any(name.startswith(("tests/", "bench/", "examples/")) for name in names)
