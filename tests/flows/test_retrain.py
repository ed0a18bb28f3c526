"""A real server, deployment and worker: what `make up` starts, what is typed then, and what `make down` leaves."""

import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path

import pytest
import yaml

from flows.orchestration.flows import ended
from flows.records import read_record
from headway.storage.process_identity import alive
from tests.ports import free_port
from tests.waiting import until

ROOT = Path(__file__).parent.parent.parent
FLIGHTS = ROOT / "examples" / "flights"
UP = ("up", "--sqlite", "--workers", 1)
PREFECT = Path(sys.executable).with_name("prefect")


def served(test):
    """A test on a real server, which takes several times as long where others work too."""
    return pytest.mark.slow(pytest.mark.server(pytest.mark.timeout(600)(test)))


def killed(test):
    """Such a test of processes that are killed: `make chaos` runs it, with the others on one server."""
    return pytest.mark.chaos(pytest.mark.xdist_group("retrain")(served(test)))


def _up(folder, *arguments, check=True):
    command = [sys.executable, "-P", str(ROOT / "infra" / "one_host.py"), *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


class Server:
    """A server with a worker, started by `make up` in a folder: its API as one asks who has the password."""

    def __init__(self, folder, port):
        self.folder, self.port = folder, port
        self.home = folder / ".headway" / "prefect"
        self._client = uuid.uuid4().hex

    def __call__(self, path, body=None, method=None):
        for pause in (0.5, 1, 2, 4, None):
            headers = {}
            if body is not None or method not in (None, "GET"):
                token = self.answer(f"/csrf-token?client={self._client}", headers=self._auth())[1]["token"]
                headers = {"Prefect-Csrf-Client": self._client, "Prefect-Csrf-Token": token}
            code, answer, _ = self.answer(path, body, method, self._auth() | headers)
            if code < 300:
                return answer
            assert code == 503 and pause, (
                path,
                code,
                answer,
            )  # SQLite was locked; Prefect's own client tries again as well
            time.sleep(pause)
        return None

    def _auth(self):
        token = base64.b64encode((self.home / "auth").read_bytes().strip()).decode()
        return {"Authorization": f"Basic {token}"}

    def answer(self, path, body=None, method=None, headers=()):
        """(status, JSON or text, headers) of one request."""
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.port}/api{path}"
        request = urllib.request.Request(
            url, data, {"content-type": "application/json", **dict(headers)}, method=method
        )
        try:
            answered = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30)
        except urllib.error.HTTPError as error:
            answered = error
        with answered:
            text = answered.read().decode()
            with contextlib.suppress(ValueError):
                text = json.loads(text)
            return answered.status, text, answered.headers

    def pid(self, name):
        return json.loads((self.home / f"{name}.pid").read_text())["pid"]

    def start(self, variables=None, **parameters):
        deployment = self("/deployments/name/retrain/flights")
        body = {"parameters": parameters, "state": {"type": "SCHEDULED"}, "job_variables": variables or {}}
        return self(f"/deployments/{deployment['id']}/create_flow_run", body)["id"]

    def state(self, run):
        return self(f"/flow_runs/{run}")["state"]

    def engine(self, run):
        """The flow run's process, once it has one."""
        name = self(f"/flow_runs/{run}")["infrastructure_pid"]
        return int(name.rpartition("@")[2].partition(".")[0]) if name else None


@pytest.fixture(scope="module")
def prefect(tmp_path_factory):
    """A server with a worker, started from a folder whose own flows/ and tfcore/ are not Headway's."""
    folder, port = tmp_path_factory.mktemp("deployed"), free_port()
    for package in ("flows", "tfcore"):
        (folder / package).mkdir()
        (folder / package / "__init__.py").write_text("raise RuntimeError('this is not Headway')")
    content = yaml.safe_load((FLIGHTS / "pipeline.yaml").read_text())
    (folder / "extra.yaml").write_text(yaml.safe_dump(content | {"name": "extra", "schedule": "0 5 2 1 *"}))
    server = Server(folder, port)
    try:
        told = _up(folder, *UP, FLIGHTS, "extra.yaml", "--port", port).stdout
        assert f"http://127.0.0.1:{port}" in told and "deployment run 'retrain/flights' --watch" in told
        assert "(or retrain/extra)" in told
        assert 'PREFECT_API_AUTH_STRING="$(cat .headway/prefect/auth)"' in told
        assert (server.home / "auth").read_text().strip() not in told
        yield server
    finally:
        _up(folder, "down", check=False)
        with pytest.raises(OSError):
            server.answer("/health")


def _typed(prefect, *parameters):
    """What a person types: (exit code, output, the flow run as the server has it)."""
    env = os.environ | {"PREFECT_API_URL": f"http://127.0.0.1:{prefect.port}/api"}
    env |= {"PREFECT_API_AUTH_STRING": (prefect.home / "auth").read_text().strip()}
    env |= {"PREFECT_HOME": str(prefect.folder / "client"), "NO_PROXY": "127.0.0.1", "COLUMNS": "200"}
    options = [part for parameter in parameters for part in ("-p", parameter)]
    command = [str(PREFECT), "deployment", "run", "retrain/flights", "--watch", *options]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, check=False)
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


@served
def test_a_typed_retrain_ends_in_a_promoted_model(prefect, project):
    code, text, run = _typed(prefect, f"pipeline={project}", "until=2013-03")
    assert code == 0, text
    assert (
        run["state"]["name"] == "Completed"
        and "Version 1 is promoted, the first of this model: auc is " in run["state"]["message"]
    )
    assert (project / "store" / "serving" / "flights" / "1" / "saved_model.pb").exists()

    of_run = {"flow_run_id": {"any_": [run["id"]]}}
    tasks = _tasks(prefect, run)
    assert set(tasks) == {"ingest (3 spans)"} | {
        *("statistics", "splits", "validate", "transform", "train", "evaluate", "measure", "gate", "export", "replay")
    }
    assert set(tasks.values()) == {"Completed"}
    artifacts = {a["key"]: a["data"] for a in prefect("/artifacts/filter", {"artifacts": of_run}) if a["key"]}
    # validation: by time, so the label of eval is another than that of train, which is worth a word
    names = ("statistics", "validation", "evaluation", "verdict")
    assert set(artifacts) == {f"flights-{name}" for name in names}
    assert "# Verdict: promoted" in artifacts["flights-verdict"]
    assert "Version 1 is promoted, the first of this model: " in artifacts["flights-verdict"]
    assert "--open`\n" in artifacts["flights-verdict"], "and how to see its report"
    logs = [line["message"] for line in prefect("/logs/filter", {"logs": of_run})]
    assert any("steps/s" in line for line in logs)

    # nothing changed: every task is cached, and the champion stays
    code, text, run = _typed(prefect, f"pipeline={project}", "until=2013-03")
    assert code == 0 and "Version 1 is the champion already" in run["state"]["message"], text
    tasks = _tasks(prefect, run)
    assert set(tasks.values()) == {"Cached"}, tasks

    # a user's mistake is a sentence, not a traceback
    code, text, run = _typed(prefect, f"pipeline={project}", "until=2019-01")
    assert code == 1 and run["state"]["name"] == "Failed" and "2019-01" in run["state"]["message"]
    time.sleep(3)  # lines reach the server in batches
    logs = [line["message"] for line in prefect("/logs/filter", {"logs": {"flow_run_id": {"any_": [run["id"]]}}})]
    assert any("2019-01" in line for line in logs) and not any("Traceback" in line for line in logs)


def _endless(project):
    """The project with a training that does not end by itself; whether one is at it, and how its last run ended."""
    config = project / "pipeline.yaml"
    config.write_text(config.read_text().replace("steps: 60,", "steps: 400000,"))
    began = time.time()

    def trains():
        return any(path.stat().st_mtime > began for path in (project / "store" / "checkpoints").glob("*/*"))

    def recorded():
        return json.loads(max((project / "store" / "runs").glob("*.json")).read_text())["state"]

    return trains, recorded


@served
def test_a_cancelled_run_stops_cleanly(prefect, project):
    trains, recorded = _endless(project)
    run = prefect.start(pipeline=str(project))
    until(trains, 180, lambda: prefect.state(run))
    prefect(f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLING", "name": "Cancelling"}})
    until(lambda: prefect.state(run)["type"] == "CANCELLED", 180, lambda: prefect.state(run))
    assert recorded() == "cancelled"


@killed
def test_a_run_outlives_its_worker_and_ends_when_its_state_is_set(prefect, project, row):
    trains, recorded = _endless(project)
    run = prefect.start(pipeline=str(project))
    until(trains, 180, lambda: prefect.state(run))
    engine = prefect.engine(run)
    os.kill(prefect.pid("worker"), signal.SIGKILL)
    told = _up(prefect.folder, *UP, "--port", prefect.port).stdout
    assert f"1 flow run of a worker that died: left alone (process {engine})" in told
    meanwhile = prefect.state(run)["type"].title()
    assert alive(engine)

    # no worker hears of this one: the flow run itself looks
    prefect(f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLED", "name": "Cancelled"}})
    until(lambda: not alive(engine), 180)
    row("kill -9 of the worker, then the run's state is set", f"{meanwhile}, then {prefect.state(run)['type'].title()}")
    assert recorded() == "cancelled"
    assert not (project / "store" / "models").exists()


@killed
def test_a_worker_that_dies_with_its_run_and_one_that_is_stopped(prefect, project, row):
    trains, recorded = _endless(project)
    # killed with its run while that was Pending: nobody is left to say so but the server's automation
    run, worker = prefect.start({"command": "sleep 600"}, pipeline=str(project)), prefect.pid("worker")
    until(lambda: prefect.engine(run), 180)
    for pid in (worker, prefect.engine(run)):
        os.kill(pid, signal.SIGKILL)
    until(lambda: prefect.state(run)["type"] == "CRASHED", 120, lambda: prefect.state(run))
    row("kill -9 of the worker and the flow run's process", {"state": prefect.state(run)})
    _up(prefect.folder, *UP, "--port", prefect.port)

    # its place in the deployment's concurrency limit is free; a worker that is stopped lets its run save first
    run, worker = prefect.start(pipeline=str(project)), prefect.pid("worker")
    until(trains, 180, lambda: prefect.state(run))
    os.kill(worker, signal.SIGTERM)
    until(lambda: not alive(worker), 60)
    row("SIGTERM to the worker of a run that was started again", {"state": prefect.state(run)})
    assert recorded() == "cancelled"


@served
def test_nobody_without_the_password_runs_anything(prefect, tmp_path):
    deployment = prefect("/deployments/name/retrain/flights")["id"]
    ran = tmp_path / "ran"
    body = {"state": {"type": "SCHEDULED"}, "job_variables": {"command": f"touch {ran}"}}
    path = f"/deployments/{deployment}/create_flow_run"

    # another user of this machine
    for asked, data in ((path, body), ("/flow_runs/filter", {}), ("/csrf-token?client=x", None)):
        assert prefect.answer(asked, data)[0] in (401, 403)
    assert (prefect.home / "auth").stat().st_mode & 0o777 == 0o600 and prefect.home.stat().st_mode & 0o777 == 0o700

    # a page of another origin in a browser: neither a preflight, nor a simple request without one, nor with the password
    evil = {"Origin": "http://evil.example"}
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type,authorization"}
    code, _, headers = prefect.answer(path, method="OPTIONS", headers=evil | asks)
    assert code == 400 and "access-control-allow-origin" not in headers
    code, _, headers = prefect.answer(path, body, headers=evil | {"content-type": "text/plain"})
    assert code in (401, 403) and headers.get("access-control-allow-origin") in (None, "")
    code, _, _ = prefect.answer(path, body, headers=evil | prefect._auth())
    assert code == 403  # no token of Prefect's against forged requests

    # the server's own page may; the UI asks for the password and sends the token
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        f"http://127.0.0.1:{prefect.port}/ui-settings"
    ) as ui:
        settings = json.load(ui)
    assert settings["auth"] == "BASIC" and settings["csrf_enabled"] is True
    own = {"Origin": f"http://127.0.0.1:{prefect.port}"}
    code, _, headers = prefect.answer(path, method="OPTIONS", headers=own | asks)
    assert code == 200 and headers["access-control-allow-origin"] == own["Origin"]
    assert not ran.exists()


@served
def test_up_again_changes_nothing_and_leaves_what_others_made(prefect):
    made = prefect("/deployments/name/retrain/flights")
    mine = {"schedule": {"cron": "1 1 1 1 *"}, "active": False, "slug": "mine", "parameters": {"window": 3}}
    prefect(f"/deployments/{made['id']}/schedules", [mine])
    theirs = {"name": "theirs", "flow_id": made["flow_id"], "tags": ["headway"], "work_pool_name": "headway"}
    prefect("/deployments/", theirs)
    assert "note:" not in _up(prefect.folder, *UP, FLIGHTS, "extra.yaml", "--port", prefect.port).stdout

    file = prefect.folder / "extra.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"schedule": {"monitor": "0 5 2 1 *"}}))
    told = _up(prefect.folder, *UP, "extra.yaml", "--port", prefect.port).stdout
    assert "note: set the schedule of monitor/extra: 0 5 2 1 * UTC" in told
    assert {d["name"] for d in prefect("/deployments/filter", {})} == {"flights", "extra", "theirs"}
    now = prefect("/deployments/name/retrain/flights")
    assert now["id"] == made["id"] and {s["slug"]: s["active"] for s in now["schedules"]} == {
        "headway": True,
        "mine": False,
    }
    assert {s["slug"]: s["parameters"] for s in now["schedules"]} == {"headway": {}, "mine": {"window": 3}}


def test_up_needs_a_free_port(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = _up(tmp_path, *UP, "--port", taken.getsockname()[1], check=False)
    assert done.returncode == 2 and "is taken by another program" in done.stderr and "Traceback" not in done.stderr
    assert "nothing was running" in _up(tmp_path, "down").stdout


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
    ending = ended(read_record(record))
    assert (ending.word, ending.alarm) == (word, alarm)
