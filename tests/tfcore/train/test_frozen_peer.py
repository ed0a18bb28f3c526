"""A worker of a cluster that freezes: the others end within a stated time, by TensorFlow's own look at its peers.

The cluster is two plain processes with a TF_CONFIG each, as Kubernetes or a person gives it
"""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from headway.schema.columns import Column
from tests.example_shards import write_examples
from tests.ports import free_port
from tests.waiting import until
from tfcore.models.config import ModelConfig
from tfcore.train.config import TrainingConfig
from tfcore.train.request import TrainRequest

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(300)]
FROZEN = {"SIGSTOP to the chief of a cluster (TF_CONFIG)": 0, "SIGSTOP to another worker of a cluster (TF_CONFIG)": 1}
WITHIN_SECONDS = 30.0
"""TensorFlow takes a peer for dead after 10 s without a heartbeat; the rest is for a machine that does other work too."""
MACHINE = """
import sys
from pathlib import Path
import tfcore.train.callbacks
from headway.monitor import Monitor
from tfcore.train.request import TrainRequest
from tfcore.train.stage import train

class Steps(Monitor):
    def progress(self, done, total, unit, **facts):
        print("step", done, flush=True)

if __name__ == "__main__":
    tfcore.train.callbacks.PROGRESS_SECONDS = 0.5
    train(TrainRequest.model_validate_json(Path(sys.argv[1]).read_text()), Path(sys.argv[2]), Steps())
"""


@pytest.fixture
def cluster(tmp_path):
    """The processes of a cluster's two machines, in the middle of a training that does not end by itself."""
    rng = np.random.default_rng(1)
    delay = rng.standard_normal(512).astype(np.float32)
    columns = (
        Column(name="delay", type="float32", nullable=False),
        Column(name="label", type="int64", nullable=False, role="label"),
    )
    rows = pa.table({"delay": delay, "label": (delay > 0).astype(np.int64)})
    examples = write_examples(tmp_path, {"train": rows}, columns, rows_per_record=64, shards=2)
    request = TrainRequest(
        examples=(examples.part("train"),),
        transform=examples.fit(task="binary"),
        model=ModelConfig(name="mlp", hidden=(4,)),
        training=TrainingConfig(strategy="multi_worker", batch_size=32, steps=10_000_000, jit="off"),
    )
    (tmp_path / "request.json").write_text(request.model_dump_json())
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    machines = []
    for number in range(2):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": number}}
        command = [sys.executable, "-c", MACHINE, str(tmp_path / "request.json"), str(tmp_path / f"out{number}")]
        with (tmp_path / f"log{number}").open("wb") as log:
            environment = {**os.environ, "TF_CONFIG": json.dumps(task), "no_proxy": "127.0.0.1"}
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        machines.append(process)

    def trains():
        said = (tmp_path / "log0").read_text()
        assert all(machine.poll() is None for machine in machines), said + (tmp_path / "log1").read_text()
        return said.count("step") > 2

    try:
        until(trains, 180)
        yield machines
    finally:
        for machine in machines:
            machine.kill()
            machine.wait(30)


@pytest.mark.parametrize("fault", FROZEN)
def test_a_peer_that_freezes_ends_the_other_within_half_a_minute(fault, cluster, tmp_path):
    frozen, other = cluster[FROZEN[fault]], cluster[1 - FROZEN[fault]]
    frozen.send_signal(signal.SIGSTOP)
    assert other.wait(WITHIN_SECONDS) > 0, "an error"
    assert frozen.poll() is None and not [*tmp_path.glob("out*/*")]
