"""The order within groups as a part of a training's objective."""

import functools

import keras
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from headway.errors import ConfigError, DataError
from headway.monitor import Monitor
from headway.schema.columns import Column
from tests.example_shards import write_examples
from tests.patched import patched
from tfcore.data.groups import NO_GROUP, group_ids, group_splits
from tfcore.models.config import ModelConfig
from tfcore.train.config import OptimizerConfig, RankingConfig, TrainingConfig
from tfcore.train.loop import Learner
from tfcore.train.ranking import pairwise_loss
from tfcore.train.request import TrainRequest
from tfcore.train.rows import training_data
from tfcore.train.step import StepConfig
from tfcore.train.trainer import TrainingSession
from tfcore.transform.raw_column import RawColumn

pytestmark = pytest.mark.long
K, B = 2, 12
SPECS = {
    "numeric": tf.TensorSpec([K, B, 3], tf.float32),
    "group": tf.TensorSpec([K, B], tf.int64),
    "label": tf.TensorSpec([K, B], tf.float32),
    "weight": tf.TensorSpec([K, B], tf.float32),
}
COLUMNS = (
    Column(name="x", type="float32", nullable=False),
    Column(name="mood", type="float32", nullable=False),
    Column(name="query", type="bytes", nullable=True, encoding="dictionary", role="group"),
    Column(name="label", type="float32", nullable=False, role="label"),
)
ROWS, QUERIES = 2400, 120


def test_equal_values_have_equal_ids_and_a_null_has_none():
    present = tf.constant([True, True, False, True])
    for values in (["b", "a", "b", "b"], [7, -1, 7, 7], [0.0, 2.5, 0.0, -0.0]):
        ids = group_ids(RawColumn(tf.constant(values), present, None, None)).numpy()
        assert ids[0] == ids[3] >= 0 and ids[1] not in (ids[0], NO_GROUP) and ids[2] == NO_GROUP


def stack(seed=0):
    rng = np.random.default_rng(seed)
    group = np.sort(rng.integers(0, 4, (K, B)), 1)
    group[:, -1] = NO_GROUP
    return {
        "numeric": rng.normal(size=(K, B, 3)).astype(np.float32),
        "group": group.astype(np.int64),
        "label": rng.integers(0, 2, (K, B)).astype(np.float32),
        "weight": rng.uniform(0.5, 2, (K, B)).astype(np.float32),
    }


@functools.cache
def learner_of(ranking, jit, task, std):
    """A learner of one layer and the layer; what it traces or compiles serves many single steps."""
    inputs = {"numeric": keras.Input((3,), name="numeric")}
    layer = keras.layers.Dense(1)
    specs = SPECS if ranking else {name: spec for name, spec in SPECS.items() if name != "group"}
    learner = Learner(
        model=keras.Model(inputs, layer(inputs["numeric"])),
        head=task,
        step=tf.Variable(0, dtype=tf.int64),
        specs=specs,
        config=StepConfig(optimizer=OptimizerConfig(name="sgd"), ranking=ranking, label_std=std),
        jit=jit,
    )
    return learner, layer, specs


def one_step(ranking, jit, *, task="binary", std=1.0, change=None):
    """(the model's weights after one step of plain descent, the reported loss, whether it was applied, the mode)."""
    learner, layer, specs = learner_of(ranking, jit, task, std)
    layer.kernel.assign(np.full((3, 1), 0.3, np.float32))
    layer.bias.assign([0.0])
    given = stack() | (change or {})
    values = {"learning_rate": np.ones(K, np.float32)}
    outcome = learner.run({name: tf.constant(given[name]) for name in specs}, first=0, steps=1, values=values)
    return layer.kernel.numpy(), outcome.losses[0], outcome.applied[0], learner.mode


LAMBDA = {"kind": "lambdarank", "k": 2}


@pytest.mark.parametrize(
    ("options", "task", "std", "jit"),
    [
        ({}, "binary", 1.0, "off"),
        ({}, "regression", 4.0, "off"),
        (LAMBDA, "binary", 1.0, "off"),
        (LAMBDA, "regression", 4.0, "off"),
        # each kind and each task once: under XLA it is the same graph
        ({}, "binary", 1.0, "on"),
        (LAMBDA, "regression", 4.0, "on"),
    ],
)
def test_a_step_goes_by_both_parts_in_their_shares(jit, task, std, options):
    kernel = tf.Variable(np.full((3, 1), 0.3, np.float32))
    batch = {name: value[0] for name, value in stack().items()}
    with tf.GradientTape() as tape:
        weights = np.where(batch["group"] == NO_GROUP, 0, batch["weight"]).astype(np.float32)
        scores = (batch["numeric"] @ kernel)[:, 0] / std
        pairs = pairwise_loss(
            scores,
            batch["label"],
            group_splits(batch["group"]),
            weights=weights,
            reduction="mean",
            native=False,
            **options,
        )
    push = tape.gradient(pairs, kernel).numpy()
    assert np.abs(push).max() > 1e-3
    alone, loss, *_ = one_step(None, "off", task=task, std=std)
    both, same, applied, mode = one_step(RankingConfig(share=0.25, **options), jit, task=task, std=std)
    assert applied and mode == {"on": "jit", "off": "graph"}[jit] and same == pytest.approx(loss, rel=1e-6)
    np.testing.assert_allclose(both, 0.3 - (0.75 * (0.3 - alone) + 0.25 * push), rtol=1e-5)


@pytest.mark.parametrize("jit", ["off", "on"])
def test_a_step_whose_ranking_loss_is_no_number_is_skipped(jit):
    labels = stack()["label"]
    labels[0, :2] = 2000.0  # 2^2000 - 1 is beyond every float; the squared error is not
    kernel, loss, applied, _ = one_step(
        RankingConfig(share=0.25, **LAMBDA), jit, task="regression", std=4.0, change={"label": labels}
    )
    assert np.isfinite(loss) and not applied
    np.testing.assert_array_equal(kernel, np.full((3, 1), 0.3, np.float32))


def table():
    """What a row is worth, beside a mood of its query that its label has too and that says nothing of the order."""
    rng = np.random.default_rng(5)
    query = np.sort(rng.integers(0, QUERIES, ROWS))
    worth, mood = rng.normal(size=ROWS), 5 * rng.normal(size=QUERIES)[query]
    return pa.table(
        {
            "x": pa.array((worth + 0.5 * rng.normal(size=ROWS)).astype(np.float32)),
            "mood": pa.array((mood + rng.normal(size=ROWS)).astype(np.float32)),
            "query": pa.array([f"q{i}".encode() if i else None for i in query], pa.binary()),
            "label": pa.array((worth + mood).astype(np.float32)),
        }
    )


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranked")
    return write_examples(folder, {"train": table()}, COLUMNS, rows_per_record=256, shards=3)


_short_calls = patched({"tfcore.train.trainer.STEPS_PER_CALL": 8})


def request(examples, **training):
    given = {"batch_size": 96, "steps": 50, "jit": "off", "ranking": {"share": 0.9}}
    return TrainRequest(
        examples=(examples.part("train"),),
        transform=examples.fit(task="regression"),
        model=ModelConfig(name="mlp", hidden=(8,)),
        training=TrainingConfig(**(given | training)),
        seed=3,
    )


def wrongly_ordered(examples, out, **training):
    """The share of a group's pairs that a training puts in the wrong order."""
    asked = request(examples, steps=150, learning_rate=0.01, **training)
    trained = TrainingSession(asked, Monitor())
    trained.run()
    wrong = pairs = 0
    batches = next(training_data(request(examples)).stack_reader(26)(0))
    for number in range(26):
        batch = {name: value[number] for name, value in batches.items()}
        scores = trained.model({name: batch[name] for name in ("numeric", "categorical")}).numpy()[:, 0]
        group, label = batch["group"].numpy(), batch["label"].numpy()
        counted = (group[:, None] == group) & (label[:, None] > label) & (group != NO_GROUP)
        wrong += np.sum(counted & (scores[:, None] < scores))
        pairs += np.sum(counted)
    assert pairs > 10_000
    return wrong / pairs


def test_a_training_that_ranks_orders_groups_better(examples, tmp_path):
    assert wrongly_ordered(examples, tmp_path / "a") < wrongly_ordered(examples, tmp_path / "b", ranking=None) - 0.01


def test_xla_does_not_compile_large_batches_of_pairs(examples, monkeypatch):
    monkeypatch.setattr("tfcore.train.cost.LARGE_BATCH", 96)
    monkeypatch.setattr("tfcore.train.config.LEAST_STEPS", 1)
    for jit, batch, left in (("auto", 96, True), ("auto", 95, False), ("on", 96, False)):
        lines = []
        monitor = Monitor()
        monitor.log = lines.append
        TrainingSession(request(examples, jit=jit, batch_size=batch), monitor)
        assert any("runs steps uncompiled" in line for line in lines) is left


def test_mistakes_are_named(examples, tmp_path):
    with pytest.raises(ConfigError, match="of a multiclass task have no order"):
        RankingConfig().check("multiclass", group="query")
    with pytest.raises(DataError, match=r"the gain 2\^label - 1, and one is -"):
        training_data(request(examples, ranking={"kind": "lambdarank"}))
    alone = tuple(column for column in COLUMNS if column.role != "group")
    without = write_examples(tmp_path, {"train": table().drop_columns(["query"])}, alone, rows_per_record=256, shards=1)
    with pytest.raises(ConfigError, match="needs a column with role: group"):
        training_data(request(without))
    training_data(request(without, ranking=None))
