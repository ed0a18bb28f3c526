"""The topology of infra/one_host.py for the tests of faults: PostgreSQL, a Prefect server on it, and workers.

host = Host(folder)
host.up()                                 # again: starts what was killed
run = host.start("retrain/churn")         # a flow run of a deployment (tests.prefect_server)
host.kill("server")
host.down()
"""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from headway.storage.process_identity import is_alive
from tests.prefect_server import PrefectServer, infra
from tests.waiting import until


class Host(PrefectServer):
    """See the module.

    Args:
        folder: an empty folder, which holds everything but the database's files.
        workers: how many workers poll the pool `headway`.
    """

    pauses = ()

    def __init__(self, folder: Path, workers: int = 1):
        postgres = infra("postgres")
        super().__init__(folder, postgres.lasting_port())
        self.database, self._workers = postgres.Postgres(self.home), workers
        self.folder.mkdir(parents=True, exist_ok=True)

    def up(self, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        return super().up("--workers", self._workers, *arguments, check=check)

    def down(self, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Stop everything, and remove the database."""
        return super().down("--remove", *arguments, check=check)

    def headway(self, *arguments: object, check: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Type a headway command."""
        command = [sys.executable, "-P", "-m", "flows.cli", *map(str, arguments)]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=250, check=False)
        assert check is None or done.returncode == check, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to a daemon: to all of the server's processes, to the worker's own alone."""
        pid = self.pid(name)
        assert pid is not None, f"{name} is dead already"
        (os.killpg if name == "server" else os.kill)(pid, number)
        if number == signal.SIGKILL:
            until(lambda: not is_alive(pid), 10)

    def kill_database(self) -> None:
        """SIGKILL to PostgreSQL's first process; the others end when they see it."""
        pid = int((self.database.data / "postmaster.pid").read_text().splitlines()[0])
        os.kill(pid, signal.SIGKILL)
        until(lambda: not is_alive(pid), 10)

    def hurry(self, automation: str, seconds: float) -> dict[str, Any]:
        """Let an automation wait for so many seconds, which is shorter than a test shall take; what it was before."""
        (found,) = self.ask("/automations/filter", {"automations": {"name": {"any_": [automation]}}})
        fields = ("name", "description", "enabled", "tags", "actions", "actions_on_trigger", "actions_on_resolve")
        body = {field: found[field] for field in fields} | {"trigger": found["trigger"] | {"within": seconds}}
        self.ask(f"/automations/{found['id']}", body, method="PUT")
        return dict(found)

    def clear(self) -> None:
        """End the flow runs that a test which failed left behind: they hold the locks and the places of the next test."""
        going_on = ["SCHEDULED", "PENDING", "RUNNING", "PAUSED", "CANCELLING"]
        for run in self.ask("/flow_runs/filter", {"flow_runs": {"state": {"type": {"any_": going_on}}}, "limit": 200}):
            self.ask(f"/flow_runs/{run['id']}/set_state", {"state": {"type": "CANCELLED"}, "force": True})
            if pid := self.engine(run["id"]):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                until(lambda pid=pid: not is_alive(pid), 10)
