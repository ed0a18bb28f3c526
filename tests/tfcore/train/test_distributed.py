"""Several devices and several processes: the same losses as one device, one clear error, and an exact resume.

A training here has processes of its own, with logical devices or a TF_CONFIG, which import TensorFlow first: those that can
follow each other in the same processes do (`several.run`), and the killed ones are one training that is killed again and again.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import keras
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from headway.errors import Cancelled, ConfigError, HeadwayError
from headway.monitor import Monitor
from headway.schema.columns import Column
from tests.example_shards import write_examples
from tests.patched import patched
from tests.ports import free_port
from tests.tfcore.train import trainings
from tests.tfcore.train.test_killed import varied_images
from tests.tfcore.train.trainings import MODEL, weight_bits, weights
from tests.waiting import until
from tfcore.runtime.tensorflow_process import Child
from tfcore.train.stage import train
from tfcore.train.step import StepConfig
from tfcore.train.strategy import DistributedLearner, Placement

pytestmark = [pytest.mark.slow, pytest.mark.long]
ROWS, STEPS, FEWER = 5000, 200, 120
COLUMNS = (
    Column(name="delay", type="float32", nullable=True),
    Column(name="carrier", type="bytes", nullable=False, encoding="dictionary"),
    Column(name="importance", type="float32", nullable=False, role="weight"),
    Column(name="label", type="int64", nullable=False, role="label"),
)
TWO, MIRRORED = {"strategy": "multi_worker"}, {"strategy": "mirrored"}
# a point of the history for every step, dropout on, weights of rows, clipping, and a holdout
WATCHED = {
    "clip_norm": 0.5,
    "early_stopping": {"every_steps": 50, "holdout": 0.2},
    "schedules": {"positive_weight": 2.0, "label_smoothing": 0.1},
}
BROKEN = 1
SEVERAL = Path(__file__).with_name("several.py")
SYNCS = 4
"""Files and folders that a checkpoint makes sure of."""
HALF = WATCHED | {"precision": "float16", "steps": 80, "schedules": {"temperature": 0.2}}
DEEPER = (16, 8)
"""Where its loss scale has to fall twice."""
MICRO = WATCHED | {"steps": 100, "micro_batches": 4}
MEMBERS = WATCHED | {"steps": 60}
KILLED = {"steps": FEWER, "checkpoint_every_steps": 20}


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    rng = np.random.default_rng(1)
    delay, carrier = rng.standard_normal(ROWS).astype(np.float32), rng.integers(0, 5, ROWS)
    importance = rng.uniform(0.5, 2, ROWS).astype(np.float32)
    importance[::600] = 1000  # one row alone is too much for float16 at first
    rows = pa.table(
        {
            "delay": pa.array(delay, mask=rng.random(ROWS) < 0.1),
            "carrier": pa.array([b"AA", b"BB", b"CC", b"DD", b"EE"]).take(pa.array(carrier)),
            "importance": pa.array(importance),
            "label": pa.array((delay + 0.5 * carrier + 0.3 * rng.standard_normal(ROWS) > 1).astype(np.int64)),
        }
    )
    return write_examples(tmp_path_factory.mktemp("examples"), {"train": rows}, COLUMNS, rows_per_record=256, shards=5)


def request(examples, hidden=(8,), name="mlp", **training):
    model = MODEL.model_copy(update={"hidden": hidden, "name": name})
    return trainings.request(examples, model=model, **{"steps": STEPS} | training)


def losses(out):
    """(losses of training, losses on the holdout), point by point."""
    history = json.loads((out / "history.json").read_text())["history"]
    return [np.asarray([p[name] for p in history if name in p], float) for name in ("loss", "holdout_loss")]


_a_step_a_call = patched({"tfcore.train.trainer.STEPS_PER_CALL": 1})
"""Of the trainings in this process, all of which are watched."""


@pytest.fixture(scope="module")
def one(examples, tmp_path_factory):
    """The training on one device that others are compared with."""
    out = tmp_path_factory.mktemp("one")
    return out, train(request(examples, **WATCHED), out, Monitor())


@pytest.fixture(scope="module")
def half(examples, tmp_path_factory):
    """The same in float16."""
    out = tmp_path_factory.mktemp("half")
    return out, train(request(examples, hidden=DEEPER, **HALF), out, Monitor())


@pytest.fixture(scope="module")
def members(examples, tmp_path_factory):
    """The training of an ensemble on one device."""
    out = tmp_path_factory.mktemp("members")
    train(request(examples, name="ensemble", **MEMBERS), out, Monitor())
    return out


def clustered(addresses, index):
    """The environment of a worker."""
    task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
    return {"TF_CONFIG": json.dumps(task), "no_proxy": "127.0.0.1", "GRPC_ENABLE_FORK_SUPPORT": "0"}


def run_jobs(jobs, out, strategy):
    """Run them in processes with two devices together; the exit codes. When one has failed, the others are killed."""
    addresses, processes = [f"127.0.0.1:{free_port()}" for _ in range(2)], []
    out.mkdir(exist_ok=True)
    for worker in range(2 if strategy is TWO else 1):
        environment = clustered(addresses, worker) if strategy is TWO else {}
        asked = {"jobs": jobs, "worker": worker, "replicas": None if strategy is TWO else 2}
        with (out / f"log-{worker}").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, SEVERAL, str(out)],
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1", **environment},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        process.stdin.write(json.dumps(asked).encode())
        process.stdin.close()
        processes.append(process)
    while any(process.poll() is None for process in processes) and not any(process.poll() for process in processes):
        time.sleep(0.05)
    for process in processes:
        if process.poll() is None:
            process.kill()
    return [process.wait() for process in processes]


def done(jobs, out, strategy):
    """Run jobs that all end well."""
    codes = run_jobs(jobs, out, strategy)
    assert not any(codes), (codes, [log.read_text()[-3000:] for log in sorted(out.glob("log-*"))])


def job(name, request, **more):
    return {"name": name, "request": request.model_dump(mode="json"), **more}


def stopped_jobs(examples, out, strategy):
    """A training, and the same one stopped on its way."""
    halted = request(examples, **KILLED, **strategy).model_copy(update={"checkpoints": out / "checkpoints"})
    return [
        job("whole", request(examples, **KILLED, **strategy)),
        job("stopped", halted, act={"what": "stop", "at": 50}),
    ]


@pytest.fixture(scope="module")
def mirrored(examples, tmp_path_factory):
    """The folder of many trainings in one process on two devices."""
    out = tmp_path_factory.mktemp("mirrored")
    stopped = stopped_jobs(examples, out, MIRRORED)
    jobs = [
        job("losses", request(examples, **WATCHED, **MIRRORED), calls=1),
        job("half", request(examples, hidden=DEEPER, **HALF, **MIRRORED), calls=1),
        *stopped,
        stopped[-1] | {"name": "resumed", "act": None},
        job("micro", request(examples, **MICRO, **MIRRORED, jit="on"), calls=1),
        job("members", request(examples, name="ensemble", **MEMBERS, **MIRRORED), calls=1),
    ]
    done(jobs, out, MIRRORED)
    return out


@pytest.fixture(scope="module")
def pair_stopped(examples, tmp_path_factory):
    """The folder of a training of two workers, and the checkpoints of the same one: it is stopped."""
    out = tmp_path_factory.mktemp("pair_stopped")
    done(stopped_jobs(examples, out, TWO), out, TWO)
    return out


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A training on images of two workers."""
    asked = varied_images(tmp_path_factory.mktemp("images"))
    return asked.model_copy(update={"training": asked.training.model_copy(update=TWO)})


@pytest.fixture(scope="module")
def pair(examples, tmp_path_factory):
    """The folder of many trainings in one pair of workers."""
    out = tmp_path_factory.mktemp("pair")
    jobs = [
        job("losses", request(examples, **WATCHED, **TWO), calls=1),
        job("half", request(examples, hidden=DEEPER, **HALF, **TWO), calls=1),
        job("compiled", request(examples, **WATCHED, **TWO, jit="on", micro_batches=4), calls=1),
        job("members", request(examples, name="ensemble", **MEMBERS, **TWO), calls=1),
    ]
    done(jobs, out, TWO)
    return out


def broken_copy(examples, folder):
    """The examples with one altered shard."""
    folder.mkdir()
    for file in examples.folder.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    shard = sorted(folder.glob("train-*"))[BROKEN]
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    return replace(examples, folder=folder)


def told(out):
    return json.loads((out / "history.json").read_text())["result"]


def check_like(out, expected, counts):
    """The losses and weights of a training are those of another, of which there are as many."""
    for mine, theirs in zip(losses(out), losses(expected), strict=True):
        assert len(mine) == len(theirs) and len(mine) in counts
        np.testing.assert_allclose(mine, theirs, atol=1e-5, rtol=0)
    theirs = weights(expected)
    for name, value in weights(out).items():
        np.testing.assert_allclose(value, theirs[name], atol=1e-4)


@pytest.mark.parametrize(
    ("name", "job", "facts"),
    [
        ("mirrored", "losses", ("mirrored", 2, 1, "graph")),
        ("pair", "losses", ("multi_worker", 2, 2, "graph")),
        ("pair", "compiled", ("multi_worker", 2, 2, "jit")),
    ],
)
def test_the_losses_of_200_steps_are_those_of_one_device(one, name, job, facts, request):
    expected, alone = one
    out = request.getfixturevalue(name) / job
    check_like(out, expected, (STEPS, 4))
    several = told(out)
    assert (several["strategy"], several["replicas"], several["workers"], several["jit"]) == facts
    assert (alone["strategy"], alone["replicas"], alone["workers"]) == ("cpu", 1, 1)
    assert (several["steps"], several["rows"], several["traces"]) == (STEPS, alone["rows"], 1)


@pytest.mark.parametrize("name", ["mirrored", "pair"])
def test_members_on_replicas_leave_out_the_rows_and_decay_as_on_one_device(members, name, request):
    check_like(request.getfixturevalue(name) / "members", members, range(1, STEPS))


def test_micro_batches_of_replicas_are_a_batch_of_one_device(one, mirrored):
    """Those of workers are in the compiled training above."""
    out = mirrored / "micro"
    for mine, theirs in zip(losses(out), losses(one[0]), strict=True):
        assert len(mine) in (MICRO["steps"], 2)
        np.testing.assert_allclose(mine, theirs[: len(mine)], atol=1e-5, rtol=0)
    several = told(out)
    assert (several["jit"], several["traces"]) == ("jit", 1)


def test_replicas_do_not_cut_a_batch_for_a_model_with_moving_averages():
    placement = Placement("mirrored", strategy=tf.distribute.MirroredStrategy(["CPU:0"]))
    with (
        placement.scope(),
        pytest.raises(ConfigError, match="float variables that are not trained, a layer's moving averages"),
    ):
        DistributedLearner(
            placement=placement,
            model=keras.Sequential([keras.Input((2,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)]),
            head="binary",
            step=tf.Variable(0, dtype=tf.int64, trainable=False),
            specs={
                "numeric": tf.TensorSpec([1, 8, 2]),
                "weight": tf.TensorSpec([1, 8]),
                "label": tf.TensorSpec([1, 8]),
            },
            config=StepConfig(micro_batches=2),
        )


@pytest.mark.parametrize("name", ["mirrored", "pair"])
def test_replicas_in_float16_skip_and_scale_as_one_device_does(half, name, request):
    expected, alone = half
    out = request.getfixturevalue(name) / "half"
    assert alone["loss_scale"]["skipped"] == 2, "no row was too much for float16"
    assert told(out)["loss_scale"] == alone["loss_scale"]
    mine, theirs = losses(out)[0], losses(expected)[0]
    assert len(mine) == HALF["steps"]
    np.testing.assert_array_equal(np.isnan(mine), np.isnan(theirs))  # the steps that were skipped
    # sums of rows in half of the bits: 0.1 apart from float32's, where it does the same
    np.testing.assert_allclose(mine[:50], theirs[:50], atol=5e-3, rtol=0)
    np.testing.assert_allclose(mine, theirs, atol=3e-2, rtol=0)


def test_a_mirrored_training_that_is_stopped_resumes_to_the_same_bits(mirrored):
    out = mirrored
    assert not (out / "stopped").exists()
    assert 50 <= told(out / "resumed")["resumed_from"] < FEWER
    assert weight_bits(out / "resumed") == weight_bits(out / "whole")


def test_a_mistake_is_reported_by_the_worker_that_meets_it_first(examples, tmp_path):
    # fitted before the shard broke: fitting reads the labels where rows have weights
    asked = request(examples, steps=80, **TWO)
    damaged = broken_copy(examples, tmp_path / "broken").part("train")
    run_jobs([job("mistaken", asked.model_copy(update={"examples": (damaged,)}))], tmp_path / "out", TWO)
    said = "".join(log.read_text() for log in (tmp_path / "out").glob("log-*"))
    assert "DataError" in said and f"train-{BROKEN:05}" in said
    assert not (tmp_path / "out" / "mistaken").exists()


def killed(asked, out, strategy, calls=8, **act):
    """Run a training, one of whose processes ends itself by SIGKILL."""
    codes = run_jobs([job("killed", asked, act={"what": "kill"} | act, calls=calls)], out, strategy)
    assert codes[act.get("worker", 0)] == -signal.SIGKILL
    assert not (out / "killed" / "weights.index").exists()


def resumed(asked, out, strategy, calls=8):
    """Run a training to its end; the chief's result."""
    done([job("resumed", asked, calls=calls)], out, strategy)
    return json.loads((out / "resumed-0.json").read_text())


@pytest.mark.chaos
def test_workers_that_are_stopped_and_killed_again_and_again_end_at_the_same_bits(examples, pair_stopped, tmp_path):
    asked = request(examples, **KILLED, **TWO).model_copy(update={"checkpoints": tmp_path / "checkpoints"})
    # the stop of one that went so far was agreed on
    assert not (pair_stopped / "stopped").exists()
    shutil.copytree(pair_stopped / "checkpoints", asked.checkpoints)
    stop = max(int(path.name) for path in asked.checkpoints.iterdir())
    assert 50 <= stop < 60
    # the chief, in the middle of writing the next
    killed(asked, tmp_path, TWO, at=SYNCS - 2, inside=True)
    assert list(asked.checkpoints.glob(".staged-*"))
    # the other one, between two
    killed(asked, tmp_path, TWO, at=90, worker=1)
    result = resumed(asked, tmp_path, TWO)
    assert (result["workers"], result["resumed_from"]) == (2, 80)
    assert json.loads((tmp_path / "resumed-1.json").read_text()) == {"steps": FEWER, "worker": 1}
    assert weight_bits(tmp_path / "resumed") == weight_bits(pair_stopped / "whole")
    assert not list(asked.checkpoints.glob(".*"))


@pytest.mark.chaos
def test_workers_on_images_that_are_killed_again_and_again_end_at_the_same_bits(images, tmp_path):
    done([job("images", images, calls=4)], tmp_path, TWO)
    asked = images.model_copy(update={"checkpoints": tmp_path / "checkpoints"})
    # the chief, in the middle of writing the third checkpoint
    killed(asked, tmp_path, TWO, calls=4, at=2 * SYNCS + 2, inside=True)
    assert list(asked.checkpoints.glob(".staged-*"))
    # the other one, between two
    killed(asked, tmp_path, TWO, calls=4, at=43, worker=1)
    assert resumed(asked, tmp_path, TWO, calls=4)["resumed_from"] == 40
    assert weight_bits(tmp_path / "resumed") == weight_bits(tmp_path / "images")
    histories = [
        json.loads((tmp_path / name / "history.json").read_text())["history"] for name in ("images", "resumed")
    ]
    assert histories[0] == histories[1]


@pytest.mark.chaos
def test_a_mirrored_training_that_is_killed_again_and_again_ends_at_the_same_bits(examples, mirrored, tmp_path):
    asked = request(examples, **KILLED, **MIRRORED).model_copy(update={"checkpoints": tmp_path / "again"})
    # in the middle of writing the first checkpoint
    killed(asked, tmp_path, MIRRORED, at=1, inside=True)
    assert [path.name[:8] for path in asked.checkpoints.iterdir()] == [".staged-"]
    # between two
    killed(asked, tmp_path, MIRRORED, at=50)
    assert resumed(asked, tmp_path, MIRRORED)["resumed_from"] == 40
    assert weight_bits(tmp_path / "resumed") == weight_bits(mirrored / "whole")
    assert not list(asked.checkpoints.glob(".*"))


@pytest.fixture
def waiting(examples, tmp_path):
    """(a TensorFlow process, the event that stops its call, the errors of the call): a worker that waits for the others."""
    addresses, monitor, failed = [f"127.0.0.1:{free_port()}" for _ in range(2)], Monitor(), []
    child = Child(environment=clustered(addresses, 1))

    def call():
        try:
            child.call("tfcore.train.stage:train", request(examples, **TWO), tmp_path / "out", monitor)
        except HeadwayError as error:
            failed.append(error)

    with child:
        thread = threading.Thread(target=call)
        thread.start()
        until(lambda: _listens(addresses[1]), 60)
        time.sleep(1.0)  # it waits now, in native code
        yield child, monitor.stop, thread, failed
        thread.join(10)


def test_a_worker_that_waits_for_others_is_stopped_on_request(waiting):
    child, stop, thread, failed = waiting
    stop.set()
    thread.join(10)
    assert isinstance(failed[0], Cancelled) and not child.alive()


def test_a_worker_that_waits_for_others_ends_with_its_parent(waiting):
    child, _, thread, failed = waiting
    child.let_go()  # its pipe closes, as when its parent is killed
    thread.join(10)
    assert "was ended by SIGIO" in str(failed[0]) and not child.alive()


def _listens(address):
    host, _, port = address.partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0
