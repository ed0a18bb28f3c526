"""Watches flow runs and ends those whose process or worker died: Prefect would leave them Running or Pending.

    # beside the server that PREFECT_API_URL names; `make up` starts it
    python -P -m flows.orchestration.watch --pool headway

Every five seconds it asks the server for the pool's flow runs that have not ended, and decides, run by run:

    the process ran on this machine and is dead       Crashed (Cancelled, if it was being cancelled)
    the process lives on this machine                 left alone, whatever became of its heartbeats
    nothing is known of the process                   Crashed after 90 s without a new heartbeat, or 110 s Pending

Time is counted only while the server answers, and anew after each outage: heartbeats that a flow run could not send in
the meantime arrive late.
"""

import argparse
import itertools
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from flows.orchestration.processes import FOLDER_VARIABLE, Processes
from headway.redaction import protect

WITHIN_SECONDS = 90.0
PENDING_SECONDS = 110.0
"""With the time of a look, a true state comes within 120 s."""
LOOK_SECONDS = 5.0
PAGE = 200
"""The most flow runs that the server gives for one request."""


class FlowRun(NamedTuple):
    """A flow run that has not ended, as the server has it."""

    id: str
    state: str
    """RUNNING, PENDING or CANCELLING."""
    beat: str | None = None
    """What its newest heartbeat is called; None before the first."""


class Ending(NamedTuple):
    flow_run: str
    state: str
    message: str


class Watch:
    """The flow runs as last seen, from one check to the next.

    Args:
        lives: whether a flow run's process lives; None when that cannot be seen from here.
    """

    def __init__(self, lives: Callable[[str], bool | None]):
        self._lives = lives
        self._last: dict[str, tuple[FlowRun, bool | None, float]] = {}
        """By id: the flow run as it was seen last, whether its process lived, and since when it has looked like that."""

    def look(self, flow_runs: Sequence[FlowRun], now: float) -> list[Ending]:
        """Compare the flow runs with the last check, and return those to end now."""
        current, endings = {}, []
        for run in flow_runs:
            lives = self._lives(run.id)
            *before, since = self._last.get(run.id, (None, None, now))
            seconds = now - since if before == [run, lives] else 0.0
            current[run.id] = (run, lives, now - seconds)
            # dead only at the second look: its worker, or the process itself, may just be saying how it ended
            why = "its process is gone" if lives is False and seconds else None
            if why or (lives is None and (why := self._silence(run, seconds))):
                endings.append(Ending(run.id, "CANCELLED" if run.state == "CANCELLING" else "CRASHED", why))
        self._last = current
        return endings

    @staticmethod
    def _silence(run: FlowRun, seconds: float) -> str | None:
        if run.state == "PENDING":
            return f"it did not start within {PENDING_SECONDS:.0f} s" if seconds > PENDING_SECONDS else None
        if run.beat is None or seconds <= WITHIN_SECONDS:
            return None  # without a first heartbeat it is a flow run that sends none
        return f"no heartbeat for {WITHIN_SECONDS:.0f} s: its process is gone"


class Server:
    """The part of Prefect's API that a watch needs."""

    def __init__(self, client: SyncPrefectClient, pool: str):
        self._client, self._pool = client, pool

    def flow_runs(self, lives: Callable[[str], bool | None]) -> list[FlowRun]:
        """Return the pool's flow runs that have not ended; heartbeats only of those whose process cannot be seen."""
        query = {
            "flow_runs": {"state": {"type": {"any_": ["RUNNING", "PENDING", "CANCELLING"]}}},
            "work_pools": {"name": {"any_": [self._pool]}},
        }
        runs: dict[str, str] = {}
        for offset in itertools.count(step=PAGE):
            # by id: a run that ends between two pages moves others to a page that was read, and they come at the next look
            page = {"sort": "ID_DESC", "limit": PAGE, "offset": offset}
            found = self._client.request("POST", "/flow_runs/filter", json=query | page).json()
            runs |= {run["id"]: run["state"]["type"] for run in found}
            if len(found) < PAGE:
                break
        return [FlowRun(id, state, self._beat(id) if lives(id) is None else None) for id, state in runs.items()]

    def _beat(self, flow_run: str) -> str | None:
        query = {
            "filter": {
                "event": {"name": ["prefect.flow-run.heartbeat"]},
                "resource": {"id": [f"prefect.flow-run.{flow_run}"]},
                "order": "DESC",
            },
            "limit": 1,
        }
        events = self._client.request("POST", "/events/filter", json=query).json()["events"]
        return events[0]["id"] if events else None

    def end(self, ending: Ending) -> bool:
        """Set the flow run's state; False if the server refuses, since the flow run has ended meanwhile."""
        state = {"type": ending.state, "name": ending.state.title(), "message": ending.message}
        path = {"id": ending.flow_run}
        answer = self._client.request("POST", "/flow_runs/{id}/set_state", path_params=path, json={"state": state})
        return answer.json()["status"] == "ACCEPT"


def once(watch: Watch, server: Server, processes: Processes, now: float) -> None:
    """Check all flow runs once: end those whose process is gone, and forget the dead processes of those that have ended."""
    going_on = server.flow_runs(processes.lives)
    for ending in watch.look(going_on, now):
        if server.end(ending):
            print(f"headway watch: {ending.flow_run} is {ending.state}: {ending.message}", flush=True)
    for file in processes.dead(but={run.id for run in going_on}):
        file.path.unlink(missing_ok=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m flows.orchestration.watch", description=__doc__.partition("\n")[0])
    parser.add_argument("--pool", default="headway", help="the work pool whose flow runs are watched")
    parser.add_argument("--alive", type=Path, metavar="FILE", help="a file to touch at each look, for a health check")
    options = parser.parse_args(arguments)
    protect()
    processes = Processes(Path(os.environ.get(FOLDER_VARIABLE, ".")))
    watch = Watch(processes.lives)
    away = False
    patience = {PREFECT_CLIENT_MAX_RETRIES: 1}  # an outage is to be seen, not waited out in a request
    with temporary_settings(patience), get_client(sync_client=True) as client:
        server = Server(client, options.pool)
        while True:
            try:
                once(watch, server, processes, time.monotonic())
                away = False
            except (httpx.HTTPError, OSError, ValueError) as error:
                watch = Watch(processes.lives)  # heartbeats that are missing mean nothing now
                if not away:
                    print(f"headway watch: the server does not answer: {error}", flush=True)
                away = True
            if options.alive:
                options.alive.touch()
            time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
