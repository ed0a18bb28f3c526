"""The flows by Prefect's own means alone, as docs/prefect.md shows them: its worker, `prefect deploy`, `serve`, retries."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
import yaml

from tests.chaos.tiny_pipeline import CHECKPOINT_EVERY, STEPS, TinyPipeline
from tests.ports import free_port
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.timeout(300)]
PREFECT = Path(sys.executable).with_name("prefect")
SERVE = """
import sys
from flows.orchestration.flows import retrain

if __name__ == "__main__":  # Prefect starts flow runs by multiprocessing, which imports this again
    retrain.serve(name="served", parameters={"pipeline": sys.argv[1]})
"""
FAILS_ONCE = """

def _fail_once():
    once = HERE / "failed"
    if (HERE / "steps").stat().st_size > 50 and not once.exists():
        once.touch()
        raise ValueError("the disk coughed")
"""


@pytest.fixture(scope="module")
def env(tmp_path_factory):
    """The environment in which somebody types, beside a server as `prefect server start` starts it."""
    folder, port = tmp_path_factory.mktemp("prefect"), free_port()
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    ours |= {"PREFECT_HOME": str(folder / "home"), "PREFECT_API_URL": f"http://127.0.0.1:{port}/api"}
    ours |= {"NO_PROXY": "127.0.0.1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "COLUMNS": "200"}
    ours |= {"PATH": os.pathsep.join([str(PREFECT.parent), os.environ["PATH"]])}
    with (
        (folder / "server.log").open("wb") as log,
        _started(ours, log, "server", "start", "--port", str(port)) as server,
    ):
        try:
            health = f"{ours['PREFECT_API_URL']}/health"
            until(lambda: httpx.get(health, trust_env=False).is_success, about=(folder / "server.log").read_text)
            yield ours
        finally:
            server.terminate()


def _started(env, log, *arguments, cwd=None):
    return subprocess.Popen([PREFECT, *arguments], env=env, stdout=log, stderr=log, cwd=cwd)


def _typed(env, *arguments, cwd=None, check=0):
    command = [str(PREFECT), "--no-prompt", *map(str, arguments)]
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == check, done.stdout + done.stderr
    return done.stdout + done.stderr


def _states(env, deployment):
    """The names of the states that the newest run of a deployment has had, and the message of the last."""
    found = httpx.post(
        f"{env['PREFECT_API_URL']}/flow_runs/filter",
        json={"deployments": {"name": {"any_": [deployment]}}, "sort": "START_TIME_DESC", "limit": 1},
        trust_env=False,
    ).json()
    states = httpx.get(
        f"{env['PREFECT_API_URL']}/flow_run_states/", params={"flow_run_id": found[0]["id"]}, trust_env=False
    ).json()
    states.sort(key=lambda state: state["timestamp"])
    return [state["name"] for state in states], states[-1]["message"]


@pytest.fixture
def worker(env, tmp_path):
    """A worker of Prefect's own, as its documentation starts it."""
    with (tmp_path / "worker.log").open("wb") as log:
        options = ("--pool", "plain", "--type", "process", "--name", "plain")
        process = _started(env, log, "worker", "start", *options, cwd=tmp_path)
        yield process
        process.terminate()
        with suppress(subprocess.TimeoutExpired):  # once it has run a flow, Prefect's worker may wait forever
            process.wait(30)
        process.kill()


def _deployed(env, pipeline, **variables):
    """The pipeline by the prefect.yaml of docs/prefect.md."""
    deployment = {
        "name": pipeline.name,
        "entrypoint": "flows.orchestration.flows.retrain",
        "parameters": {"pipeline": str(pipeline.folder)},
        "concurrency_limit": {"limit": 1, "collision_strategy": "CANCEL_NEW"},
        "work_pool": {
            "name": "plain",
            "job_variables": {"env": {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30", **variables}},
        },
    }
    (pipeline.folder / "prefect.yaml").write_text(yaml.safe_dump({"pull": [], "deployments": [deployment]}))
    _typed(env, "work-pool", "create", "plain", "--type", "process", "--overwrite")
    _typed(env, "deploy", "--all", cwd=pipeline.folder)


def test_a_served_flow_runs_a_retrain_to_its_promotion(env, tmp_path):
    pipeline = TinyPipeline(tmp_path / "served", "served")
    script = tmp_path / "serve.py"
    script.write_text(SERVE)
    with (tmp_path / "serve.log").open("wb") as log:
        command = [sys.executable, str(script), str(pipeline.folder)]
        with subprocess.Popen(command, env=env, cwd=tmp_path, stdout=log, stderr=log) as serving:
            try:
                found = ("deployment", "inspect", "retrain/served", "--output", "json")
                until(lambda: subprocess.run([PREFECT, *found], env=env, capture_output=True).returncode == 0, 60)
                _typed(env, "deployment", "run", "retrain/served", "--watch")
            finally:
                serving.terminate()
                try:
                    serving.wait(30)
                finally:
                    serving.kill()
    states, message = _states(env, "served")
    assert states[-1] == "Completed" and message.startswith("Version 1 is promoted"), (states, message)
    assert pipeline.champion() == 1


def test_a_run_that_fails_is_retried_by_prefect_and_resumes_from_its_checkpoint(env, worker, tmp_path):
    pipeline = TinyPipeline(tmp_path / "retried", "retried")
    pace = pipeline.folder / "pace.py"
    pace.write_text(pace.read_text().replace("    try:\n", "    _fail_once()\n    try:\n", 1) + FAILS_ONCE)
    retries = {"PREFECT_FLOWS_DEFAULT_RETRIES": "1", "PREFECT_FLOWS_DEFAULT_RETRY_DELAY_SECONDS": "1"}
    _deployed(env, pipeline, **retries)
    _typed(env, "deployment", "run", "retrain/retried", "--watch")
    states, _ = _states(env, "retried")
    after = states[states.index("AwaitingRetry") + 1 :]
    assert after in (["Retrying", "Completed"], ["Running", "Completed"]), "in the same process, by either name"
    assert pipeline.champion() == 1
    assert [run["state"] for run in pipeline.runs()] == ["failed", "promoted"]
    assert STEPS < pipeline.steps_done() <= STEPS + CHECKPOINT_EVERY + 1, "what its checkpoint holds is not repeated"
