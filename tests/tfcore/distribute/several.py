"""One process of trainings on several devices: jobs as JSON on its stdin, and the folder that gets their output.

    TF_CONFIG=... python several.py OUT < jobs.json

It imports TensorFlow, which takes longer than most trainings here: so it does many, and acts on some of them.
"""

import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Literal

import tensorflow as tf

import tfcore.train.callbacks.history
from headway.config import Frozen
from headway.errors import Cancelled
from headway.monitor import Monitor
from headway.process import own
from tfcore.train import checkpoints
from tfcore.train.request import TrainRequest
from tfcore.train.stage import train


class Act(Frozen):
    """At which step to do what: of the chief a stop or a turn of a knob, of any worker its end."""

    what: Literal["stop", "turn", "kill"]
    at: int = 0
    """The first call that reaches this step; or the file of a checkpoints, counted from 0, before which to do it."""
    inside: bool = False
    """In the middle of the writing of a checkpoints."""
    worker: int = 0


class Job(Frozen):
    name: str
    request: TrainRequest
    act: Act | None = None
    planned: str | None = None
    """The job whose turn of the learning rate this one has in its schedule."""


class Jobs(Frozen):
    jobs: tuple[Job, ...]
    worker: int = 0
    replicas: int | None = None
    """Logical CPU devices; None: the CPU as it is."""


class Acting(Monitor):
    """Acts once."""

    def __init__(self, act: Act | None, control: Path | None = None):
        super().__init__()
        self.act, self.control, self.synced = act, control, 0

    def log(self, line):
        print(line, flush=True)

    def progress(self, done, total, unit, **facts):
        if self.act and not self.act.inside and done >= self.act.at:
            self.do(self.act)

    def do(self, act: Act):
        self.act = None
        if act.what == "stop":
            self.stop.set()
        elif act.what == "turn":
            self.control.write_text('{"learning_rate": 0.002}')
        else:
            os.kill(os.getpid(), signal.SIGKILL)

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


def run(jobs: Jobs, out: Path):
    """All the jobs, each into the folder of its name; those that are stopped leave none."""
    if jobs.replicas:
        (cpu,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * jobs.replicas)
    for job in jobs.jobs:
        asked = job.request
        if job.planned:
            (change,) = json.loads((out / job.planned / "history.json").read_text())["result"]["knob_changes"]
            values = [asked.training.learning_rate.initial, change["value"]]
            rate = {"name": "piecewise", "boundaries": [change["step"]], "values": values}
            training = type(asked.training).model_validate(asked.training.model_dump() | {"learning_rate": rate})
            asked = asked.model_copy(update={"training": training})
        acting = Acting(job.act if job.act and job.act.worker == jobs.worker else None, asked.control)
        with contextlib.suppress(Cancelled), acting.heeded():
            result = train(asked, out / job.name, acting)
            (out / f"{job.name}-{jobs.worker}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    own()
    tfcore.train.callbacks.history.PROGRESS_SECONDS = 0.0  # each call is heard of
    run(Jobs.model_validate_json(sys.stdin.read()), Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # without taking TensorFlow apart
