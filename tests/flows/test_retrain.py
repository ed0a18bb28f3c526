"""A real server, deployment and worker: what `make up` starts, what is typed then, and what `make down` leaves."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from flows.retrain import ending

ROOT = Path(__file__).parent.parent.parent
PREFECT = Path(sys.executable).with_name("prefect")


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _up(folder, *arguments, check=True):
    command = [sys.executable, "-P", "-m", "flows.up", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def prefect(tmp_path_factory):
    """A server with a worker, started from a folder whose own flows/ is none of Headway's: ask it over its API."""
    folder, port = tmp_path_factory.mktemp("deployed"), _free_port()
    (folder / "flows").mkdir()
    (folder / "flows" / "__init__.py").write_text("raise RuntimeError('this is not Headway')")
    shutil.copy(ROOT / "prefect.yaml", folder)

    def ask(path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/api{path}", data, {"content-type": "application/json"}
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        for pause in (0.5, 1, 2, 4, None):
            try:
                with opener.open(request, timeout=30) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code != 503 or pause is None:  # SQLite was locked; Prefect's own client tries again as well
                    raise
                time.sleep(pause)
        return None

    ask.folder, ask.port = folder, port
    try:
        told = _up(folder, "start", "--port", port).stdout
        assert f"http://127.0.0.1:{port}" in told and "deployment run 'retrain/flights' --watch" in told
        yield ask
    finally:
        _up(folder, "stop", check=False)
        with pytest.raises(OSError):
            ask("/health")


def _typed(prefect, *parameters):
    """What a person types: (exit code, output, the flow run as the server has it)."""
    env = os.environ | {"PREFECT_API_URL": f"http://127.0.0.1:{prefect.port}/api"}
    env |= {"PREFECT_HOME": str(prefect.folder / "client"), "NO_PROXY": "127.0.0.1", "COLUMNS": "200"}
    options = [part for parameter in parameters for part in ("-p", parameter)]
    command = [str(PREFECT), "deployment", "run", "retrain/flights", "--watch", *options]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    latest = {"sort": "EXPECTED_START_TIME_DESC", "flow_runs": {"state": {"type": {"not_any_": ["SCHEDULED"]}}}}
    return done.returncode, done.stdout + done.stderr, prefect("/flow_runs/filter", latest)[0]


def _tasks(prefect, run):
    """Name -> state of a finished run's tasks, once the server has written their last events down."""
    query = {"task_runs": {"flow_run_id": {"any_": [run["id"]]}}}
    deadline = time.monotonic() + 60
    while True:
        tasks = {task["name"]: task["state"]["name"] for task in prefect("/task_runs/filter", query)}
        if not {"Pending", "Running"} & set(tasks.values()) or time.monotonic() > deadline:
            return tasks
        time.sleep(0.5)


@pytest.mark.slow
@pytest.mark.prefect_server
def test_a_typed_retrain_ends_in_a_promoted_model(prefect, project):
    code, text, run = _typed(prefect, f"pipeline={project}", "until=2013-03")
    assert code == 0, text
    assert run["state"]["name"] == "Completed" and "promoted version 1: first model" in run["state"]["message"]
    assert (project / "store" / "serving" / "flights" / "1" / "saved_model.pb").exists()

    of_run = {"flow_run_id": {"any_": [run["id"]]}}
    tasks = _tasks(prefect, run)
    assert set(tasks) == {"ingest (3 spans)"} | {
        *("statistics", "splits", "validate", "transform", "train", "evaluate", "gate", "export", "replay")
    }
    assert set(tasks.values()) == {"Completed"}
    artifacts = {a["key"]: a["data"] for a in prefect("/artifacts/filter", {"artifacts": of_run}) if a["key"]}
    # validation: by time, so the label of eval is another than that of train, which is worth a word
    names = ("statistics", "statistics-train", "splits", "validation", "evaluation", "evaluation-slices", "verdict")
    assert set(artifacts) == {f"flights-{name}" for name in names}
    assert "# Verdict: first model" in artifacts["flights-verdict"]
    logs = [line["message"] for line in prefect("/logs/filter", {"logs": of_run})]
    assert any("steps/s" in line for line in logs)

    # nothing changed: every task is cached, and the champion stays
    code, text, run = _typed(prefect, f"pipeline={project}", "until=2013-03")
    assert code == 0 and "version 1 is the champion already" in run["state"]["message"], text
    tasks = _tasks(prefect, run)
    assert set(tasks.values()) == {"Cached"}, tasks

    # a user's mistake is a sentence, not a traceback
    code, text, run = _typed(prefect, f"pipeline={project}", "until=2019-01")
    assert code == 1 and run["state"]["name"] == "Failed" and "2019-01" in run["state"]["message"]
    time.sleep(3)  # lines reach the server in batches
    logs = [line["message"] for line in prefect("/logs/filter", {"logs": {"flow_run_id": {"any_": [run["id"]]}}})]
    assert any("2019-01" in line for line in logs) and not any("Traceback" in line for line in logs)


@pytest.mark.slow
@pytest.mark.prefect_server
def test_a_cancelled_run_stops_cleanly(prefect, project):
    config = project / "pipeline.yaml"
    config.write_text(config.read_text().replace("steps: 60,", "steps: 400000,"))
    deployment = prefect("/deployments/name/retrain/flights")
    body = {"parameters": {"pipeline": str(project)}, "state": {"type": "SCHEDULED"}}
    run = prefect(f"/deployments/{deployment['id']}/create_flow_run", body)["id"]

    def until(true):
        deadline = time.monotonic() + 60
        while not true():
            assert time.monotonic() < deadline, prefect(f"/flow_runs/{run}")["state"]
            time.sleep(0.3)

    until(lambda: any((project / "store" / "checkpoints").glob("*/*")))
    prefect(f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLING", "name": "Cancelling"}})
    until(lambda: prefect(f"/flow_runs/{run}")["state"]["type"] == "CANCELLED")
    record = json.loads(max((project / "store" / "runs").glob("*.json")).read_text())
    assert record["state"] == "cancelled"


def test_up_needs_prefect_yaml_and_a_free_port(tmp_path):
    done = _up(tmp_path, "start", check=False)
    assert done.returncode == 2 and "no prefect.yaml here" in done.stderr and "Traceback" not in done.stderr
    shutil.copy(ROOT / "prefect.yaml", tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = _up(tmp_path, "start", "--port", taken.getsockname()[1], check=False)
    assert done.returncode == 2 and "is taken by another program" in done.stderr
    assert "nothing was running" in _up(tmp_path, "stop").stdout


def test_how_a_run_ended_is_one_sentence():
    verdict = {"verdict": "rejected", "promote": False, "reasons": ["auc 0.6 is under 0.85"]}
    said = ending({"state": "rejected", "verdict": verdict, "metrics": {"auc": 0.6}})
    assert said == "not promoted: rejected: auc 0.6 is under 0.85 (auc 0.6)"
