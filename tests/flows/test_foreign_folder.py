"""The command line and `import headway` work in a folder that has packages of the same names as Headway's own; a Prefect worker
does in test_retrain.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def foreign(tmp_path):
    folder = tmp_path / "foreign"
    for package in ("flows", "tfcore", "beam_jobs"):
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").write_text("raise RuntimeError('the wrong package')")
    return folder


@pytest.mark.long
def test_the_command_line_runs_a_pipeline_there(headway, project, foreign):
    (foreign / "headway").mkdir()
    (foreign / "headway" / "__init__.py").write_text("raise RuntimeError('the wrong package')")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    # a whole run, whose processes import by themselves what they need, and no more
    done = headway("run", project, cwd=foreign, env=environment, check=0, imports=True)
    assert "60 steps" in done.stderr and "Version 1 is promoted" in done.stdout, done.stdout


def imported(script, folder):
    (folder / "script.py").write_text(script)
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root}
    return subprocess.run([sys.executable, folder / "script.py"], env=environment, capture_output=True, text=True)


def test_a_script_there_gets_headway_s_own_packages_unless_it_imported_the_others(foreign):
    done = imported("import headway\nprint(headway.fit.__module__)", foreign)
    assert (done.stdout, done.stderr) == ("flows.api\n", "")
    (foreign / "flows" / "__init__.py").write_text("")
    done = imported("import flows\nimport headway\nheadway.open()", foreign)
    assert f"flows is imported from {foreign / 'flows' / '__init__.py'}, and Headway needs its own" in done.stderr
