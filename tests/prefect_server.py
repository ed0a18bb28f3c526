"""A Prefect server with workers, as infra/one_host.py starts them in a folder, and its API for who has the password.

    server = PrefectServer(folder)
    server.up("--sqlite", "--workers", 1)     # again: starts what does not run
    run = server.start("retrain/churn")       # a flow run of a deployment
    server.ended(run)                         # the flow run as the server has it, once it has ended
    server.down()

It belongs to a test: its folder, its ports and its PREFECT_HOME are its own, and it ends nothing else.
"""

import base64
import contextlib
import importlib.util
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import httpx

from headway.storage.process_identity import is_alive_by_name
from tests.chaos.table import TRUE_WITHIN
from tests.ports import free_port
from tests.waiting import until

ROOT = Path(__file__).parents[1]
FINAL = {"COMPLETED", "FAILED", "CANCELLED", "CRASHED"}


def infra(name: str) -> Any:
    """A script of infra as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "infra" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class PrefectServer:
    """See the module.

    Args:
        folder: where it is started, and where its files are.
        port: of this machine; by default a free one.
        env: variables of all that is started and typed.
    """

    pauses: tuple[float, ...] = (0.5, 1, 2, 4)
    """Seconds after which a request is sent again while SQLite is locked, as Prefect's own client does."""

    def __init__(self, folder: Path, port: int | None = None, **env: str):
        self.folder, self.port = folder, port or free_port()
        self.home, self.url = folder / ".headway" / "prefect", f"http://127.0.0.1:{self.port}/api"
        self._names: dict[str, str] = {}
        """By flow run: what its process is called."""
        self._client = uuid.uuid4().hex
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        ours |= {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "NO_PROXY": "127.0.0.1", "PATH": path}
        self._bare = ours | env

    def up(self, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Start what does not run, and deploy the pipelines among the arguments."""
        return self._typed("up", *arguments, "--port", self.port, check=check)

    def down(self, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Stop everything."""
        return self._typed("down", *arguments, check=check)

    def _typed(self, *arguments: object, check: bool) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", str(ROOT / "infra" / "one_host.py"), *map(str, arguments)]
        done = subprocess.run(
            command, cwd=self.folder, env=self._bare, capture_output=True, text=True, timeout=280, check=False
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    @property
    def env(self) -> dict[str, str]:
        """The environment in which somebody types commands."""
        home = str(self.folder / "client")
        reach = {"PREFECT_API_URL": self.url, "PREFECT_API_AUTH_STRING": self.password, "PREFECT_HOME": home}
        return self._bare | reach | {"COLUMNS": "200"}

    def reached(self) -> contextlib.AbstractContextManager[Any]:
        """Lets what this process does by Prefect's own means reach the server."""
        from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

        return temporary_settings({PREFECT_API_URL: self.url, PREFECT_API_AUTH_STRING: self.password})

    # --- processes

    def daemon(self, name: str) -> Any:
        """server, worker, worker-2, ..."""
        return infra("daemons").Daemon(self.home, name)

    def pid(self, name: str) -> int | None:
        """The pid of a daemon; None while it is dead."""
        pid: int | None = self.daemon(name).pid()
        return pid

    def engine(self, run: str) -> int | None:
        """The flow run's process, while it lives."""
        with contextlib.suppress(httpx.HTTPError):
            if name := self.flow_run(run)["infrastructure_pid"]:
                self._names[run] = name
        name = self._names.get(run, "")
        return int(name.rpartition("@")[2].partition(".")[0]) if is_alive_by_name(name) else None

    # --- the API

    @property
    def password(self) -> str:
        return (self.home / "auth").read_text().strip()

    def login(self) -> dict[str, str]:
        """The header of who has the password."""
        return {"Authorization": f"Basic {base64.b64encode(self.password.encode()).decode()}"}

    def answer(
        self, path: str, body: Any = None, method: str | None = None, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        """The answer to one request as anybody can send it."""
        # no https: reading certificates would cost most of a request's time
        with httpx.Client(timeout=30, trust_env=False, verify=False) as client:
            method = method or ("GET" if body is None else "POST")
            return client.request(method, self.url + path, json=body, headers=headers)

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """The JSON that who has the password is answered; an httpx.HTTPError where the server is away or refuses."""
        for pause in (*self.pauses, None):
            headers = self.login()
            if (method or "GET") != "GET" or body is not None:
                token = self.answer(f"/csrf-token?client={self._client}", headers=headers).raise_for_status().json()
                headers |= {"Prefect-Csrf-Client": self._client, "Prefect-Csrf-Token": token["token"]}
            answer = self.answer(path, body, method, headers)
            if answer.status_code != 503 or pause is None:
                break
            time.sleep(pause)
        answer.raise_for_status()
        return answer.json() if answer.content else None

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

    def heartbeats(self, run: str) -> int:
        """How often a flow run has said that it lives."""
        of_run = {"event": {"name": ["prefect.flow-run.heartbeat"]}, "resource": {"id": [f"prefect.flow-run.{run}"]}}
        return int(self.ask("/events/filter", {"filter": of_run})["total"])

    def logs(self, run: str) -> list[str]:
        """What a flow run logged."""
        with contextlib.suppress(httpx.HTTPError):
            query = {"logs": {"flow_run_id": {"any_": [run]}}, "sort": "TIMESTAMP_ASC"}
            return [line["message"] for line in self.ask("/logs/filter", query)]
        return []
