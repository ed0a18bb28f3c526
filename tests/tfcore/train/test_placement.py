"""Which devices a config comes to, what cannot be had, and which rows a worker trains on."""

import json

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from headway.errors import ConfigError, HeadwayError
from headway.monitor import Monitor
from headway.schema.columns import Column
from tests.example_shards import write_examples
from tests.tfcore.train.trainings import request
from tfcore.models.config import ModelConfig
from tfcore.private_api import op_determinism
from tfcore.runtime.devices import prepare, relaxed_numerics
from tfcore.train.config import TrainingConfig
from tfcore.train.cost import PAIR_FLOPS, Work, work_of
from tfcore.train.request import TrainRequest
from tfcore.train.stage import train
from tfcore.train.strategy import choose_placement, given_cluster, slice_of, workers_of

COLUMNS = (
    Column(name="delay", type="float32", nullable=False),
    Column(name="label", type="int64", nullable=False, role="label"),
)
ROWS = 3000
ADDRESSES = ["a:1", "b:2"]


def asked(**settings):
    return TrainRequest.model_construct(training=TrainingConfig(**{"batch_size": 64} | settings), model=ModelConfig())


@pytest.mark.parametrize(
    ("settings", "gpus", "cpus", "name", "replicas", "logical"),
    [
        ({}, 0, 1, "cpu", 1, False),
        ({}, 0, 2, "cpu", 1, False),
        ({}, 1, 1, "gpu", 1, False),
        ({}, 4, 1, "mirrored", 4, False),
        ({"batch_size": 63}, 2, 1, "gpu", 1, False),
        ({"micro_batches": 2}, 2, 1, "gpu", 1, False),
        ({"strategy": "mirrored", "micro_batches": 2}, 2, 1, "mirrored", 2, False),
        ({"ranking": {}}, 2, 1, "gpu", 1, False),
        ({"strategy": "cpu"}, 2, 1, "cpu", 1, False),
        ({"strategy": "mirrored"}, 0, 2, "mirrored", 2, True),
        ({"strategy": "mirrored"}, 1, 4, "mirrored", 4, True),
        ({"strategy": "mirrored"}, 2, 4, "mirrored", 2, False),
    ],
)
def test_a_strategy_comes_to_devices(settings, gpus, cpus, name, replicas, logical):
    choice = choose_placement(asked(**settings), gpus=gpus, cpus=cpus)
    assert (choice.name, choice.replicas, choice.logical) == (name, replicas, logical)


def test_the_workers_of_a_cluster_share_a_batch():
    choice = choose_placement(asked(strategy="multi_worker"), cluster=(ADDRESSES, 1))
    assert (choice.name, choice.replicas, choice.workers, choice.worker) == ("multi_worker", 2, 2, 1)


SMALL, MIDDLE, LARGE, HUGE = (13_500, 2_200_000, 50_600_000, 2_000_000_000)
"""Products of a row in models of docs/training.md, and beyond."""


@pytest.mark.parametrize(
    ("steps", "batch", "products", "gpus", "ranking", "name"),
    [
        (3_000, 512, SMALL, 1, False, "cpu"),
        (300_000, 512, SMALL, 1, False, "gpu"),  # 4,100 steps per second pay for the start
        (3_000, 2_048, MIDDLE, 1, False, "gpu"),
        (100, 32, MIDDLE, 1, False, "cpu"),
        (100_000, 128, SMALL, 1, True, "cpu"),  # 630 steps per second, 275 there
        (10_000, 1_024, SMALL, 1, True, "gpu"),  # 32, 155 there
        (3_000, 512, SMALL, 8, False, "cpu"),
        (300_000, 512, SMALL, 8, False, "gpu"),  # each step is as long on eight
        (3_000, 8_192, LARGE, 8, False, "mirrored"),
        (100, 8_192, HUGE, 2, False, "mirrored"),
    ],
)
def test_auto_takes_the_devices_on_which_the_training_ends_first(steps, batch, products, gpus, ranking, name):
    lines, work = [], Work(steps=steps, flops=6.0 * products * batch + PAIR_FLOPS * batch**2 * ranking)
    assert choose_placement(asked(batch_size=batch), gpus=gpus, work=work, log=lines.append).name == name
    assert len(lines) == 1 and f": {steps:,} steps of " in lines[0] and "a GPU ends sooner from 2 on" in lines[0]


def test_a_machine_without_a_gpu_says_nothing_of_devices():
    lines = []
    assert choose_placement(asked(), gpus=0, log=lines.append).name == "cpu" and lines == []


def test_the_work_of_a_step_follows_from_the_model_s_settings(tmp_path):
    made = pa.table({"delay": np.arange(ROWS, dtype=np.float32), "label": np.arange(ROWS) % 2})
    transform = write_examples(tmp_path, {"train": made}, COLUMNS).fit(task="binary")

    def work(model, **settings):
        training = asked(**{"epochs": 2} | settings).training
        return work_of(TrainRequest(transform=transform, model=model, training=training), rows=ROWS)

    assert work(ModelConfig(name="mlp", hidden=(8, 4))) == Work(steps=94, flops=6.0 * 64 * (8 + 32 + 4))
    assert work(ModelConfig(hidden=(8, 4))).flops == 8 * 6.0 * 64 * (64 + 32 + 4)
    assert work(ModelConfig(name="mine:net")) is None
    towers = ModelConfig(name="two_towers", item=("delay",), embedding=3, hidden=())
    plain, chosen = work(towers).flops, work(towers, retrieval={}).flops
    assert chosen - plain == 6.0 * 64 * 64 * 4  # each user's vector times each item's of the batch


@pytest.mark.parametrize(
    ("settings", "devices", "words"),
    [
        ({"strategy": "gpu"}, {}, "TensorFlow sees no GPU"),
        ({"strategy": "mirrored"}, {}, "at least two devices, and TensorFlow sees no GPUs"),
        ({"strategy": "mirrored"}, {"gpus": 1}, "at least two devices, and TensorFlow sees one GPU"),
        ({"strategy": "mirrored"}, {"cpus": 3}, "64 cannot be split evenly over 3 replicas"),
        ({"strategy": "mirrored"}, {"gpus": 3}, "64 cannot be split evenly over 3 replicas"),
        ({"strategy": "multi_worker"}, {}, "no TF_CONFIG"),
        ({"strategy": "multi_worker"}, {"cluster": (["a:1", "b:2", "c:3"], 0)}, "64 cannot be split evenly over 3"),
        (
            {"strategy": "multi_worker", "micro_batches": 64},
            {"cluster": (ADDRESSES, 0)},
            "over 2 workers with 64 micro-batches each",
        ),
    ],
)
def test_what_cannot_be_had_is_a_mistake_with_a_way_out(settings, devices, words):
    with pytest.raises(ConfigError, match=words) as failed:
        choose_placement(asked(**settings), **devices)
    assert failed.value.fix


def test_a_tf_config_says_who_the_workers_are(monkeypatch):
    task = {"type": "worker", "index": 1}
    assert workers_of({"cluster": {"worker": ADDRESSES}, "task": task}) == (ADDRESSES, 1)
    chief = {"chief": ["c:1"], "worker": ADDRESSES}
    assert workers_of({"cluster": chief, "task": task}) == (["c:1", "a:1", "b:2"], 2)
    assert workers_of({"cluster": chief, "task": {"type": "chief", "index": 0}})[1] == 0
    for wrong in ({}, {"cluster": {"ps": ["a:1"]}, "task": task}, {"cluster": {"worker": ["a:1"]}, "task": task}):
        with pytest.raises(ConfigError, match="TF_CONFIG"):
            workers_of(wrong)
    monkeypatch.setenv("TF_CONFIG", "{")
    with pytest.raises(ConfigError, match="not JSON"):
        given_cluster()
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": ADDRESSES}, "task": task}))
    assert given_cluster() == (ADDRESSES, 1)
    monkeypatch.delenv("TF_CONFIG")
    assert given_cluster() is None


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    delay = np.arange(ROWS).astype(np.float32)
    rows = pa.table({"delay": delay, "label": (np.arange(ROWS) % 3 == 0).astype(np.int64)})
    return write_examples(tmp_path_factory.mktemp("examples"), {"train": rows}, COLUMNS, rows_per_record=128, shards=5)


def test_slices_are_whole_batches_together():
    weight = np.arange(384.0).reshape(3, 4, 32)
    whole = {"numeric": np.random.default_rng(0).normal(size=(3, 4, 32, 2)), "weight": weight, "label": weight > 9}
    dataset = tf.data.Dataset.from_tensor_slices(whole)
    parts = [[*dataset.map(slice_of(worker, 4))] for worker in range(4)]
    for name, stacks in whole.items():
        for number, stack in enumerate(stacks):
            assert np.array_equal(np.concatenate([part[number][name] for part in parts], axis=1), stack)


def test_a_missing_gpu_is_reported_before_anything_is_read(examples, tmp_path):
    with pytest.raises(HeadwayError, match="sees no GPU"):
        train(request(examples, strategy="gpu"), tmp_path / "out", Monitor())
    assert not (tmp_path / "out").exists()


def test_a_process_that_has_computed_joins_no_cluster(examples, tmp_path, monkeypatch):
    tf.add(1, 1)
    cluster = {"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
    with pytest.raises(ConfigError, match="has computed already") as failed:
        train(request(examples, strategy="multi_worker"), tmp_path / "out", Monitor())
    assert "in a fresh process" in failed.value.fix


def test_products_of_float32_are_those_of_float32():
    tf.config.experimental.enable_tensor_float_32_execution(True)  # TensorFlow's default
    prepare()
    assert not tf.config.experimental.tensor_float_32_execution_enabled()


def test_a_training_s_own_rounding_and_order_end_with_it():
    prepare()
    rounds = tf.config.experimental.tensor_float_32_execution_enabled
    with relaxed_numerics(allow_tf32=True, keep_deterministic=False):
        assert rounds() and not op_determinism()
    assert not rounds() and op_determinism()
    with relaxed_numerics(allow_tf32=False, keep_deterministic=True):
        assert not rounds() and op_determinism()
