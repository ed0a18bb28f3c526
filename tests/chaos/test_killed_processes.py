"""SIGKILL and SIGTERM to the processes of a flow run, on a real server with a real worker."""

import os
import signal
import time

import pytest

from tests.chaos.host import until
from tests.chaos.tiny_pipeline import CHECKPOINT_EVERY, STEPS, dead

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(600)]


def in_training(host, pipeline):
    """A flow run whose training is slow and has a checkpoint: its id, its process, its TensorFlow process."""
    pipeline.slow()
    run = host.start(f"retrain/{pipeline.name}")
    until(pipeline.training, 180, lambda: (host.state(run), host.logs(run)))
    engine = host.engine(run)
    return run, engine, pipeline.training_process(engine)


def finish(host, pipeline):
    """The next run at its own speed; what it did again, in words."""
    before = pipeline.steps_done()
    pipeline.fast()
    ended = host.ended(host.start(f"retrain/{pipeline.name}"), 180)
    assert ended["state"]["type"] == "COMPLETED" and ended["name"].endswith("promoted 1"), ended["state"]
    pipeline.check(host)
    assert pipeline.promotions() == [1]
    repeated = pipeline.steps_done() - STEPS
    assert 0 <= repeated <= 2 * CHECKPOINT_EVERY, f"{repeated} steps were computed twice"
    assert pipeline.steps_done() > before
    return f"{repeated} of {STEPS} training steps"


def test_a_training_process_that_is_killed(host, deployed, row):
    pipeline = deployed("child-killed")
    run, engine, child = in_training(host, pipeline)
    began = time.monotonic()
    os.kill(child, signal.SIGKILL)
    ended = host.ended(run)
    seconds = time.monotonic() - began
    assert ended["state"]["type"] == "FAILED" and "ended by SIGKILL" in ended["state"]["message"]
    dead([engine, child])
    row("kill -9 of the TensorFlow process", "Failed", seconds, finish(host, pipeline))
