"""Machines whose clocks are an hour off, and a machine that sleeps past its schedules, on a real server with real workers."""

import datetime
import os
import signal
import time

import pytest

from flows.execution.history import runs_of
from headway.storage.store import Store
from tests.chaos.host import FINAL, until
from tests.chaos.machine import Machine, clock_library
from tests.chaos.training import Training

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def machines(host_once, tmp_path_factory):
    """Two more machines: one whose clock is an hour behind, and one whose clock is an hour ahead."""
    library = clock_library(tmp_path_factory.mktemp("machines"))
    with Machine(host_once, library, "behind", -1) as behind, Machine(host_once, library, "ahead", 1) as ahead:
        yield behind, ahead


def test_of_workers_that_take_the_same_span_one_does_the_work_whatever_their_clocks_say(host, retrained, machines, row):
    champion, month = retrained.champion(), retrained.land()
    steps, behind, ahead = retrained.steps_done(), *machines
    deployments = ["retrain/retrained", *(machine.lend("retrained") for machine in machines)]

    def refused(others, holder):
        """These runs all end because of the one that holds the pipeline's lock; in seconds."""
        began = time.monotonic()
        runs = [host.start(deployment) for deployment in others]
        for run in runs:
            ended = host.ended(run)
            message = ended["state"]["message"] or ""
            assert ended["state"]["type"] == "FAILED" and "held by process" in message and holder in message, ended[
                "state"
            ]
        return time.monotonic() - began

    here = Training(host, retrained)
    retrained.slow(2.0)  # so that it outlasts those that are refused
    seconds = refused(deployments[1:], os.uname().nodename)
    os.kill(here.engine, signal.SIGTERM)
    host.ended(here.run)
    row(
        "two more workers take the same span, with clocks an hour behind and ahead", "Failed: held by ...", seconds, "-"
    )

    # now the one whose lease would have ended an hour ago, by the others' clocks
    retrained.slow()
    before = retrained.checkpoint()
    run = host.start(deployments[1])
    until(lambda: retrained.checkpoint() > before, 180, lambda: (host.state(run), host.logs(run)))
    retrained.slow(2.0)
    seconds = refused([deployments[0], deployments[2]], behind.name)
    retrained.fast()
    last = host.start(deployments[2], wait=120)
    until(lambda: host.state(run) in FINAL, 180)
    ended = host.flow_run(run)
    assert ended["name"] == f"retrained 2024-01 to {month}: promoted {champion + 1}", ended["state"]
    until(lambda: host.state(last) in FINAL, 120, lambda: host.logs(last))
    assert "is the champion already" in host.flow_run(last)["state"]["message"], "who waits finds the work done"
    retrained.check(host)
    assert retrained.promotions()[-2:] == [champion, champion + 1]
    states = [record["state"] for record in runs_of(Store(retrained.store))]
    assert states[:2] == ["already champion", "promoted"], (
        "runs are named by the store's clock: the last one is the newest"
    )
    assert retrained.steps_done() > steps
    assert "60 min behind the server's" in behind.said() and "60 min ahead of the server's" in ahead.said()
    row(
        "the holder's clock is an hour behind, and others take the same span", "Failed: held by ...", seconds, "nothing"
    )


def test_a_machine_that_sleeps_past_three_schedules_does_the_work_once(host, retrained, row):
    retrained.fast()
    month, champion = retrained.land(), retrained.champion()
    deployment = host.ask("/deployments/name/retrain/retrained")["id"]
    every, slept = 15, 50
    ticks = {"interval": every, "anchor_date": datetime.datetime.now(datetime.UTC).isoformat(), "timezone": "UTC"}
    (schedule,) = host.ask(f"/deployments/{deployment}/schedules", [{"active": True, "schedule": ticks}])
    daemons = [host.daemon(name) for name in ("worker", "watch", "server")]
    try:
        until(lambda: [run for run in host.flow_runs("retrained") if run["state"]["type"] == "SCHEDULED"], 60)
        pids = [pid for daemon in daemons for pid in daemon._members()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        asleep = datetime.datetime.now(datetime.UTC)
        time.sleep(slept)
        woken = datetime.datetime.now(datetime.UTC)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        began = time.monotonic()

        def missed():
            """The runs whose time came while the machine slept."""
            begins = ((run["expected_start_time"] or "", run) for run in host.flow_runs("retrained"))
            return [run for begin, run in begins if asleep.isoformat() < begin < woken.isoformat()]

        def begun():
            states = [run["state"]["type"] for run in missed()]
            return len(states) >= 3 and "SCHEDULED" not in states and "PENDING" not in states and states

        until(begun, 120, lambda: [(run["name"], run["state"]) for run in missed()])
    finally:
        host.ask(f"/deployments/{deployment}/schedules/{schedule['id']}", method="DELETE")
    until(lambda: all(run["state"]["type"] in FINAL for run in missed()), 120)
    seconds = time.monotonic() - began
    runs = missed()
    (worked,) = (run for run in runs if run["state"]["type"] == "COMPLETED")
    assert worked["name"].startswith(f"retrained 2024-01 to {month}: "), worked["name"]
    others = [run["state"] for run in runs if run is not worked]
    assert len(others) >= 2 and all(s["type"] == "CANCELLED" and "concurrency limit" in s["message"] for s in others)
    until(lambda: all(run["state"]["type"] in FINAL for run in host.flow_runs("retrained")), 120)
    retrained.check(host)
    assert retrained.champion() in (champion, champion + 1) and len(set(retrained.promotions())) == len(
        retrained.promotions()
    )
    row(f"the machine sleeps past {len(runs)} schedules", "one Completed, the others Cancelled", seconds, "nothing")
