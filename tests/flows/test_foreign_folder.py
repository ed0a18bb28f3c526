"""Headway works in a folder that has packages of the same names as Headway's own; a Prefect worker does in test_retrain.py."""

import os
import subprocess
import sys

import pytest
from jupyter_client.manager import start_new_kernel

import headway as api
import headway.errors


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


@pytest.mark.long
def test_pytest_runs_a_pipeline_there(exported, foreign):
    (foreign / "test_pipeline.py").write_text(
        "import headway\n\n"
        "def test_the_pipeline_promotes_its_model():\n"
        f"    record = headway.run({str(exported)!r}, force=True)\n"
        "    assert (record['state'], record['version']) == ('promoted', 1)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(command, cwd=foreign, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_notebook_s_kernel_plans_a_pipeline_there(exported, foreign):
    manager, client = start_new_kernel(cwd=str(foreign), kernel_name="python3")
    try:
        printed = []

        def hook(message):
            if message["msg_type"] == "stream":
                printed.append(message["content"]["text"])

        code = f"import headway\nplan = headway.command('plan', {str(exported)!r}, set={{'training.steps': 61}})\n"
        code += "print(next(step['step'] for step in plan['steps'] if not step['cached']))"
        reply = client.execute_interactive(code, output_hook=hook)
        assert reply["content"]["status"] == "ok", reply["content"]
        assert "train" in "".join(printed).split()
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_a_mistake_is_raised_as_what_it_is(project):
    (project / "pipeline.yaml").write_text("name: x\nsoruce: {}\n")
    with pytest.raises(api.errors.ConfigError, match="soruce"):
        api.command("plan", project)
