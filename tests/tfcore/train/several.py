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

import tfcore.train.callbacks
import tfcore.train.trainer
from headway.config import Frozen
from headway.errors import Cancelled
from headway.monitor import Monitor
from headway.process import mark_own_process
from tfcore.train import checkpoints
from tfcore.train.request import TrainRequest
from tfcore.train.stage import train


class Act(Frozen):
    """At which step to do what: of the chief a stop, of any worker its end."""

    what: Literal["stop", "kill"]
    at: int = 0
    """The first call that reaches this step; or the file of a checkpoints, counted from 0, before which to do it."""
    inside: bool = False
    """In the middle of the writing of a checkpoints."""
    worker: int = 0


class Job(Frozen):
    name: str
    request: TrainRequest
    act: Act | None = None
    calls: int = 8
    """The most steps in a call."""


class Jobs(Frozen):
    jobs: tuple[Job, ...]
    worker: int = 0
    replicas: int | None = None
    """Logical CPU devices; None: the CPU as it is."""


class Acting(Monitor):
    """Acts once."""

    def __init__(self, act: Act | None):
        super().__init__()
        self.act, self.synced = act, 0

    def log(self, line):
        print(line, flush=True)

    def progress(self, done, total, unit, **facts):
        if self.act and not self.act.inside and done >= self.act.at:
            self.do(self.act)

    def do(self, act: Act):
        self.act = None
        if act.what == "stop":
            self.stop.set()
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
        asked, tfcore.train.trainer.STEPS_PER_CALL = job.request, job.calls
        acting = Acting(job.act if job.act and job.act.worker == jobs.worker else None)
        with contextlib.suppress(Cancelled), acting.heeded():
            result = train(asked, out / job.name, acting)
            (out / f"{job.name}-{jobs.worker}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    mark_own_process()
    tfcore.train.callbacks.PROGRESS_SECONDS = 0.0  # each call is heard of
    run(Jobs.model_validate_json(sys.stdin.read()), Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # without taking TensorFlow apart
