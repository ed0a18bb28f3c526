"""A real server, deployment and worker: what `make up` starts, what is typed then, and what `make down` leaves."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
import yaml

from flows.orchestration.flows import flow_ending
from flows.records import read_record
from headway.storage.process_identity import is_alive
from tests.prefect_server import PrefectServer
from tests.waiting import until

FLIGHTS = Path(__file__).parents[2] / "examples" / "flights"
UP = ("--sqlite", "--workers", 1)
PREFECT = Path(sys.executable).with_name("prefect")


def served(test):
    """A test on a real server, which takes several times as long where others work too."""
    return pytest.mark.slow(pytest.mark.server(pytest.mark.timeout(600)(test)))


def killed(test):
    """Such a test of processes that are killed: `make chaos` runs it, with the others on one server."""
    return pytest.mark.chaos(pytest.mark.xdist_group("retrain")(served(test)))


@pytest.fixture(scope="module")
def prefect(tmp_path_factory):
    """A server with a worker, started from a folder whose own flows/ and tfcore/ are not Headway's."""
    folder = tmp_path_factory.mktemp("deployed")
    for package in ("flows", "tfcore"):
        (folder / package).mkdir()
        (folder / package / "__init__.py").write_text("raise RuntimeError('this is not Headway')")
    content = yaml.safe_load((FLIGHTS / "pipeline.yaml").read_text())
    (folder / "extra.yaml").write_text(yaml.safe_dump(content | {"name": "extra", "schedule": "0 5 2 1 *"}))
    server = PrefectServer(folder)
    try:
        told = server.up(*UP, FLIGHTS, "extra.yaml").stdout
        assert f"http://127.0.0.1:{server.port}" in told and "deployment run 'retrain/flights' --watch" in told
        assert "(or retrain/extra)" in told
        assert 'PREFECT_API_AUTH_STRING="$(cat .headway/prefect/auth)"' in told
        assert server.password not in told
        yield server
    finally:
        server.down(check=False)
        with pytest.raises(httpx.TransportError):
            server.answer("/health")


def _typed(prefect, *parameters):
    """What a person types: (exit code, output, the flow run as the server has it)."""
    options = [part for parameter in parameters for part in ("-p", parameter)]
    command = [str(PREFECT), "deployment", "run", "retrain/flights", "--watch", *options]
    done = subprocess.run(command, env=prefect.env, capture_output=True, text=True, timeout=240, check=False)
    latest = {"sort": "EXPECTED_START_TIME_DESC", "flow_runs": {"state": {"type": {"not_any_": ["SCHEDULED"]}}}}
    return done.returncode, done.stdout + done.stderr, prefect.ask("/flow_runs/filter", latest)[0]


def _tasks(prefect, run):
    """Name -> state of a finished run's tasks, once the server has written their last events down."""
    query = {"task_runs": {"flow_run_id": {"any_": [run["id"]]}}}

    def tasks():
        return {task["name"]: task["state"]["name"] for task in prefect.ask("/task_runs/filter", query)}

    until(lambda: not {"Pending", "Running"} & set(tasks().values()), 60, tasks)
    return tasks()


@served
def test_a_typed_retrain_ends_in_a_promoted_model(prefect, project):
    code, text, run = _typed(prefect, f"pipeline={project}", "until=2013-03")
    assert code == 0, text
    assert run["state"]["name"] == "Completed"
    assert "Version 1 is promoted, the first of this model: auc is " in run["state"]["message"]
    assert (project / "store" / "serving" / "flights" / "1" / "saved_model.pb").exists()

    of_run = {"flow_run_id": {"any_": [run["id"]]}}
    tasks = _tasks(prefect, run)
    assert set(tasks) == {"ingest (3 spans)"} | {
        *("statistics", "splits", "validate", "transform", "train", "evaluate", "measure", "gate", "export", "replay")
    }
    assert set(tasks.values()) == {"Completed"}
    artifacts = {a["key"]: a["data"] for a in prefect.ask("/artifacts/filter", {"artifacts": of_run}) if a["key"]}
    # validation: by time, so the label of eval is another than that of train, which is worth a word
    names = ("statistics", "validation", "evaluation", "verdict")
    assert set(artifacts) == {f"flights-{name}" for name in names}
    assert "# Verdict: promoted" in artifacts["flights-verdict"]
    assert "Version 1 is promoted, the first of this model: " in artifacts["flights-verdict"]
    assert "--open`\n" in artifacts["flights-verdict"], "and how to see its report"
    assert any("steps/s" in line for line in prefect.logs(run["id"]))

    # nothing changed: every task is cached, and the champion stays
    code, text, run = _typed(prefect, f"pipeline={project}", "until=2013-03")
    assert code == 0 and "Version 1 is the champion already" in run["state"]["message"], text
    tasks = _tasks(prefect, run)
    assert set(tasks.values()) == {"Cached"}, tasks

    # a user's mistake is a sentence, not a traceback
    code, text, run = _typed(prefect, f"pipeline={project}", "until=2019-01")
    assert code == 1 and run["state"]["name"] == "Failed" and "2019-01" in run["state"]["message"]
    time.sleep(3)  # lines reach the server in batches
    logs = prefect.logs(run["id"])
    assert any("2019-01" in line for line in logs) and not any("Traceback" in line for line in logs)


def _endless(prefect, project):
    """A flow run that trains and does not end by itself, and a function that tells how the project's last run ended."""
    config = project / "pipeline.yaml"
    config.write_text(config.read_text().replace("steps: 60,", "steps: 400000,"))
    began = time.time()

    def trains():
        return any(path.stat().st_mtime > began for path in (project / "store" / "checkpoints").glob("*/*"))

    def recorded():
        return json.loads(max((project / "store" / "runs").glob("*.json")).read_text())["state"]

    run = prefect.start("retrain/flights", pipeline=str(project))
    until(trains, 180, lambda: prefect.flow_run(run)["state"])
    return run, recorded


@served
def test_a_cancelled_run_stops_cleanly(prefect, project):
    run, recorded = _endless(prefect, project)
    prefect.ask(f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLING", "name": "Cancelling"}})
    assert prefect.ended(run, 180)["state"]["type"] == "CANCELLED"
    assert recorded() == "cancelled"


@killed
def test_a_run_outlives_its_worker_and_ends_when_its_state_is_set(prefect, project):
    run, recorded = _endless(prefect, project)
    engine = prefect.engine(run)
    os.kill(prefect.pid("worker"), signal.SIGKILL)
    told = prefect.up(*UP).stdout
    assert f"1 flow run of a worker that died: left alone (process {engine})" in told
    assert prefect.state(run) == "RUNNING" and is_alive(engine)

    # no worker hears of this one: the flow run itself looks
    prefect.ask(f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLED", "name": "Cancelled"}})
    until(lambda: not is_alive(engine), 180)
    assert prefect.state(run) == "CANCELLED" and recorded() == "cancelled"
    assert not (project / "store" / "models").exists()


@killed
def test_a_worker_that_dies_with_its_run_while_that_is_pending(prefect, project):
    # nobody is left to say so but the server's automation
    run = prefect.start("retrain/flights", {"command": "sleep 600"}, pipeline=str(project))
    until(lambda: prefect.engine(run), 180)
    for pid in (prefect.pid("worker"), prefect.engine(run)):
        os.kill(pid, signal.SIGKILL)
    state = prefect.ended(run)["state"]
    assert state["type"] == "CRASHED" and "it did not start" in state["message"]
    prefect.up(*UP)

    # its place in the deployment's concurrency limit is free: the next run begins, and fails for a reason of its own
    again = prefect.ended(prefect.start("retrain/flights", pipeline=str(project / "gone")))
    assert again["state"]["type"] == "FAILED", again["state"]


@served
def test_nobody_without_the_password_runs_anything(prefect, tmp_path):
    deployment = prefect.ask("/deployments/name/retrain/flights")["id"]
    ran = tmp_path / "ran"
    body = {"state": {"type": "SCHEDULED"}, "job_variables": {"command": f"touch {ran}"}}
    path = f"/deployments/{deployment}/create_flow_run"

    # another user of this machine
    for asked, data in ((path, body), ("/flow_runs/filter", {}), ("/csrf-token?client=x", None)):
        assert prefect.answer(asked, data).status_code in (401, 403)
    assert (prefect.home / "auth").stat().st_mode & 0o777 == 0o600 and prefect.home.stat().st_mode & 0o777 == 0o700

    # a page of another origin in a browser: neither a preflight, nor a simple request without one, nor with the password
    evil = {"Origin": "http://evil.example"}
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type,authorization"}
    answer = prefect.answer(path, method="OPTIONS", headers=evil | asks)
    assert answer.status_code == 400 and "access-control-allow-origin" not in answer.headers
    answer = prefect.answer(path, body, headers=evil | {"content-type": "text/plain"})
    assert answer.status_code in (401, 403) and not answer.headers.get("access-control-allow-origin")
    # nor with the password: it has no token of Prefect's against forged requests
    assert prefect.answer(path, body, headers=evil | prefect.login()).status_code == 403

    # the server's own page may; the UI asks for the password and sends the token
    settings = httpx.get(f"http://127.0.0.1:{prefect.port}/ui-settings", trust_env=False).json()
    assert settings["auth"] == "BASIC" and settings["csrf_enabled"] is True
    own = {"Origin": f"http://127.0.0.1:{prefect.port}"}
    answer = prefect.answer(path, method="OPTIONS", headers=own | asks)
    assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == own["Origin"]
    assert not ran.exists()


@served
def test_up_again_changes_nothing_and_leaves_what_others_made(prefect):
    made = prefect.ask("/deployments/name/retrain/flights")
    mine = {"schedule": {"cron": "1 1 1 1 *"}, "active": False, "slug": "mine", "parameters": {"window": 3}}
    prefect.ask(f"/deployments/{made['id']}/schedules", [mine])
    theirs = {"name": "theirs", "flow_id": made["flow_id"], "tags": ["headway"], "work_pool_name": "headway"}
    prefect.ask("/deployments/", theirs)
    assert "note:" not in prefect.up(*UP, FLIGHTS, "extra.yaml").stdout

    file = prefect.folder / "extra.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"schedule": {"monitor": "0 5 2 1 *"}}))
    told = prefect.up(*UP, "extra.yaml").stdout
    assert "note: set the schedule of monitor/extra: 0 5 2 1 * UTC" in told
    assert {d["name"] for d in prefect.ask("/deployments/filter", {})} == {"flights", "extra", "theirs"}
    now = prefect.ask("/deployments/name/retrain/flights")
    assert now["id"] == made["id"]
    assert {s["slug"]: s["active"] for s in now["schedules"]} == {"headway": True, "mine": False}
    assert {s["slug"]: s["parameters"] for s in now["schedules"]} == {"headway": {}, "mine": {"window": 3}}


def test_up_needs_a_free_port(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = PrefectServer(tmp_path, taken.getsockname()[1])
        done = server.up(*UP, check=False)
    assert done.returncode == 2 and "is taken by another program" in done.stderr and "Traceback" not in done.stderr
    assert "nothing was running" in server.down().stdout


CHECK = {"name": "threshold", "metric": "auc", "value": 0.6, "allowed": 0.85, "limit": "at least", "outcome": "missed"}


@pytest.mark.parametrize(
    ("state", "word", "alarm"),
    [
        ("promoted", "promoted 3", None),
        ("already champion", "already champion", None),
        ("kept", "kept", None),
        ("needs a person", "needs a person", "held"),
        ("rejected", "rejected", "rejected"),
    ],
)
def test_a_run_that_a_person_should_look_at_raises_an_alarm(state, word, alarm):
    status = "kept" if state == "already champion" else state
    verdict = {"status": status, "checks": [CHECK | {"status": status, "passed": False}]}
    record = {"run": "r", "pipeline": "p", "started": "", "state": state, "version": 3, "verdict": verdict}
    ending = flow_ending(read_record(record))
    assert (ending.word, ending.alarm) == (word, alarm)
