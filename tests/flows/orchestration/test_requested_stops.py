"""What a flow asks of a server that may be away."""

import threading

import httpx
import pytest

from flows.orchestration import requested_stops
from flows.orchestration.requested_stops import outlive
from headway.errors import Cancelled, HeadwayError

AWAY = httpx.ConnectError("connection refused")


def _status(code):
    request = httpx.Request("POST", "http://127.0.0.1/api")
    return httpx.HTTPStatusError(str(code), request=request, response=httpx.Response(code, request=request))


def _server(*answers):
    """What asks a server that gives these answers, one after the other."""
    left = iter(answers)

    def ask():
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


def test_a_run_is_started_once_a_server_that_was_away_is_back(monkeypatch):
    monkeypatch.setattr(requested_stops, "SECONDS", 0.01)
    assert outlive(_server(AWAY, _status(503), "a run"), threading.Event()) == "a run"
    with pytest.raises(httpx.HTTPStatusError, match="422"):
        outlive(_server(_status(422), "a run"), threading.Event())


def test_a_run_that_is_stopped_does_not_wait_for_a_server_that_is_away(monkeypatch):
    stop = threading.Event()
    stop.set()
    with pytest.raises(Cancelled, match="what was done is kept"):
        outlive(_server(AWAY), stop)
    monkeypatch.setattr(requested_stops, "AWAY_SECONDS", -1.0)
    with pytest.raises(HeadwayError, match="the server does not answer: connection refused"):
        outlive(_server(AWAY), threading.Event())
