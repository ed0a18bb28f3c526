"""SIGKILL and SIGTERM to each process of a flow run, on a real server with a real worker.

One training is hit again and again: each run goes on from the checkpoint that the run before it left, and the last one
finishes the work.
"""

import dataclasses
import os
import signal
import time

import pytest

from tests.chaos.tiny_pipeline import CHECKPOINT_EVERY, STEPS, TinyPipeline, dead
from tests.chaos.training import Training

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(900)]


HITS = {
    "kill -9 of the TensorFlow process": ("child", signal.SIGKILL),
    "kill -9 of the flow run's process": ("engine", signal.SIGKILL),
    "kill -9 of the worker and the flow run's process": ("worker engine", signal.SIGKILL),
    "SIGTERM to the flow run's process": ("engine", signal.SIGTERM),
    "SIGTERM to the worker": ("worker", signal.SIGTERM),
}


@dataclasses.dataclass
class Hit:
    """The training that all of these tests hit."""

    pipeline: TinyPipeline
    month: str
    champion: int
    steps: int
    """How many training steps had been computed before."""
    repeats: list[int] = dataclasses.field(default_factory=list)
    """After each hit: the steps that were computed, and that no checkpoint holds."""


@pytest.fixture(scope="module")
def hit(retrained):
    """The pipeline when a month has landed that its champion has not seen."""
    return Hit(retrained, retrained.land(), retrained.champion(), retrained.steps_done())


@pytest.mark.parametrize("fault", HITS)
def test_the_state_is_true_the_store_is_whole_and_the_champion_stays(fault, host, hit, row):
    pipeline, repeats = hit.pipeline, hit.repeats
    victims, number = HITS[fault]
    training = Training(host, pipeline)
    pids = {"child": training.child, "engine": training.engine, "worker": host.pid("worker")}
    began = time.monotonic()
    for victim in victims.split():
        os.kill(pids[victim], number)
    if victims == "worker engine":
        dead([pids["worker"], pids["engine"]])
        host.up()  # as a supervisor does: the next worker reports what died with this one
    ended = host.ended(training.run)
    seconds = time.monotonic() - began
    dead([pids[victim] for victim in pids if victim in victims or victim != "worker"])
    assert pipeline.problems() == [] and pipeline.doubled() == []
    assert pipeline.champion() == hit.champion and pipeline.promotions()[-1] == hit.champion
    repeats.append(training.to_repeat())
    assert 0 <= repeats[-1] <= 2 * CHECKPOINT_EVERY
    if number == signal.SIGTERM:
        assert repeats[-1] == 0, "who is asked to stop writes a checkpoint first"
    row(fault, ended, seconds, training.repeats())


def test_a_run_outlives_its_worker_and_the_next_worker_takes_the_next_run(host, hit, row):
    pipeline = hit.pipeline
    training = Training(host, pipeline)
    began = time.monotonic()
    host.kill("worker")
    meanwhile = host.state(training.run).title()
    assert host.engine(training.run) == training.engine
    seconds = time.monotonic() - began
    pipeline.fast()
    host.up()  # while the run goes on
    ended = host.ended(training.run, 180)
    assert ended["name"] == f"retrained 2024-01 to {hit.month}: promoted {hit.champion + 1}", ended["state"]
    assert pipeline.steps_done() - hit.steps == STEPS + sum(hit.repeats), "each run went on from the last checkpoint"
    runs = len(pipeline.runs())
    again = host.ended(host.start("retrain/retrained"), 180)
    assert again["state"]["message"].startswith(f"Version {hit.champion + 1} is the champion already"), again["state"]
    assert len(pipeline.runs()) == runs + 1 and all(stage["cached"] for stage in pipeline.runs()[-1]["stages"])
    assert pipeline.promotions()[-2:] == [hit.champion, hit.champion + 1]
    pipeline.check(host)
    row("kill -9 of the worker", f"{meanwhile}, then {ended['state']['type'].title()}", seconds, "nothing")
