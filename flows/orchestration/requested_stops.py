"""Polls Prefect's server from inside a flow run for a request to stop.

    stops = StopRequests(flow_run_id, stop)
    with stops.polling():                    # sets `stop` within seconds of a cancellation
        stops.check()                        # before a step, and before a promotion: raises Cancelled

A worker passes on a cancellation to the flow runs that it started, while it lives. The state of a flow run may also be set
through the API or by an automation, and the flow run may be deleted, which no worker hears of; and it may have outlived its
worker.
"""

import contextlib
import threading
import time
from collections.abc import Iterator

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client

from headway.errors import Cancelled

SECONDS = 3.0
AWAY_SECONDS = 600.0
"""How long a run waits for a server that is away."""
_DELETED = "DELETED"
_OVER = {"CANCELLING": "the flow run is being cancelled", _DELETED: "the flow run was deleted on the server"} | {
    state: f"the flow run's state was set to {state.title()}"
    for state in ("CANCELLED", "CRASHED", "FAILED", "COMPLETED")
}


def ask_once(client: SyncPrefectClient, path: str) -> httpx.Response:
    """What the server answers to a GET now: Prefect's own client tries for a minute, and a setting of less is for all of a
    process. By a private name of Prefect's client.

    Raises:
        httpx.HTTPError: it does not answer.
    """
    request = client._client.build_request("GET", path, timeout=10.0)
    return httpx.Client.send(client._client, request)


class StopRequests:
    """The state of one flow run on the server.

    Args:
        stop: set when the run is not to go on.
    """

    def __init__(self, flow_run: str, stop: threading.Event | None = None):
        self._flow_run, self.stop = flow_run, stop or threading.Event()
        self._client: SyncPrefectClient | None = None
        self.why: str | None = None
        """Why the server wants the run to end."""

    def state(self) -> str | None:
        """The type of its state, DELETED where the server knows it no longer; None when the server does not answer."""
        try:
            if self._client is None:  # making one costs 50 ms
                self._client = get_client(sync_client=True)
            answer = ask_once(self._client, f"/flow_runs/{self._flow_run}")
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
            Cancelled: the run is not to go on.
        """
        self.poll()
        if self.stop.is_set():
            raise Cancelled(self.why or "stopped on request; what was done is kept")

    @contextlib.contextmanager
    def polling(self, seconds: float = SECONDS) -> Iterator[None]:
        """Poll every few seconds in a thread, while the block runs."""
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
        """Wait until the server answers, so that it hears how the run ended; at most `seconds`."""
        deadline = time.monotonic() + seconds
        while self.state() is None and time.monotonic() < deadline and not self.stop.wait(SECONDS):
            pass
