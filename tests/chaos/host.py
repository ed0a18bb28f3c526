"""The topology of infra/one_host.py for the tests of faults: PostgreSQL, a Prefect server on it, and workers.

    host = Host(folder)
    host.up()                                 # again: starts what was killed
    run = host.start("retrain/churn")         # a flow run of a deployment
    host.kill("server")
    host.ended(run)                           # the flow run as the server has it, once it has ended
    host.down()

It belongs to a test session: its folder, its ports and its PREFECT_HOME are its own, and it ends nothing else.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import httpx

from headway.storage.process_identity import alive, lives
from tests.chaos.table import TRUE_WITHIN
from tests.waiting import until

ROOT = Path(__file__).parents[2]
FINAL = {"COMPLETED", "FAILED", "CANCELLED", "CRASHED"}


def _script(path: str) -> Any:
    """A script of the repository as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Host:
    """See the module.

    Args:
        folder: an empty folder, which holds everything but the database's files.
        workers: how many workers poll the pool `headway`.
    """

    def __init__(self, folder: Path, workers: int = 1):
        self.folder, self._workers = folder, workers
        self.home = folder / ".headway" / "prefect"
        postgres = _script("infra/postgres.py")
        self.database, self.port = postgres.Postgres(self.home), postgres.lasting_port()
        self._names: dict[str, str] = {}
        """By flow run: what its process is called."""
        self._client, self._csrf = uuid.uuid4().hex, ""
        self.folder.mkdir(parents=True, exist_ok=True)
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        self._bare = ours | {
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "NO_PROXY": "127.0.0.1",
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        }

    def up(self) -> None:
        """Start what does not run."""
        self._typed_script("up", "--port", self.port, "--workers", self._workers)

    def down(self) -> None:
        """Stop everything, and remove the database."""
        self._typed_script("down", "--remove")

    def _typed_script(self, *arguments: object) -> None:
        command = [sys.executable, "-P", str(ROOT / "infra" / "one_host.py"), *map(str, arguments)]
        done = subprocess.run(
            command, cwd=self.folder, env=self._bare, capture_output=True, text=True, timeout=280, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    @property
    def env(self) -> dict[str, str]:
        """The environment in which somebody types commands."""
        return self._bare | {
            "PREFECT_API_URL": f"http://127.0.0.1:{self.port}/api",
            "PREFECT_API_AUTH_STRING": self._login(),
            "PREFECT_HOME": str(self.folder / "client"),
        }

    def headway(self, *arguments: object, check: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Type a headway command."""
        command = [sys.executable, "-P", "-m", "flows.cli", *map(str, arguments)]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=250, check=False)
        assert check is None or done.returncode == check, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    # --- processes

    def daemon(self, name: str) -> Any:
        """server, worker, worker-2, ..."""
        return _script("infra/daemons.py").Daemon(self.home, name)

    def pid(self, name: str) -> int | None:
        """The pid of a daemon; None while it is dead."""
        return self.daemon(name).pid()

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to a daemon: to all of the server's processes, to the worker's own alone."""
        daemon = self.daemon(name)
        pid = daemon.pid()
        assert pid is not None, f"{name} is dead already"
        (os.killpg if name == "server" else os.kill)(pid, number)
        if number == signal.SIGKILL:
            until(lambda: not alive(pid), 10)

    def kill_database(self) -> None:
        """SIGKILL to PostgreSQL's first process; the others end when they see it."""
        pid = int((self.database.data / "postmaster.pid").read_text().splitlines()[0])
        os.kill(pid, signal.SIGKILL)
        until(lambda: not alive(pid), 10)

    def engine(self, run: str) -> int | None:
        """The flow run's process, while it lives."""
        with contextlib.suppress(httpx.HTTPError):
            if name := self.flow_run(run)["infrastructure_pid"]:
                self._names[run] = name
        name = self._names.get(run, "")
        return int(name.rpartition("@")[2].partition(".")[0]) if lives(name) else None

    # --- the API

    def _login(self) -> str:
        return (self.home / "auth").read_text().strip()

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """One request, answered in JSON; an httpx.HTTPError where the server is away or refuses."""
        method = method or ("GET" if body is None else "POST")
        user, _, password = self._login().partition(":")
        address = f"http://127.0.0.1:{self.port}/api"
        # no https: reading certificates would cost most of a request's time
        with httpx.Client(auth=(user, password), timeout=30, trust_env=False, verify=False) as client:
            headers = {}
            if method != "GET":
                token = client.get(f"{address}/csrf-token", params={"client": self._client}).raise_for_status().json()
                headers = {"Prefect-Csrf-Client": self._client, "Prefect-Csrf-Token": token["token"]}
            answer = client.request(method, address + path, json=body, headers=headers).raise_for_status()
        return answer.json() if answer.content else None

    def hurry(self, automation: str, seconds: float) -> dict[str, Any]:
        """Let an automation wait for so many seconds, which is shorter than a test shall take; what it was before."""
        (found,) = self.ask("/automations/filter", {"automations": {"name": {"any_": [automation]}}})
        fields = ("name", "description", "enabled", "tags", "actions", "actions_on_trigger", "actions_on_resolve")
        body = {field: found[field] for field in fields} | {"trigger": found["trigger"] | {"within": seconds}}
        self.ask(f"/automations/{found['id']}", body, method="PUT")
        return dict(found)

    def healthy(self) -> bool:
        """Whether the server answers."""
        with contextlib.suppress(httpx.HTTPError):
            return bool(self.ask("/health"))
        return False

    def start(self, deployment: str, variables: dict[str, Any] | None = None, **parameters: Any) -> str:
        """Start a flow run of a deployment (retrain/churn), with job variables of its own; its id."""
        id = self.ask(f"/deployments/name/{deployment}")["id"]
        body = {"parameters": parameters, "state": {"type": "SCHEDULED"}, "job_variables": variables or {}}
        return str(self.ask(f"/deployments/{id}/create_flow_run", body)["id"])

    def flow_run(self, run: str) -> dict[str, Any]:
        """A flow run as the server has it: name, state, parameters."""
        found: dict[str, Any] = self.ask(f"/flow_runs/{run}")
        return found

    def state(self, run: str) -> str:
        """The type of a flow run's state: RUNNING, CRASHED; "" while the server is away."""
        with contextlib.suppress(httpx.HTTPError):
            return str(self.flow_run(run)["state"]["type"])
        return ""

    def ended(self, run: str, seconds: float = TRUE_WITHIN) -> dict[str, Any]:
        """Wait until the server says that a flow run has ended, and its process has; the flow run."""
        until(
            lambda: self.state(run) in FINAL and self.engine(run) is None,
            seconds,
            lambda: (self.state(run), self.engine(run), self.logs(run)),
        )
        return self.flow_run(run)

    def flow_runs(self, pipeline: str, **chosen: Any) -> list[dict[str, Any]]:
        """The runs of a pipeline's deployment retrain, the oldest first; `chosen`: a filter of them, as the API takes it."""
        query = {"deployments": {"name": {"any_": [pipeline]}}, "flows": {"name": {"any_": ["retrain"]}}, "limit": 200}
        query |= {"flow_runs": chosen} if chosen else {}
        found: list[dict[str, Any]] = self.ask("/flow_runs/filter", query | {"sort": "START_TIME_ASC"})
        return found

    def clear(self) -> None:
        """End the flow runs that a test which failed left behind: they hold the locks and the places of the next test."""
        going_on = ["SCHEDULED", "PENDING", "RUNNING", "PAUSED", "CANCELLING"]
        for run in self.ask("/flow_runs/filter", {"flow_runs": {"state": {"type": {"any_": going_on}}}, "limit": 200}):
            self.ask(f"/flow_runs/{run['id']}/set_state", {"state": {"type": "CANCELLED"}, "force": True})
            if pid := self.engine(run["id"]):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                until(lambda pid=pid: not alive(pid), 10)

    def logs(self, run: str) -> list[str]:
        """What a flow run logged."""
        with contextlib.suppress(httpx.HTTPError):
            query = {"logs": {"flow_run_id": {"any_": [run]}}, "sort": "TIMESTAMP_ASC"}
            return [line["message"] for line in self.ask("/logs/filter", query)]
        return []
