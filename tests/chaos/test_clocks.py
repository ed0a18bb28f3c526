"""Flow runs whose clocks are an hour off, and a machine that sleeps past its schedules, on a real server with real workers."""

import contextlib
import datetime
import os
import signal
import time

import pytest

from flows.records import runs_of
from headway.storage.store import Store
from tests.chaos.host import FINAL
from tests.chaos.machine import Machine, clock_library
from tests.chaos.training import Training, past_checkpoint
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(900)]
EVERY_SECONDS, LOOK_AHEAD_SECONDS = 20, 10
"""Between two schedules; and how long before its time a worker takes a run (PREFECT_WORKER_PREFETCH_SECONDS)."""


@pytest.fixture
def machines(host, tmp_path):
    """Two more machines: one whose clock is an hour behind, and one whose clock is an hour ahead."""
    library = clock_library(tmp_path)
    with Machine(host, library, "behind", -1) as behind, Machine(host, library, "ahead", 1) as ahead:
        yield behind, ahead


def test_of_workers_that_take_the_same_span_one_does_the_work_whatever_their_clocks_say(host, retrained, machines, row):
    champion, month = retrained.champion(), retrained.land()
    steps, behind = retrained.steps_done(), machines[0]
    deployments = ["retrain/retrained", *(machine.lend("retrained") for machine in machines)]

    def refused(fault, others, holder):
        """These runs all end because of the one that holds the pipeline's lock."""
        began = time.monotonic()
        runs = [host.start(deployment, wait=0) for deployment in others]
        for run in runs:
            ended = host.ended(run)
            row(fault, ended, time.monotonic() - began, "nothing")
            assert holder in ended["state"]["message"], ended["state"]

    here = Training(host, retrained)
    retrained.slow(2.0)  # so that it outlasts those that are refused
    refused("two more workers take the same span", deployments[1:], os.uname().nodename)
    os.kill(here.engine, signal.SIGTERM)
    host.ended(here.run)

    # now the one whose lease would have ended an hour ago, by the others' clocks
    retrained.slow()
    before = retrained.checkpoints()
    run = host.start(deployments[1])
    past_checkpoint(host, retrained, before, run)
    retrained.slow(2.0)
    refused("others take the same span", [deployments[0], deployments[2]], behind.name)
    retrained.fast()
    last = host.start(deployments[2], wait=120)
    until(lambda: host.state(run) in FINAL, 180, lambda: host.logs(run))
    ended = host.flow_run(run)
    assert ended["name"] == f"retrained 2024-01 to {month}: promoted {champion + 1}", ended["state"]
    until(lambda: host.state(last) in FINAL, 120, lambda: host.logs(last))
    assert "is the champion already" in host.flow_run(last)["state"]["message"], "who waits finds the work done"
    retrained.check(host)
    assert retrained.promotions()[-2:] == [champion, champion + 1]
    states = [record.state for record in runs_of(Store(retrained.store))]
    assert states[:2] == ["already champion", "promoted"], (
        "runs are named by the store's clock: the last one is the newest"
    )
    assert retrained.steps_done() > steps


def test_a_machine_that_sleeps_past_three_schedules_does_the_work_once(host, retrained, row):
    retrained.fast()
    month, champion = retrained.land(), retrained.champion()
    there = host.ask("/deployments/name/retrain/retrained")
    deployment, daemons = f"/deployments/{there['id']}", [host.daemon(name) for name in ("worker", "server")]

    def now():
        return datetime.datetime.now(datetime.UTC)

    def runs(first, last=None):
        """The schedule's runs from one time to another, in the order of their times."""
        times = {"after_": first.isoformat()} | ({} if last is None else {"before_": last.isoformat()})
        found = host.flow_runs("retrained", expected_start_time=times)
        return sorted(found, key=lambda run: run["expected_start_time"])

    def next_three():
        """The next three times, while no run goes on and the worker does not take one yet."""
        found = runs(began, now() + datetime.timedelta(seconds=5 * EVERY_SECONDS))
        times = [_time(run) for run in found if run["state"]["type"] == "SCHEDULED"]
        idle = all(run["state"]["type"] in {*FINAL, "SCHEDULED"} for run in found)
        ready = idle and len(times) >= 3 and (times[0] - now()).total_seconds() > LOOK_AHEAD_SECONDS + 2
        return ready and times[:3]

    began = now()
    ticks = {"interval": EVERY_SECONDS, "anchor_date": began.isoformat(), "timezone": "UTC"}
    (schedule,) = host.ask(f"{deployment}/schedules", [{"active": True, "schedule": ticks, "slug": "sleep"}])
    # the server makes the runs of a deployment that has just changed within 5 s, those of others once a minute
    host.ask(deployment, {"description": there["description"]}, method="PATCH")
    try:
        first, *_, last = until(next_three, 150, lambda: [(run["name"], run["state"]) for run in runs(began)[:5]])
        pids = [daemon.pid() for daemon in daemons]
        try:
            _signal(pids, signal.SIGSTOP)
            time.sleep((last - now()).total_seconds() + 1)
        finally:
            _signal(pids, signal.SIGCONT)
        woken = time.monotonic()

        def begun():
            """The runs whose time came while the machine slept, once all of them were taken."""
            found = runs(first, last)
            return all(run["state"]["type"] not in ("SCHEDULED", "PENDING") for run in found) and found

        until(begun, about=lambda: [(run["name"], run["state"]) for run in runs(first, last)])
    finally:
        host.ask(f"{deployment}/schedules/{schedule['id']}", method="DELETE")
    until(lambda: all(run["state"]["type"] in FINAL for run in runs(first, last)), about=lambda: runs(first, last))
    seconds = time.monotonic() - woken
    missed = runs(first, last)
    until(lambda: all(run["state"]["type"] in FINAL for run in host.flow_runs("retrained")))
    # a machine that wakes up slowly takes the next one in the same look, and any of them may get the place
    worked = next(run for run in runs(first) if run["state"]["type"] == "COMPLETED")
    assert worked["name"].startswith(f"retrained 2024-01 to {month}: "), worked["name"]
    others = [run["state"] for run in missed if run["id"] != worked["id"]]
    assert len(missed) == 3 and len(others) >= 2
    assert all(s["type"] == "CANCELLED" and "concurrency limit" in s["message"] for s in others), others
    retrained.check(host)
    assert retrained.champion() in (champion, champion + 1) and len(set(retrained.promotions())) == len(
        retrained.promotions()
    )
    ends = [state["type"].title() for state in (worked["state"], others[0])]
    row("the machine sleeps", "one {}, the others {}".format(*ends), seconds, "nothing")


def _time(run):
    return datetime.datetime.fromisoformat(run["expected_start_time"])


def _signal(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, number)
