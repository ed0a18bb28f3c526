"""Cancelling a job by Flink's REST interface, at a server that answers as a busy Flink does."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from beam_jobs.runners import flink_rest
from tests.ports import free_port


@pytest.fixture
def busy(monkeypatch):
    """(address, asked) of a Flink whose first answers come after the request has given up."""
    asked, over = [], threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(f"{self.command} {self.path}")
            if asked.count(asked[-1]) == 1:
                over.wait(30)
                return
            body = json.dumps({"jobs": [{"jid": "a1", "name": "ours", "state": "RUNNING"}]}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        do_PATCH = do_GET

    monkeypatch.setattr(flink_rest, "_ANSWER_SECONDS", 0.3)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"127.0.0.1:{server.server_port}", asked
        over.set()
        server.shutdown()


def test_a_flink_that_answers_late_is_asked_again(busy):
    address, asked = busy
    assert flink_rest.cancel(address, "ours")
    assert asked.count("PATCH /jobs/a1?mode=cancel") == 2


def test_a_flink_that_never_answers_in_time_is_an_error_after_the_limit(busy, monkeypatch):
    monkeypatch.setattr(flink_rest, "_SECONDS", 0.0)
    with pytest.raises(TimeoutError):
        flink_rest.cancel(busy[0], "ours")


def test_a_flink_that_is_gone_is_an_error_at_once():
    began = time.monotonic()
    with pytest.raises(OSError, match="refused"):
        flink_rest.cancel(f"127.0.0.1:{free_port()}", "ours")
    assert time.monotonic() - began < flink_rest._SECONDS / 2
