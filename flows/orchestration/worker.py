"""A Prefect worker that ends its flow runs before itself.

    python -P -m flows.orchestration.worker --pool headway  # instead of: prefect worker start --pool headway --type process

Prefect's own process worker kills its flow runs when it is stopped: nothing is saved, and their states stay Running. On SIGTERM,
SIGINT or SIGHUP this worker takes no new flow runs and sends SIGTERM to its running ones. It stops when they have saved and
reported how they ended. A second signal stops it at once.

At its start the worker reports the flow runs of this host that died with an earlier worker. Later it reports those whose end
nobody could report. A flow run's `infrastructure_pid` tells which process runs it: the host, the pid and the start time.
"""

import abc
import argparse
import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.responses import SetStateStatus
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_WORKER_QUERY_SECONDS, temporary_settings
from prefect.states import Cancelled, Crashed
from prefect.workers.process import ProcessWorker, ProcessWorkerResult

from flows.orchestration import ENVIRONMENT
from flows.orchestration.server import connected, create_queues
from headway.errors import ConfigError, HeadwayError
from headway.messages import counted
from headway.redaction import protect
from headway.storage.process_identity import is_alive_by_name, process_name

GRACE_SECONDS = 60.0
"""How long flow runs may take to save. A supervisor should wait a little longer before it kills the worker."""
POLL_SECONDS = 5.0
"""The seconds between two polls for flow runs, unless PREFECT_WORKER_QUERY_SECONDS is set. Prefect's default is 10 s."""
GONE = "its process is gone"
POLLS = "polls for flow runs"
"""The words that the worker prints once it polls; a supervisor may wait for them."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Worker(ProcessWorker, abc.ABC):  # ABC: Prefect's registry of worker types keeps its own "process"
    """A Prefect process worker that lets its flow runs save and end before it stops, and outlives outages of the server."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.engines: dict[UUID, int] = {}
        self._draining = self._polling = self._polls = self._away = False
        self._gone: set[str] | None = None

    async def get_and_submit_flow_runs(self) -> Any:
        if self._draining:
            return []
        self._polling = True
        try:
            found = await self._outlive(super().get_and_submit_flow_runs())
            if found is not None and not self._polls and self.get_status()["work_pool"]:  # it asks for none before that
                self._polls = True
                _say(f"{self.name} {POLLS}")
            return found or []
        finally:
            self._polling = False

    async def sync_with_backend(self) -> None:
        await self._outlive(super().sync_with_backend())
        if self.get_status()["work_pool"]:  # also later: nobody could report an end while the server was away
            found = await self._outlive(asyncio.to_thread(end_lost_runs, self._work_pool_name, self._gone))
            self._gone = self._gone if found is None else found

    async def _outlive(self, asking: Awaitable[Any]) -> Any:
        """Returns the awaited answer; None while the server or its database is away. After a minute and a half of such errors
        Prefect's own worker would end itself and the flow runs that it started."""
        try:
            answer = await asking
        except (httpx.TransportError, httpx.HTTPStatusError) as error:
            if isinstance(error, httpx.HTTPStatusError) and error.response.status_code < 500:
                raise
            if not self._away:
                _say(f"the server does not answer: {error}".splitlines()[0])
            self._away = True
            return None
        if self._away:
            _say("the server answers again")
        self._away = False
        return answer

    async def run(self, flow_run: Any, configuration: Any, task_status: Any = None) -> ProcessWorkerResult:
        if configuration.working_dir is not None and not Path(configuration.working_dir).is_dir():
            # Prefect's worker would neither start the run nor end it; in a folder of its own the flow says what is gone
            _say(f"the working directory of {flow_run.name} is gone: {configuration.working_dir}")
            configuration.working_dir = None
        check_command_on_path(configuration.command, {**os.environ, **(configuration.env or {})})

        def started(pid: int) -> None:
            self.engines[flow_run.id] = pid
            if task_status is not None:
                task_status.started(process_name(pid))  # Prefect's base class makes it the infrastructure_pid

        try:
            return await super().run(flow_run, configuration, SimpleNamespace(started=started))
        finally:
            self.engines.pop(flow_run.id, None)

    async def drain(self, seconds: float) -> None:
        """Take no new flow runs, send SIGTERM to the running ones, and wait at most `seconds` seconds for their end."""
        self._draining = True
        signalled: set[int] = set()
        deadline = time.monotonic() + seconds
        while self.engines or self._submitting_flow_run_ids or self._polling:  # a private name: those not begun yet
            for pid in set(self.engines.values()) - signalled:
                signalled.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            if time.monotonic() > deadline:
                _say(f"{counted(len(self.engines), 'flow run')} did not end within {seconds:.0f} s of SIGTERM")
                return
            await asyncio.sleep(0.1)


def check_command_on_path(command: str | None, environ: Mapping[str, str | None]) -> None:
    """Check that the program of a flow run's command is on this machine; Prefect's own error would not name it.

    Raises:
        ConfigError: the program is not there.
    """
    program = next(iter(shlex.split(command or "")), None)
    if program is not None and shutil.which(program, path=environ.get("PATH")) is None:
        raise ConfigError(
            f"there is no program {program!r} on {socket.gethostname()}, which this worker is on",
            where="the deployment's job variable `command`",
            fix="put the environment that has Headway first on the worker's PATH and start it again; or headway deploy",
        )


async def serve(worker: Worker, grace: float, *, with_healthcheck: bool = False) -> None:
    """Run the worker until a signal. The first one drains the worker for up to `grace` seconds, a second stops it at once."""
    loop = asyncio.get_running_loop()
    serving = loop.create_task(worker.start(with_healthcheck=with_healthcheck))
    stopping: list[asyncio.Task[None]] = []

    async def stop(number: int) -> None:
        _say(f"got {signal.Signals(number).name}: asking {counted(len(worker.engines), 'flow run')} to save and end")
        try:
            await worker.drain(grace)
        finally:
            serving.cancel()

    def handle(number: int) -> None:
        if stopping:
            serving.cancel()
        else:
            stopping.append(loop.create_task(stop(number)))

    for number in _SIGNALS:
        loop.add_signal_handler(number, handle, number)
    with contextlib.suppress(asyncio.CancelledError):
        await serving
    _say("stopped")


def flow_runs_here(client: SyncPrefectClient, pool: str) -> Iterator[tuple[dict[str, Any], int, bool]]:
    """Yields the unfinished flow runs of a pool whose process is or was on this host; each with the pid and whether it lives."""
    query = {
        "flow_runs": {"state": {"type": {"any_": ["PENDING", "RUNNING", "CANCELLING"]}}},
        "work_pools": {"name": {"any_": [pool]}},
    }
    for run in client.request("POST", "/flow_runs/filter", json=query).json():  # the server gives 200 at most
        name = run["infrastructure_pid"] or ""
        if (living := is_alive_by_name(name)) is not None:
            yield run, int(name.rpartition("@")[2].partition(".")[0]), living


def end_lost_runs(pool: str, known: set[str] | None = None) -> set[str]:
    """End a pool's flow runs whose process on this host is gone, as Crashed or Cancelled; returns the state ids of all such.

    Args:
        known: what the last call returned. A run whose state is not in it is left for the next call, since a worker may be about
            to report it or start it again. None: this is the first call, which leaves only the Pending runs.
    """
    gone = set()
    with get_client(sync_client=True) as client:
        for run in [run for run, _, living in flow_runs_here(client, pool) if not living]:
            gone.add(run["state_id"])
            if run["state"]["type"] != "PENDING" if known is None else run["state_id"] in known:
                ended = Cancelled if run["state"]["type"] == "CANCELLING" else Crashed
                status = client.set_flow_run_state(UUID(run["id"]), ended(message=GONE)).status
                if status == SetStateStatus.ACCEPT:  # refused where the run has ended meanwhile
                    _say(f"{run['name']} is {ended.__name__}: {GONE}")
    return gone


def _say(text: str) -> None:
    print(f"headway worker: {text}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m flows.orchestration.worker", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--pool", default="headway", help="the work pool to poll (default: headway)")
    queue = "a work queue to poll; may be repeated (default: all of the pool)"
    parser.add_argument("--queue", action="append", metavar="NAME", help=queue)
    parser.add_argument("--name", help="the worker's name (default: as Prefect makes one)")
    parser.add_argument("--grace", type=float, default=GRACE_SECONDS, help="seconds that flow runs get to save (60)")
    check = "answer at /health, port 8080 (PREFECT_WORKER_WEBSERVER_HOST, _PORT): 503 once it polls no longer"
    parser.add_argument("--with-healthcheck", action="store_true", help=check)
    options = parser.parse_args(arguments)
    protect()
    os.environ.update(ENVIRONMENT | dict(os.environ))  # of its flow runs
    try:
        # the worker itself makes a pool that is not there
        with connected() as (client, _), contextlib.suppress(httpx.HTTPStatusError, ObjectNotFound):
            create_queues(client, options.pool, options.queue or [])
    except (HeadwayError, httpx.TransportError) as error:  # a worker waits for a server that is away
        _say(str(error))
    worker = Worker(work_pool_name=options.pool, work_queues=options.queue, name=options.name)
    with temporary_settings(set_defaults={PREFECT_WORKER_QUERY_SECONDS: POLL_SECONDS}):
        asyncio.run(serve(worker, options.grace, with_healthcheck=options.with_healthcheck))
    return 0


if __name__ == "__main__":
    sys.exit(main())
