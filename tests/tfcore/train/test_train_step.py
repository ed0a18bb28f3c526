"""The pieces of a step: parts of a batch add up to it, and a step that is not finite puts back what it moved."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.same_bytes import assert_same_bytes
from tfcore.graph.scheduled import stepping
from tfcore.models.layers import HashDropout
from tfcore.models.members import member_dense
from tfcore.train.config import OptimizerConfig
from tfcore.train.step import StepConfig, TrainStep, make_optimizer

B, NUMERIC = 12, 3


def batch(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "numeric": tf.constant(rng.standard_normal((B, NUMERIC)), tf.float32),
        "label": tf.constant(rng.integers(0, 2, B), tf.float32),
        "weight": tf.constant(rng.uniform(0.5, 2, B), tf.float32),
    }


def rows(batch, first, last):
    return {name: value[first:last] for name, value in batch.items()}


L2 = keras.regularizers.L2(0.1)


@pytest.fixture(autouse=True)
def _rate():
    with stepping({"learning_rate": tf.constant(2.0)}):
        yield


def step(*, normal=False, dropout=False, head="binary", **config):
    keras.utils.set_random_seed(4)
    counter = tf.Variable(5, dtype=tf.int64)
    inputs = {"numeric": keras.Input((NUMERIC,), name="numeric")}
    x = keras.layers.BatchNormalization()(inputs["numeric"]) if normal else inputs["numeric"]
    x = keras.layers.Dense(8, "tanh", kernel_regularizer=L2)(x)
    if dropout:
        x = HashDropout(0.4, seed=1, salt=0, step=counter)(x)
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    optimizer = make_optimizer(OptimizerConfig())
    optimizer.build(model.trainable_variables)
    return TrainStep(model=model, head=head, optimizer=optimizer, counter=counter, config=StepConfig(**config))


@pytest.mark.parametrize("cut", [(6,), (1, 5, 11)])
@pytest.mark.parametrize("scheduled", [(), ("positive_weight", "regularization")])
def test_the_parts_of_a_batch_add_up_to_it_whatever_the_cut(cut, scheduled):
    """Weights differ from row to row, each part draws the dropout of its own rows, and penalties count once in all."""
    it, data = step(dropout=True), batch()
    with stepping(dict.fromkeys(scheduled, tf.constant(2.0))):
        whole = it.part(data)
        total = tf.reduce_sum(it.row_weights(data))
        parts = [
            it.part(rows(data, first, last), total=total, share=(last - first) / B, first_row=first)
            for first, last in itertools.pairwise([0, *cut, B])
        ]
    assert np.isclose(sum(part.loss for part in parts), whole.loss, rtol=1e-6)
    assert np.isclose(sum(part.objective for part in parts), whole.objective, rtol=1e-6)
    for i, wanted in enumerate(whole.gradients):
        np.testing.assert_allclose(sum(part.gradients[i] for part in parts), wanted, rtol=1e-5, atol=1e-7)


class Mean(keras.layers.Layer):
    """The members' outputs in training, [rows, members, outputs], and their mean else."""

    def call(self, inputs, training=False):
        return inputs if training else tf.reduce_mean(inputs, axis=1)


def test_each_member_of_an_ensemble_has_its_own_loss():
    it, data = step(), batch()
    inputs = {"numeric": keras.Input((NUMERIC,), name="numeric")}
    repeated = keras.layers.RepeatVector(4)(inputs["numeric"])
    apart = member_dense(repeated.shape, 1, seed=2)(repeated)
    it.model = keras.Model(inputs, Mean()(apart))
    outputs = keras.Model(inputs, apart)({"numeric": data["numeric"]})[:, :, 0]
    weights = data["weight"] / tf.reduce_sum(data["weight"])
    losses = tf.nn.sigmoid_cross_entropy_with_logits(tf.tile(data["label"][:, None], [1, 4]), outputs)
    expected = tf.reduce_sum(weights * tf.reduce_mean(losses, axis=1))
    done = it.part(data)
    assert np.isclose(done.loss, expected, rtol=1e-6)
    assert it.plain_losses(data)[0].shape == (B,)
    (output,) = (part for part in done.gradients if part.shape == (4, NUMERIC, 1))
    slopes = tf.einsum("r,rm->m", weights, (tf.sigmoid(outputs) - data["label"][:, None]) / 4.0)
    bias = next(part for part in done.gradients if part.shape == (4, 1))
    np.testing.assert_allclose(bias[:, 0], slopes, rtol=1e-4, atol=1e-6)
    assert np.abs(output).min() > 0


def test_a_weight_that_decays_loses_its_share_beside_what_the_optimizer_does():
    plain, decaying, data = step(), step(), batch()
    decaying.model.trainable_variables[0].decay = lambda: tf.constant([[0.1], [0.25], [0.0]])
    for it in (plain, decaying):
        assert it.apply_if_finite(it.part(data), it.copy_moving_averages()).applied
    (moved, *others), (expected, *same) = (
        [v.numpy() for v in it.model.trainable_variables] for it in (decaying, plain)
    )
    np.testing.assert_allclose(moved, expected * [[0.8], [0.5], [1.0]], rtol=1e-5)  # at a rate of 2
    assert all(np.array_equal(a, b) for a, b in zip(others, same, strict=True))


def test_a_weight_that_grows_is_moved_by_its_gradient_and_by_no_optimizer():
    plain, growing, data = step(), step(), batch()
    growing.model.trainable_variables[0].grows = True
    before = growing.model.trainable_variables[0].numpy()
    for it in (plain, growing):
        done = it.part(data)
        assert it.apply_if_finite(done, it.copy_moving_averages()).applied
    (moved, *others), (_, *same) = ([v.numpy() for v in it.model.trainable_variables] for it in (growing, plain))
    np.testing.assert_allclose(moved, before + done.gradients[0], rtol=1e-6)
    assert all(np.array_equal(a, b) for a, b in zip(others, same, strict=True))


def test_a_part_alone_knows_neither_the_batch_s_weight_nor_its_place():
    """What the test above would miss: each of the three arguments matters."""
    it, data = step(dropout=True), batch()
    half = rows(data, 6, B)
    total = tf.reduce_sum(it.row_weights(data))
    right = it.part(half, total=total, share=0.5, first_row=6)
    for given in ({}, {"total": total, "share": 0.5}, {"total": total, "first_row": 6}, {"share": 0.5, "first_row": 6}):
        other = it.part(half, **given)
        assert not np.allclose(other.objective, right.objective, rtol=1e-4)


@pytest.mark.parametrize("spoilt", ["numeric", "weight"])
def test_a_step_that_is_not_finite_is_skipped_in_one_place(spoilt):
    it, data = step(normal=True), batch()
    values = data[spoilt].numpy()
    values.reshape(-1)[3] = np.inf
    before = [v.numpy() for v in it.model.variables]
    kept = it.copy_moving_averages()
    done = it.apply_if_finite(it.part(data | {spoilt: tf.constant(values)}), kept)
    assert not bool(done.applied)
    assert_same_bytes([v.numpy() for v in it.model.variables], before)
    assert int(it.counter) == 6 and int(it.optimizer.iterations) == 0
    assert bool(it.apply_if_finite(it.part(data), it.copy_moving_averages()).applied)
    assert int(it.counter) == 7 and int(it.optimizer.iterations) == 1


@pytest.mark.parametrize("head", ["binary", "regression", "count", "quantiles(0.1, 0.9)"])
def test_a_row_of_weight_0_has_no_loss_and_no_gradient_whatever_it_holds(head):
    """Infinity times 0 would be neither: its label overflows the loss, and its output is infinite."""
    inputs = {"numeric": keras.Input((NUMERIC,), name="numeric")}
    keras.utils.set_random_seed(4)
    model = keras.Model(
        inputs, keras.layers.Dense(2 if "quantiles" in head else 1, kernel_initializer="ones")(inputs["numeric"])
    )
    it = TrainStep(
        model=model, head=head, optimizer=make_optimizer(OptimizerConfig()), counter=tf.Variable(0, dtype=tf.int64)
    )
    data, held = batch(), np.arange(B) % 4 == 0
    weight = tf.constant(np.where(held, 0, 1), tf.float32)
    wild = {
        "numeric": tf.where(held[:, None], 3e38, data["numeric"]),
        "label": tf.where(held, 1e30 if head != "binary" else 1.0, data["label"]),
        "weight": weight,
    }
    assert not np.isfinite(model({"numeric": wild["numeric"]})).all()
    without = it.part({name: tf.boolean_mask(value, ~held) for name, value in (data | {"weight": weight}).items()})
    found = it.part(wild)
    np.testing.assert_allclose(found.loss, without.loss, rtol=1e-6)
    for gradient, expected in zip(found.gradients, without.gradients, strict=True):
        np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-7)
