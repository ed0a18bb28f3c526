"""Several devices and several processes: the same losses as one device, one clear error, and an exact resume.

Each training here has processes of its own, which import TensorFlow first.
"""

import json
import os
import signal
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from headway.errors import Cancelled, HeadwayError
from headway.monitor import Monitor
from headway.schema import Column
from tfcore.models_config import ModelConfig
from tfcore.testing import write_examples
from tfcore.train import TrainingConfig, TrainRequest, train

pytestmark = pytest.mark.slow
ROWS, STEPS = 5000, 200
COLUMNS = (
    Column(name="delay", type="float32", nullable=True),
    Column(name="carrier", type="bytes", nullable=False, encoding="dictionary"),
    Column(name="importance", type="float32", nullable=False, role="weight"),
    Column(name="label", type="int64", nullable=False, role="label"),
)
TWO = {"strategy": "multi_worker", "workers": 2}


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    rng = np.random.default_rng(1)
    delay, carrier = rng.standard_normal(ROWS).astype(np.float32), rng.integers(0, 5, ROWS)
    rows = pa.table(
        {
            "delay": pa.array(delay, mask=rng.random(ROWS) < 0.1),
            "carrier": pa.array([b"AA", b"BB", b"CC", b"DD", b"EE"]).take(pa.array(carrier)),
            "importance": pa.array(rng.uniform(0.5, 2, ROWS).astype(np.float32)),
            "label": pa.array((delay + 0.5 * carrier + 0.3 * rng.standard_normal(ROWS) > 1).astype(np.int64)),
        }
    )
    return write_examples(tmp_path_factory.mktemp("examples"), {"train": rows}, COLUMNS, rows_per_record=256, shards=5)


def request(examples, **training):
    training = {"batch_size": 32, "steps": STEPS, "steps_per_call": 8, "jit": "off", "learning_rate": 0.01} | training
    return TrainRequest(
        examples=(examples.part("train"),),
        transform=examples.fit(task="binary"),
        model=ModelConfig(hidden=(16, 8), embedding=3, dropout=0.1),
        training=TrainingConfig(**training),
        seed=3,
    )


class Lines(Monitor):
    """Keeps what it is told; may act when a step is reached."""

    def __init__(self, at=None, act=lambda: None):
        super().__init__()
        self.lines, self.at, self.act, self.reached = [], at, act, 0

    def log(self, line):
        self.lines.append(line)

    def progress(self, done, total, unit, **facts):
        self.reached = done
        if self.at is not None and done >= self.at:
            self.at = None
            self.act()


def losses(out):
    """(losses of training, losses on the carve), point by point."""
    history = json.loads((out / "history.json").read_text())["history"]
    return [np.asarray([p[name] for p in history if name in p]) for name in ("loss", "carve_loss")]


def weights(out):
    reader = tf.train.load_checkpoint(str(out / "weights"))
    names = sorted(n for n in reader.get_variable_to_shape_map() if n.startswith("model/"))
    return {name: reader.get_tensor(name) for name in names}


def same(one, other):
    assert list(one) == list(other)
    for name, value in one.items():
        assert value.tobytes() == other[name].tobytes(), name


def workers():
    """The processes that this one has started for a training, by the worker they are."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            environment = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for entry in environment if parent == os.getpid() else ():
            if entry.startswith(b"TF_CONFIG="):
                found[json.loads(entry.partition(b"=")[2])["task"]["index"]] = int(process.name)
    return found


@pytest.mark.parametrize(
    ("strategy", "facts"),
    [
        ({"strategy": "mirrored", "replicas": 2}, ("mirrored", 2, 1)),
        (TWO, ("multi_worker", 2, 2)),
        (TWO | {"jit": "on"}, ("multi_worker", 2, 2)),
    ],
)
def test_the_losses_of_200_steps_are_those_of_one_device(examples, tmp_path, strategy, facts):
    # a point of the history for every step, dropout on, weights of rows, clipping, and a carve
    options = {"steps_per_call": 1, "clip_norm": 0.5, "early_stopping": {"every_steps": 50, "carve": 0.2}}
    options["knobs"] = {"positive_weight": 2.0, "label_smoothing": 0.1}
    one = train(request(examples, **options), tmp_path / "one", Monitor())
    several = train(request(examples, **options | strategy), tmp_path / "several", Monitor())
    for mine, theirs in zip(losses(tmp_path / "several"), losses(tmp_path / "one"), strict=True):
        assert len(mine) == len(theirs) and len(mine) in (STEPS, 4)
        np.testing.assert_allclose(mine, theirs, atol=1e-5, rtol=0)
    theirs = weights(tmp_path / "one")
    for name, value in weights(tmp_path / "several").items():
        np.testing.assert_allclose(value, theirs[name], atol=1e-4)
    assert (several["strategy"], several["replicas"], several["workers"]) == facts
    assert (one["strategy"], one["replicas"], one["workers"]) == ("cpu", 1, 1)
    assert (several["steps"], several["rows"], several["traces"]) == (STEPS, one["rows"], 1)
    assert several["jit"] == ("jit" if strategy.get("jit") == "on" else "graph")


@pytest.mark.parametrize("killed", [0, 1])
def test_killing_one_worker_ends_all_with_one_error_and_the_training_resumes_to_the_same_bits(
    examples, tmp_path, killed
):
    options = {"steps": 400, "checkpoint_every_steps": 20} | TWO
    train(request(examples, **options), tmp_path / "whole", Monitor())
    asked = request(examples, **options).model_copy(update={"checkpoints": tmp_path / "checkpoints"})
    at = []

    def kill():
        at.append((time.monotonic(), workers()))
        os.kill(at[0][1][killed], signal.SIGKILL)

    monitor = Lines(at=90, act=kill)
    with pytest.raises(HeadwayError) as failed:
        train(asked, tmp_path / "killed", monitor)
    began, pids = at[0]
    assert time.monotonic() - began < 30
    assert set(pids) == {0, 1}
    assert workers() == {}, "a worker outlived the training"
    assert f"worker {killed} of 2 (pid {pids[killed]}) was ended by SIGKILL; the others were stopped" in str(
        failed.value
    )
    assert "goes on from its checkpoint of step" in failed.value.fix
    assert not (tmp_path / "killed" / "weights.index").exists()
    monitor = Lines()
    result = train(asked, tmp_path / "resumed", monitor)
    assert 20 <= result["resumed_from"] < 400
    same(weights(tmp_path / "resumed"), weights(tmp_path / "whole"))


def test_a_stop_is_agreed_on_and_a_mirrored_training_resumes_to_the_same_bits(examples, tmp_path):
    for name, strategy in (("mirrored", {"strategy": "mirrored", "replicas": 2}), ("workers", TWO)):
        folder = tmp_path / name
        asked = request(examples, **strategy).model_copy(update={"checkpoints": folder / "checkpoints"})
        monitor = Lines()
        monitor.at, monitor.act = 60, monitor.stop.set
        with pytest.raises(Cancelled):
            train(asked, folder / "stopped", monitor)
        result = train(asked, folder / "resumed", Monitor())
        assert 60 <= result["resumed_from"] < STEPS
        train(request(examples, **strategy), folder / "whole", Monitor())
        same(weights(folder / "resumed"), weights(folder / "whole"))


def test_a_knob_turned_by_hand_reaches_every_worker(examples, tmp_path):
    asked = request(examples, **TWO).model_copy(update={"control": tmp_path / "knobs.json"})
    turn = lambda: asked.control.write_text('{"learning_rate": 0.002}')  # noqa: E731
    result = train(asked, tmp_path / "turned", Lines(at=40, act=turn))
    (change,) = result["knob_changes"]
    parts = [{"name": "constant", "initial": 0.01}, {"name": "constant", "initial": 0.002}]
    rate = {"name": "piecewise", "boundaries": [change["step"]], "values": [part["initial"] for part in parts]}
    train(request(examples, **TWO | {"learning_rate": rate}), tmp_path / "planned", Monitor())
    same(weights(tmp_path / "turned"), weights(tmp_path / "planned"))


def test_a_mistake_in_one_worker_is_told_as_what_it_is(examples, tmp_path):
    folder = tmp_path / "copy"
    folder.mkdir()
    for file in examples.folder.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    shard = sorted(folder.glob("train-*"))[1]
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    asked = request(examples, **TWO)
    asked = asked.model_copy(update={"examples": (asked.examples[0].model_copy(update={"path": folder}),)})
    with pytest.raises(HeadwayError, match=shard.name):
        train(asked, tmp_path / "out", Monitor())


def test_a_cluster_s_own_tf_config_is_used(examples, tmp_path, monkeypatch):
    from tfcore.train.cluster import _free_ports

    addresses = [f"127.0.0.1:{port}" for port in _free_ports(2)]
    asked = request(examples, strategy="multi_worker")
    results = {}

    def one(index):
        results[index] = train(asked, tmp_path / str(index), Monitor())

    threads = []
    for index in (0, 1):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(task))
        threads.append(threading.Thread(target=one, args=(index,)))
        threads[-1].start()
        while index not in workers():
            time.sleep(0.05)
    for thread in threads:
        thread.join(200)
    assert results[0]["workers"] == 2
    assert results[1] == {"steps": STEPS, "worker": 1}
    assert not (tmp_path / "1").exists(), "only the chief writes"
    monkeypatch.delenv("TF_CONFIG")
    train(request(examples, **TWO, threads=results[0]["threads"]), tmp_path / "local", Monitor())
    same(weights(tmp_path / "0"), weights(tmp_path / "local"))


def test_a_worker_that_waits_for_others_ends_with_its_parent(examples, tmp_path, monkeypatch):
    from tfcore.train.cluster import _free_ports

    addresses = [f"127.0.0.1:{port}" for port in _free_ports(2)]
    task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(task))
    monitor = Lines()
    failed = []

    def one():
        try:
            train(request(examples, strategy="multi_worker"), tmp_path / "out", monitor)
        except Cancelled as error:
            failed.append(error)

    thread = threading.Thread(target=one)
    thread.start()
    deadline = time.monotonic() + 60
    while not _listens(addresses[1]) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1.0)  # it waits now, in native code
    monitor.stop.set()
    thread.join(10)
    assert len(failed) == 1
    assert workers() == {}


def _listens(address):
    host, _, port = address.partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0
