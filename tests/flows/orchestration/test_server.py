"""What asks a flow run to stop: signals, and the server."""

import signal
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import httpx
import pytest

from flows.orchestration import server
from flows.orchestration.server import StopRequests
from headway.errors import Cancelled


def test_signals_of_one_stop_are_one_stop():
    script = """
        import signal, threading, time
        from flows.pipeline.listeners import stop_on_signals
        stop = threading.Event()
        with stop_on_signals(stop, signal.SIGTERM, signal.SIGINT, same_seconds=1.0):
            print("ready", flush=True)
            stop.wait()
            print("stopping", flush=True)
            time.sleep(60)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == b"stopping\n"
    process.send_signal(signal.SIGINT)  # of the terminal, or of a supervisor: the same stop
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == -signal.SIGINT, "interrupted"


def test_a_flow_run_asks_whether_it_may_go_on(monkeypatch):
    states = iter(["RUNNING", None, "CANCELLED"])
    stops = StopRequests("0e0f")
    monkeypatch.setattr(StopRequests, "state", lambda self: next(states))
    stops.check()
    stops.check()  # no answer is no cancellation
    with pytest.raises(Cancelled, match="the flow run's state was set to Cancelled"):
        stops.check()
    assert stops.stop.is_set()
    assert server.POLL_SECONDS <= 5


def test_a_flow_run_waits_for_a_server_that_is_away(monkeypatch):
    states = iter([None, None, "RUNNING"])
    monkeypatch.setattr(server, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(StopRequests, "state", lambda self: next(states))
    stops = StopRequests("0e0f")
    stops.wait_for_server()
    assert next(states, "asked until it answered") == "asked until it answered"
    monkeypatch.setattr(StopRequests, "state", lambda self: None)
    stops.stop.set()
    stops.wait_for_server()  # one that is stopped does not wait


@pytest.mark.parametrize(
    ("code", "answer", "why"),
    [
        (404, {"detail": "Flow run not found"}, "the flow run was deleted on the server"),
        (200, {"state": {"type": "CRASHED"}}, "the flow run's state was set to Crashed"),
        (200, {"state": {"type": "CANCELLING"}}, "the flow run is being cancelled"),
        (200, {"state": {"type": "RUNNING"}}, None),
        (404, {"detail": "Not Found"}, None),  # of a proxy, or of a wrong address
        (401, {"detail": "Not authenticated"}, None),
        (503, {"detail": "database is locked"}, None),
    ],
)
def test_what_the_server_answers_decides_whether_a_run_goes_on(monkeypatch, code, answer, why):
    monkeypatch.setattr(server, "ask_once", lambda client, path: httpx.Response(code, json=answer))
    monkeypatch.setattr(server, "get_client", lambda **options: SimpleNamespace())
    stops = StopRequests("0e0f")
    stops.poll()
    assert stops.why == why and stops.stop.is_set() == (why is not None)
