"""A machine that sleeps past its schedules, on a real server with a real worker."""

import contextlib
import datetime
import os
import signal
import time

import pytest

from tests.prefect_server import FINAL
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(900)]
EVERY_SECONDS, LOOK_AHEAD_SECONDS = 20, 10
"""Between two schedules; and how long before its time a worker takes a run (PREFECT_WORKER_PREFETCH_SECONDS)."""


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
    assert retrained.champion() in (champion, champion + 1)
    assert len(set(retrained.promotions())) == len(retrained.promotions())
    ends = [state["type"].title() for state in (worked["state"], others[0])]
    row("the machine sleeps", "one {}, the others {}".format(*ends), seconds, "nothing")


def _time(run):
    return datetime.datetime.fromisoformat(run["expected_start_time"])


def _signal(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, number)
