"""The slot of a work queue, where one training is for each GPU."""

import contextlib
import threading
import uuid
from types import SimpleNamespace

import httpx
import pytest
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError

from flows.orchestration import queue_slot, requested_stops
from headway.errors import Cancelled

REQUEST = httpx.Request("POST", "http://127.0.0.1/api/v2/concurrency_limits/increment-with-lease")


def _failed(cause):
    """What Prefect raises where the server did not give a slot."""
    error = ConcurrencySlotAcquisitionError("Unable to acquire concurrency slots")
    error.__cause__ = cause
    return error


def _status(code):
    return httpx.HTTPStatusError(str(code), request=REQUEST, response=httpx.Response(code, request=REQUEST))


@pytest.fixture
def slots(monkeypatch):
    """slots(*answers) -> the names that were asked for; each answer is an error, or None for a slot."""

    def answered(*answers):
        left, asked = iter(answers), []

        @contextlib.contextmanager
        def concurrency(name, **options):
            asked.append(name)
            if error := next(left):
                raise error
            yield

        monkeypatch.setattr(queue_slot, "concurrency", concurrency)
        monkeypatch.setattr(queue_slot, "_slots", lambda name: 1)
        monkeypatch.setattr(queue_slot, "_show", lambda state: None)
        monkeypatch.setattr(queue_slot, "flow_run", SimpleNamespace(id=str(uuid.uuid4())))
        monkeypatch.setattr(requested_stops, "SECONDS", 0.01)
        return asked

    return answered


def _report():
    said = []
    return SimpleNamespace(stop=threading.Event(), check=lambda: None, note=said.append, said=said)


def test_a_slot_is_taken_once_a_server_that_was_away_is_back(slots):
    asked, report = (
        slots(_failed(httpx.ConnectError("refused")), _failed(_status(503)), TimeoutError(), None),
        _report(),
    )
    with queue_slot.queue_slot("gpu", report):
        assert asked == ["headway-gpu"] * 4
    said = report.said
    assert said[0] == "waiting for a slot of headway-gpu: 1 slot, all taken" and said[1].startswith("got a slot")


def test_what_the_server_refuses_is_not_asked_again(slots):
    asked = slots(_failed(_status(422)))
    with pytest.raises(httpx.HTTPStatusError, match="422"), queue_slot.queue_slot("gpu", _report()):
        pass
    assert len(asked) == 1


def test_a_run_that_is_stopped_does_not_wait_for_a_server_that_is_away(slots):
    slots(_failed(httpx.ConnectError("refused")))
    report = _report()
    report.stop.set()
    with pytest.raises(Cancelled), queue_slot.queue_slot("gpu", report):
        pass
