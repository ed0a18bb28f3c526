"""The Prefect server of PREFECT_API_URL: a connection to it, queues, runs to start, and requests to stop one.

with connected() as (client, url):
    client.read_work_pool("headway")
start_run("retrain/flights", "a key", {"until": "2013-12"})

stops = StopRequests(flow_run_id)        # inside a flow run
with stops.polling():                    # sets `stops.stop` within seconds of a cancellation
    stops.check()                        # before a step, and before a promotion: raises Cancelled
"""

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectNotFound
from prefect.settings import get_current_settings

from headway.errors import Cancelled, ConfigError, HeadwayError

POOL = "headway"
POLL_SECONDS = 3.0
AWAY_SECONDS = 600.0
"""How long a run waits for a server that is away."""
_DELETED = "DELETED"
_OVER = {"CANCELLING": "the flow run is being cancelled", _DELETED: "the flow run was deleted on the server"} | {
    state: f"the flow run's state was set to {state.title()}"
    for state in ("CANCELLED", "CRASHED", "FAILED", "COMPLETED")
}


@contextlib.contextmanager
def connected() -> Iterator[tuple[SyncPrefectClient, str]]:
    """Yield a client of the server and the server's address.

    Raises:
        ConfigError: no server is named, it does not answer, or it wants a password.
        HeadwayError: the server refused what was asked of it.
    """
    url = get_current_settings().api.url
    if not url:
        fix = "start one (make up, or prefect server start), and export PREFECT_API_URL=http://127.0.0.1:4200/api"
        raise ConfigError("no Prefect server is named", where="PREFECT_API_URL", fix=fix)
    try:
        with get_client(sync_client=True) as client:
            answer = get_once(client, "/health")
            kind = answer.headers.get("content-type", "")
            if answer.status_code != 200 or "json" not in kind:  # a proxy's, or of another program
                raise httpx.ConnectError(f"{url}/health answers {answer.status_code} {kind}".rstrip())
            client.request("GET", "/admin/version")  # refused without the password
            yield client, url
    except httpx.TransportError as error:
        problem = f"the Prefect server does not answer: {(str(error) or type(error).__name__).splitlines()[0]}"
        fix = "start the server, or correct the address; it ends in /api: http://127.0.0.1:4200/api"
        raise ConfigError(problem, where=url, fix=fix) from None
    except httpx.HTTPStatusError as error:
        if error.response.status_code in (401, 403):
            problem = "the Prefect server asks for a password, and the one that was sent is not it"
            fix = "export PREFECT_API_AUTH_STRING=user:password; after 'make up': \"$(cat .headway/prefect/auth)\""
            raise ConfigError(problem, where=url, fix=fix) from None
        problem = f"the Prefect server refused this: {': '.join(str(error).splitlines()[:2])}"
        raise HeadwayError(problem, where=url) from None


def get_once(client: SyncPrefectClient, path: str) -> httpx.Response:
    """Returns the server's answer to a GET request that is sent only once. Prefect's own client retries for a minute, which can
    be changed only for the whole process. Uses a private name of Prefect's client.

    Raises:
        httpx.HTTPError: the server does not answer.
    """
    request = client._client.build_request("GET", path, timeout=10.0)
    return httpx.Client.send(client._client, request)


def create_queues(client: SyncPrefectClient, pool: str, names: Sequence[str]) -> list[str]:
    """Create the work queues in `names` that a pool lacks; returns the names of the queues created."""
    there = {queue.name for queue in client.read_work_queues(pool)}
    missing = [name for name in names if name not in there]
    for name in missing:
        client.create_work_queue(name, work_pool_name=pool)
    return missing


def has_worker(pool: str, queue: str) -> bool | None:
    """Returns whether a worker polls a queue; None if the server does not answer."""
    with contextlib.suppress(Exception), get_client(sync_client=True) as client:
        return client.read_work_queue_by_name(queue, pool).status == "READY"
    return None


def worker_command(pool: str, queue: str) -> str:
    """Returns the command that starts Headway's worker of a queue."""
    return f"python -P -m flows.orchestration.worker --pool {pool} --queue {queue}"


def start_run(deployment: str, key: str, parameters: Mapping[str, Any], **options: Any) -> FlowRun:
    """Start a run of a deployment, and return the run. A later call with the same `key` returns the same run.

    Args:
        deployment: "flow/deployment".
        options: further arguments of Prefect's `create_flow_run_from_deployment`.

    Raises:
        ConfigError: there is no such deployment.
    """
    with get_client(sync_client=True) as client:
        try:
            id = client.read_deployment_by_name(deployment).id
        except ObjectNotFound:
            problem = f"there is no deployment {deployment}"
            raise ConfigError(problem, where="Prefect server", fix="headway deploy makes it") from None
        return client.create_flow_run_from_deployment(id, parameters=dict(parameters), idempotency_key=key, **options)


class StopRequests:
    """Asks the server whether one flow run should stop.

    A living worker passes a cancellation on to the flow runs that it started. But a flow run may also be deleted, or its state be
    set through the API or by an automation, and no worker hears of that.
    """

    def __init__(self, flow_run: str):
        self._flow_run = flow_run
        self.stop = threading.Event()
        """An event that is set when the flow run should stop."""
        self._client: SyncPrefectClient | None = None
        self.why: str | None = None
        """Why the server wants the flow run to stop; None: it does not want that."""

    def state(self) -> str | None:
        """Returns the type of the flow run's state; DELETED: the server has no such run; None: the server does not answer."""
        try:
            if self._client is None:  # making one costs 50 ms
                self._client = get_client(sync_client=True)
            answer = get_once(self._client, f"/flow_runs/{self._flow_run}")
            known = answer.json()
            if answer.status_code == 404 and known["detail"] == "Flow run not found":  # not the 404 of a proxy
                return _DELETED
            return str(known["state"]["type"])
        except Exception:  # an outage is not a cancellation, whatever form it takes
            return None

    def poll(self) -> None:
        """Ask the server once; sets `stop` if the run should not continue."""
        if self.why is None and (why := _OVER.get(self.state() or "")):
            self.why = why
            self.stop.set()

    def check(self) -> None:
        """Ask the server once, and raise if the run should not continue.

        Raises:
            Cancelled: the flow run should stop.
        """
        self.poll()
        if self.stop.is_set():
            raise Cancelled(self.why or "stopped on request; what was done is kept")

    @contextlib.contextmanager
    def polling(self, seconds: float = POLL_SECONDS) -> Iterator[None]:
        """Within the block, call `poll` every `seconds` seconds in a thread."""
        done = threading.Event()

        def watch() -> None:
            while not done.wait(seconds) and self.why is None:
                self.poll()

        thread = threading.Thread(target=watch, name="stops", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()

    def wait_for_server(self, seconds: float = AWAY_SECONDS) -> None:
        """Wait until the server answers, so that it can be told how the run ended. Waits at most `seconds`, or until `stop`."""
        deadline = time.monotonic() + seconds
        while self.state() is None and time.monotonic() < deadline and not self.stop.wait(POLL_SECONDS):
            pass
