"""Fifty consecutive scheduled runs of a small pipeline, a fault in half of them: nobody has to do anything.

The faults and their moments are drawn by a seed. What an init system does (`Restart=always` of infra/systemd) is done here by
`Host.up`: a server, database or worker that was killed is started again. A month of data lands after each run that is
Completed; garbage is collected after every fifth run, as a nightly `headway clean --yes` would.
"""

import collections
import contextlib
import hashlib
import os
import random
import signal
import subprocess
import time

import httpx
import pytest

from tests.chaos import test_killed_processes
from tests.chaos.table import FAULTS, SOAK, TRUE_WITHIN
from tests.waiting import until

RUNS, SEED, EVERY_SECONDS, WINDOW = int(os.environ.get("HEADWAY_SOAK_RUNS", "50")), 14, 15, 3
KEPT_RUNS, KEPT_VERSIONS = 5, 5
SCHEDULE = f'schedule: "0 5 2 1 *"\nwindow: {WINDOW}\n'
HITS = test_killed_processes.HITS | {
    "kill -9 of the worker": ("worker", signal.SIGKILL),
    "kill -9 of the server": ("server", signal.SIGKILL),
    "kill -9 of PostgreSQL": ("database", signal.SIGKILL),
}
EXPECTED = {row.fault: row for row in FAULTS[SOAK]}
TRUTHS = {"CRASHED": {"running"}, "FAILED": {"failed"}, "CANCELLED": {"cancelled"}}
"""What the store's record may say of a run that the server has in this state; Completed: any verdict."""


class Soak:
    def __init__(self, host, pipeline, seed):
        self.host, self.pipeline, self.draw = host, pipeline, random.Random(seed)
        faults = [*HITS] * (RUNS // 2 // len(HITS) + 1)
        self.plan = faults[: RUNS // 2] + [None] * (RUNS - RUNS // 2)
        self.draw.shuffle(self.plan)
        self.seen = set()
        self.ends = []
        """(fault, state, seconds from the fault's end until the state was true) of each run."""
        self.raw = {}

    def active(self):
        """The flow runs of the pipeline that go on; none while the server is away."""
        active = {"type": {"any_": ["PENDING", "RUNNING", "CANCELLING"]}}
        with contextlib.suppress(httpx.HTTPError):
            return [run["id"] for run in self.host.flow_runs(self.pipeline.name, state=active)]
        return []

    def next_run(self):
        """The next flow run of the schedule that begins; those that came while another ran are Cancelled at once."""

        def begun():
            return next((run for run in self.active() if run not in self.seen and self.host.engine(run)), None)

        run = until(begun, 240, lambda: self.host.flow_runs(self.pipeline.name)[-3:])
        self.seen.add(run)
        return run

    def hit(self, run, fault):
        """Do it at a drawn moment; the time of the fault's end, None if the run had ended by then."""
        victims, number = HITS[fault]
        moment = time.monotonic() + self.draw.uniform(0, 12)
        away = self.draw.uniform(1, 10)
        engine = self.host.engine(run)

        def now():
            living = self.host.engine(run) == engine
            return not living or (time.monotonic() > moment and ("child" not in victims or self._child(engine)))

        until(now, 120)
        if self.host.engine(run) != engine:
            return None
        if victims == "database":
            self.host.kill_database()
        elif victims == "server":
            self.host.kill("server")
        else:
            for victim in victims.split():
                pids = {"engine": engine, "worker": self.host.pid("worker"), "child": self._child(engine)}
                try:
                    os.kill(pids[victim], number)
                except (ProcessLookupError, TypeError):  # it has ended by itself in this very moment
                    return None
        ended = time.monotonic()
        if victims in ("database", "server"):
            time.sleep(away)
            self.host.database.start()
            self.host.up()
            ended = time.monotonic()
        return ended

    def _child(self, engine):
        with contextlib.suppress(AssertionError, OSError):
            return self.pipeline.training_process(engine)

    def one(self, fault):
        """One scheduled run; False where the fault came too late for it."""
        run = self.next_run()
        ended = None if fault is None else self.hit(run, fault)
        goes_on = (
            fault is not None
            and HITS[fault][0] in ("worker", "server", "database")
            and HITS[fault][1] != signal.SIGTERM
        )
        if ended is not None and "worker" in HITS[fault][0]:  # Restart=always
            until(lambda: self.host.pid("worker") is None, TRUE_WITHIN)
            self.host.up()
        flow_run = self.host.ended(run, 300 if ended is None or goes_on else TRUE_WITHIN)
        seconds = None if ended is None or goes_on else time.monotonic() - ended
        state = flow_run["state"]["type"]
        self.check(flow_run)
        if state == "COMPLETED":
            self.land()
        else:  # any run may have said that it is Completed right before it was hit
            assert state.title() in EXPECTED[fault if ended is not None else "none"].end.split(" or "), flow_run
        self.ends.append((fault if ended is not None else None, state, seconds))
        return fault is None or ended is not None

    def check(self, flow_run):
        """The server says what the store says; the store is whole, and no file of the source is another or gone."""
        state = flow_run["state"]
        records = self.pipeline.runs()
        if records and state["type"] in TRUTHS:
            assert records[-1]["state"] in {*TRUTHS[state["type"]], "promoted"}, (state, records[-1])
        if state["type"] == "COMPLETED":
            assert records[-1]["state"] not in ("running", "failed", "cancelled"), (state, records[-1])
        assert self.pipeline.problems() == [], state
        assert self.pipeline.doubled() == []
        for name, digest in self.raw.items():
            assert hashlib.sha256((self.pipeline.folder / "data" / name).read_bytes()).hexdigest() == digest

    def land(self):
        name = f"{self.pipeline.land()}.parquet"
        self.raw[name] = hashlib.sha256((self.pipeline.folder / "data" / name).read_bytes()).hexdigest()

    def collect(self):
        """What a nightly job does, and the store's bytes after it; a run that goes on makes it wait."""
        arguments = ("clean", self.pipeline.folder, "--yes", "--keep", KEPT_RUNS, "--keep-versions", KEPT_VERSIONS)
        until(lambda: self.host.headway(*arguments, check=None).returncode == 0, 300)
        return int(subprocess.run(["du", "-sb", self.pipeline.store], capture_output=True, text=True).stdout.split()[0])


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_scheduled_runs_with_a_fault_in_half_of_them_need_nobody(host, deployed):
    pipeline = deployed("soaked", SCHEDULE)
    soak = Soak(host, pipeline, SEED)
    soak.land()
    deployment = host.ask("/deployments/name/retrain/soaked")["id"]
    every = {"schedule": {"interval": EVERY_SECONDS}, "active": True, "slug": "soak"}
    (schedule,) = host.ask(f"/deployments/{deployment}/schedules", [every])
    sizes = []
    plan = collections.deque(soak.plan)
    while plan:
        if not soak.one(plan[0]):
            plan.append(plan.popleft())  # it came too late: another run gets it, and this one counts without
            plan.remove(None) if None in plan else None
        else:
            plan.popleft()
        if len(soak.ends) % 5 == 0 or not plan:
            sizes.append(soak.collect())
        print(len(soak.ends), *soak.ends[-1], pipeline.champion(), sizes[-1:], flush=True)
    host.ask(f"/deployments/{deployment}/schedules/{schedule['id']}", method="DELETE")

    until(lambda: host.healthy() and not soak.active(), 300)
    last = host.ended(host.start("retrain/soaked"), 300)
    assert last["state"]["type"] == "COMPLETED", last["state"]
    soak.check(last)
    pipeline.check(host)
    months = len(soak.raw) + 2
    assert pipeline.runs()[-1]["spans"][-1] == f"{2024 + (months - 1) // 12}-{(months - 1) % 12 + 1:02d}"
    assert len(soak.ends) >= RUNS and sum(fault is not None for fault, _, _ in soak.ends) >= RUNS // 2
    if RUNS >= 50:  # fewer do not fill what is kept
        assert max(sizes[len(sizes) // 2 :]) <= 1.5 * max(sizes[: len(sizes) // 2]), sizes
