"""A command that lacks an extra ends with the line that installs it."""

import subprocess
import sys

import pytest

from flows.config import extras
from headway.errors import ConfigError


def test_what_is_missing_is_named_with_the_command(monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda module: None)
    with pytest.raises(ConfigError) as error:
        extras.require("serve", where="headway serve")
    wanted = "headway serve: needs starlette and uvicorn, not installed here\n  fix: pip install 'headway[serve]'"
    assert str(error.value) == wanted


def test_a_module_of_prefects_says_so_in_a_sentence(tmp_path):
    """As `python -m flows.orchestration.worker` where Prefect is not installed."""
    code = (
        "import importlib.util, runpy, sys\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'prefect' else find(name, *rest)\n"
        "sys.argv[0] = '-m'\n"
        "runpy.run_module('flows.orchestration.worker', run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.strip().splitlines() == [
        "flows.orchestration: needs prefect, not installed here",
        "  fix: pip install 'headway[prefect]'",
    ]
