"""The choice among a batch's items as a part of a training's objective."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from pydantic import ValidationError

from flows.config.pipeline import Pipeline
from headway.errors import ConfigError
from headway.monitor import Monitor
from headway.schema.columns import Column
from tests.example_shards import write_examples
from tests.patched import patched
from tfcore.models.config import ModelConfig
from tfcore.models.towers.two_towers import as_vectors
from tfcore.train.config import TrainingConfig
from tfcore.train.request import TrainRequest
from tfcore.train.trainer import TrainingSession

MODEL = ModelConfig(name="two_towers", item=("movie",), embedding=4, hidden=())
COLUMNS = (
    Column(name="user", type="int64", nullable=False, role="group"),
    Column(name="taste", type="bytes", nullable=False, encoding="dictionary"),
    Column(name="movie", type="int64", nullable=False),
    Column(name="label", type="int64", nullable=False, role="label"),
)
MOVIES, TASTES, ROWS = 40, 4, 4000


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """Users watch the movies of their taste, the frequent ones more often, and like nine of ten; hardly any label is 0."""
    rng = np.random.default_rng(0)
    user = np.sort(rng.integers(0, 400, ROWS))
    taste = user % TASTES
    chance = 1 / np.arange(1, MOVIES // TASTES + 1)
    movie = rng.choice(MOVIES // TASTES, ROWS, p=chance / chance.sum()) * TASTES + taste
    table = pa.table(
        {
            "user": pa.array(user),
            "taste": pa.array([f"t{one}".encode() for one in taste], pa.binary()),
            "movie": pa.array(movie),
            "label": pa.array((rng.random(ROWS) < 0.9).astype(np.int64)),
        }
    )
    return write_examples(tmp_path_factory.mktemp("retrieval"), {"train": table}, COLUMNS, rows_per_record=256)


_short_calls = patched({"tfcore.train.trainer.STEPS_PER_CALL": 40})


def request(examples, counted="movie", model=MODEL, transforms=None, **training):
    given = {"batch_size": 128, "steps": 120, "jit": "off", "learning_rate": 0.03}
    return TrainRequest(
        examples=(examples.part("train"),),
        transform=examples.fit(transforms, task="binary", counted=counted),
        model=model,
        training=TrainingConfig(**(given | training)),
        seed=1,
    )


def found(examples, **training):
    """How many of the best 10 movies are of a user's taste, of 10."""
    session = TrainingSession(request(examples, **training), Monitor())
    session.run()
    (fitted,) = (one for one in session.request.transform.fitted if one.column.name == "movie")
    (words,) = (one.ops[-1].words for one in session.request.transform.fitted if one.column.name == "taste")
    count = len(fitted.ops[-1].integers)
    ids = np.stack([np.repeat(np.arange(TASTES), count), np.tile(np.arange(count), TASTES)], 1).astype(np.int32)
    inputs = {"categorical": tf.constant(ids), "numeric": tf.zeros([len(ids), 0])}
    user, item = as_vectors(session.model, "user", inputs), as_vectors(session.model, "item", inputs)
    scores = tf.reduce_sum(user * item, 1).numpy().reshape(TASTES, count)
    best = np.asarray(fitted.ops[-1].integers)[np.argsort(-scores, 1)[:, :10]] % TASTES
    return np.mean([np.sum(row == int(word[1:])) for row, word in zip(best, words, strict=True)])


@pytest.mark.long
def test_a_training_that_chooses_finds_what_users_watch_where_labels_say_nothing(examples):
    assert found(examples) < 6 and found(examples, retrieval={}) > 9
    # with whole groups in a batch a user's other rows are no negatives
    assert found(examples, retrieval={"share": 1.0}, ranking={"share": 0.1}) > 8


def test_a_step_goes_by_both_parts_in_their_shares_and_reports_the_rows_loss(examples):
    session = TrainingSession(request(examples, retrieval={"share": 0.25, "correction": False}), Monitor())
    step, part = session.learner.train_step, session.learner.train_step.config.retrieval
    rng = np.random.default_rng(1)
    batch = {
        "categorical": tf.constant(np.stack([rng.integers(0, TASTES, 9), rng.integers(0, MOVIES, 9)], 1), tf.int32),
        "numeric": tf.zeros([9, 0]),
        "label": tf.constant(rng.integers(0, 2, 9), tf.float32),
        "weight": tf.constant([1.0] * 8 + [0.0]),
    }
    both, inputs = step.part(batch), {name: batch[name] for name in ("categorical", "numeric")}
    variables = session.model.trainable_variables
    with tf.GradientTape() as tape:
        output, user, item = part.outputs(inputs, training=True)
        chosen = part.loss(batch, user, item, batch["weight"])
    np.testing.assert_array_equal(output, session.model(inputs))
    choice = tape.gradient(chosen, [v.value for v in variables])
    step.config = dataclasses.replace(step.config, retrieval=None)
    rows = step.part(batch)
    assert float(both.loss) == pytest.approx(float(rows.loss), rel=1e-6)
    assert float(both.objective) == pytest.approx(0.75 * float(rows.objective) + 0.25 * float(chosen), rel=1e-6)
    for one, other, mixed in zip(rows.gradients, choice, both.gradients, strict=True):
        other = tf.zeros_like(one) if other is None else tf.convert_to_tensor(other)
        np.testing.assert_allclose(mixed, 0.75 * one + 0.25 * other, rtol=1e-4, atol=1e-7)


def test_mistakes_are_named(examples):
    with pytest.raises(ValidationError, match="only two_towers has vectors of items, not ensemble"):
        Pipeline.model_validate(
            {"name": "p", "source": {"format": "csv", "path": "a.csv"}, "label": "y", "training": {"retrieval": {}}}
        )
    with pytest.raises(ConfigError, match="not counted, which the correction needs"):
        TrainingSession(request(examples, retrieval={}, counted=None), Monitor())
    TrainingSession(request(examples, retrieval={"correction": False}, counted=None), Monitor())
