"""The command line works in a folder that has packages of the same names as Headway's own; a Prefect worker does in
test_retrain.py."""

import os

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
