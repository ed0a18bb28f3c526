"""What the tests have done in the processes of a training; found there by PYTHONPATH. Each process imports TensorFlow,
which takes longer than most trainings here: `run` does many in one, and `member` is one that is ended at a set place."""

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Literal

import tfcore.train.callbacks.history
from headway.config import Frozen
from headway.errors import Cancelled
from headway.monitor import Monitor
from tfcore.distribute.placement import Choice, place
from tfcore.distribute.process_group import ending_with_parent
from tfcore.train import checkpoints, launch
from tfcore.train import member as group_member
from tfcore.train.request import TrainRequest
from tfcore.train.stage import train_placed

tfcore.train.callbacks.history.PROGRESS_SECONDS = 0.0  # each call is heard of


class Act(Frozen):
    """At which step to do what: of the chief a stop or a turn of a knob, of any worker a signal to itself."""

    what: Literal["stop", "turn", "signal"]
    at: int = 0
    """The first call that reaches this step; or the file of a checkpoints, counted from 0, before which to do it."""
    inside: bool = False
    """In the middle of the writing of a checkpoints."""
    worker: int = 0
    signal: str = "SIGKILL"


class Job(Frozen):
    name: str
    request: TrainRequest
    act: Act | None = None
    planned: str | None = None
    """The job whose turn of the learning rate this one has in its schedule."""


class Jobs(Frozen):
    jobs: tuple[Job, ...]
    name: str
    worker: int = 0
    replicas: int
    workers: int


class Acting(Monitor):
    """Passes on what it is told, and acts once."""

    def __init__(self, inner: Monitor, act: Act | None, control: Path | None = None):
        super().__init__(inner.stop if act is None or act.what != "stop" else None)
        self.inner, self.act, self.control, self.synced = inner, act, control, 0

    def log(self, line):
        self.inner.log(line)

    def progress(self, done, total, unit, **facts):
        self.inner.progress(done, total, unit, **facts)
        if self.act and not self.act.inside and done >= self.act.at:
            self.do(self.act)

    def alive(self):
        self.inner.alive()

    def do(self, act: Act):
        self.act = None
        if act.what == "stop":
            self.stop.set()
        elif act.what == "turn":
            self.control.write_text('{"learning_rate": 0.002}')
        else:
            os.kill(os.getpid(), signal.Signals[act.signal])

    @contextlib.contextmanager
    def heeded(self):
        """Inside, it acts in the middle of the writing of a checkpoints too."""
        whole = checkpoints.sync_path

        def sync(path):
            if self.act and self.act.inside and self.synced == self.act.at:
                self.do(self.act)
            self.synced += 1
            return whole(path)

        checkpoints.sync_path = sync
        try:
            yield
        finally:
            checkpoints.sync_path = whole


def run(request: Jobs, out: Path, monitor: Monitor):
    """All the jobs on one placement, each into the folder of its name; those that are stopped leave none."""
    with ending_with_parent():
        choice = Choice(request.name, replicas=request.replicas, workers=request.workers, logical=request.workers == 1)
        placement = place(choice, worker=request.worker)
    for job in request.jobs:
        asked = job.request
        if job.planned:
            (change,) = json.loads((out / job.planned / "history.json").read_text())["result"]["knob_changes"]
            values = [asked.training.learning_rate.initial, change["value"]]
            rate = {"name": "piecewise", "boundaries": [change["step"]], "values": values}
            training = type(asked.training).model_validate(asked.training.model_dump() | {"learning_rate": rate})
            asked = asked.model_copy(update={"training": training})
        acting = Acting(monitor, job.act, asked.control)
        with contextlib.suppress(Cancelled), acting.heeded():
            train_placed(asked, out / job.name, acting, lambda: placement)


def member(request: launch.MemberRequest, out: Path, monitor: Monitor):
    """`tfcore.train.member`, which does to itself at some step what the environment's ACT says."""
    act = Act.model_validate_json(os.environ["ACT"])
    acting = Acting(monitor, act if act.worker == request.worker else None)
    with acting.heeded():
        return group_member.member(request, out, acting)
