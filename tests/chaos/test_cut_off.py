"""A flow run that lives and cannot reach the server, which calls it Crashed and lets the next run of the pipeline begin."""

import contextlib
import os
import signal
import socket
import threading
import time

import pytest

from flows.orchestration.deploy import COMMAND
from headway.storage.process_identity import is_alive
from tests.chaos.tiny_pipeline import dead, environment_of
from tests.chaos.training import past_checkpoint
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(900)]
SILENT_SECONDS = 45
"""The automation's own are 900, which is longer than this test shall take."""


class Link:
    """A way to the server that can be cut: while it is, connections end at once."""

    def __init__(self, port):
        self._port, self.cut, self._open = port, False, []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/api"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                ours, _ = self._listener.accept()
                if self.cut:
                    ours.close()
                    continue
                theirs = socket.create_connection(("127.0.0.1", self._port))
                self._open += [ours, theirs]
                for one, other in ((ours, theirs), (theirs, ours)):
                    threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    @staticmethod
    def _pass_on(one, other):
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def set(self, cut):
        """Cut it, or mend it."""
        self.cut = cut
        while cut and self._open:
            with contextlib.suppress(OSError):
                self._open.pop().shutdown(socket.SHUT_RDWR)

    def close(self):
        self._listener.close()


@pytest.fixture
def link(host, retrained):
    link = Link(host.port)
    yield link
    for pid in _engines(retrained, host, link):
        os.kill(pid, signal.SIGKILL)
    link.close()


def _engines(pipeline, host, link):
    """The flow runs' processes that reach the server by this link."""
    found = []
    for process in pipeline.children(host.pid("worker")):
        with contextlib.suppress(OSError):
            found += [process] if environment_of(process).get("PREFECT_API_URL") == link.url else []
    return found


def test_a_run_that_is_called_crashed_and_lives_and_the_next_one_promote_once_at_most(host, retrained, link, row):
    pipeline, champion = retrained, retrained.champion()
    pipeline.land()
    host.hurry("headway retrained: silent", SILENT_SECONDS)

    def hit(fault, comes_back):
        """A run is cut off in its training until `comes_back()`, and another one begins once the server calls it Crashed."""
        pipeline.slow()
        before, promotions = pipeline.checkpoints(), len(pipeline.promotions())
        run = host.start("retrain/retrained", {"command": f"env PREFECT_API_URL={link.url} {COMMAND}"})
        past_checkpoint(host, pipeline, before, run)
        pipeline.slow(3.0)  # so that it outlasts its heartbeats
        until(lambda: host.heartbeats(run))
        (engine,) = _engines(pipeline, host, link)
        link.set(cut=True)
        began = time.monotonic()
        until(lambda: host.state(run) == "CRASHED", 150, lambda: host.flow_run(run)["state"])
        seconds = time.monotonic() - began
        other = host.ended(host.start("retrain/retrained", wait=10))["state"]
        assert is_alive(engine) and "held by process" in other["message"], other
        comes_back()
        assert is_alive(engine)
        link.set(cut=False)
        dead([engine], 90)  # Prefect's client sends its last logs again after up to half a minute
        promoted = len(pipeline.promotions()) - promotions
        states = [state.title() for state in (host.state(run), other["type"])]
        row(fault, "{}, the other {}: {} promotes".format(*states, ["nobody", "one"][promoted]), seconds)

    hit("a live run is cut off from the server, called Crashed, and comes back", lambda: None)
    assert pipeline.champion() == champion

    def is_done():
        pipeline.fast()
        until(lambda: pipeline.champion() != champion, 180)

    hit("a live run is cut off from the server, and called Crashed, to its end", is_done)
    again = host.ended(host.start("retrain/retrained"), 180)
    assert "is the champion already" in again["state"]["message"], again["state"]
    pipeline.check(host)
    assert "renewed automation 'headway retrained: silent'" in host.headway("deploy", pipeline.folder).stdout
