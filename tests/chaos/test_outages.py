"""The server and its database go away while a run goes on, on a real server on PostgreSQL.

One run sees all three outages; the last of them is there when it ends.
"""

import time

import pytest

from tests.chaos.training import Training
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_run_outlives_outages_of_the_server_and_of_its_database(host, retrained, row):
    pipeline = retrained
    champion = pipeline.champion()
    month = pipeline.land()
    training = Training(host, pipeline)
    pipeline.slow(2.0)  # so that it outlasts the first two outages, however long the server takes to come back

    def goes_on(fault, began):
        """The server says that the run goes on, and its process does."""
        until(lambda: host.state(training.run) == "RUNNING", about=lambda: host.flow_run(training.run)["state"])
        assert host.engine(training.run) == training.engine
        row(fault, host.flow_run(training.run), time.monotonic() - began, "nothing")

    host.kill("server")
    time.sleep(5)
    began = time.monotonic()
    host.up()
    goes_on("the server is away for 5 s (kill -9)", began)

    host.kill_database()
    until(lambda: host.state(training.run) == "", 10)
    time.sleep(5)
    began = time.monotonic()
    host.database.start()
    goes_on("PostgreSQL is away for 5 s (kill -9)", began)

    host.kill("server")
    gone = time.monotonic()
    pipeline.fast()
    until(lambda: pipeline.champion() != champion, 240)  # it needs no server to promote
    time.sleep(max(0.0, gone + 60 - time.monotonic()))
    assert host.engine(training.run) == training.engine, "it waits for the server, to say how it ended"
    began = time.monotonic()
    host.up()
    ended = host.ended(training.run)
    assert ended["name"] == f"retrained 2024-01 to {month}: promoted {champion + 1}", ended
    row("the server is away for 60 s (kill -9)", ended, time.monotonic() - began, "nothing")

    assert host.heartbeats(training.run), "what the automation that looks for lost runs goes by"

    again = host.ended(host.start("retrain/retrained"), 180)
    assert "is the champion already" in again["state"]["message"], again["state"]
    assert all(stage["cached"] for stage in pipeline.runs()[-1]["stages"])
    pipeline.check(host)
