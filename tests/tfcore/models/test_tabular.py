"""tfcore.models: embeddings of numbers and the members of an ensemble, each against what they say they compute."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.same_bytes import assert_same_bytes
from tfcore.graph.scheduled import stepping
from tfcore.models.config import CHOOSING, FOLDS
from tfcore.models.layers import row_hash, rows_from
from tfcore.models.members import LEFT_OUT, Members, member_dense
from tfcore.models.numeric import PiecewiseLinear

X = np.random.default_rng(3).standard_normal((5, 6)).astype(np.float32)


def randomized(layer):
    """The layer, built for X and with weights as if it was trained."""
    layer(X.reshape(5, 2, 3) if isinstance(layer, keras.layers.EinsumDense) else X)
    for variable in layer.variables:
        variable.assign_add(np.random.default_rng(1).normal(0, 0.3, variable.shape).astype("float32"))
    return layer


def test_an_embedding_of_a_number_is_linear_within_a_bin_and_bends_at_its_edges():
    layer = randomized(PiecewiseLinear([[-1.0, 0.0, 2.0], [], [], [], [], []], 4, seed=0))
    slopes, bins, bias = (np.asarray(variable) for variable in (layer.slopes, layer.bins, layer.bias))
    for x, places in [(-3.0, (0, 0)), (-0.5, (0.5, 0)), (0.0, (1, 0)), (0.5, (1, 0.25)), (9.0, (1, 1))]:
        first, second = layer(tf.fill([1, 6], x)).numpy()[0, :2]
        np.testing.assert_allclose(first, x * slopes[0] + places @ bins[0] + bias[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(second, x * slopes[1] + bias[1], rtol=1e-5, atol=1e-6)
    for dtype, largest in (("float32", 1e30), ("float16", 6e4)):
        far = PiecewiseLinear([[0.0, 1.0]], 2, limit=4.0, seed=0, dtype=dtype)
        assert np.abs(far(tf.constant([[largest]], dtype))).max() <= 4.0


def test_each_member_has_a_matrix_of_its_own():
    given = X.reshape(5, 2, 3)
    output = randomized(member_dense((5, 2, 3), 2, seed=0))
    expected = [given[:, member] @ output.kernel.numpy()[member] + output.bias.numpy()[member] for member in range(2)]
    np.testing.assert_allclose(output(given), np.stack(expected, 1), rtol=1e-5, atol=1e-6)


def test_members_learn_nothing_of_rows_that_they_leave_out_and_these_alone_decide_the_decay():
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=(500, 2)).astype("f"), rng.integers(0, 4, (500, 3)).astype("i")]
    members, layer = tf.Variable(rng.normal(size=(500, 2 * FOLDS, 1)).astype("f")), Members((0.5, 2.0))
    part = None
    for progress, judging in ((0.1, False), (CHOOSING - 0.01, True)):
        with stepping({"progress": tf.constant(progress)}), tf.GradientTape(persistent=True) as tape:
            outputs = layer([members, *inputs], training=True)
            losses = outputs[:, :, 0] ** 2
            rows = layer.row_losses(losses)
            mean = tf.reduce_mean(rows)
        part = row_hash(inputs).numpy() % LEFT_OUT
        assert np.abs(np.bincount(part) / 500 - 1 / LEFT_OUT).max() < 0.05
        np.testing.assert_allclose(rows, losses.numpy().mean(1), rtol=1e-5)
        learned = tape.gradient(mean, members).numpy()[:, :, 0]
        for member in range(2 * FOLDS):
            np.testing.assert_array_equal(learned[:, member] != 0, part != member % FOLDS)
        grown = tape.gradient(mean, layer.losses_left_out.value)
        own = [
            sum(losses.numpy()[part == fold, decay * FOLDS + fold].sum() for fold in range(FOLDS)) for decay in (0, 1)
        ]
        expected = np.array(own) / 500 * 1e-4 * judging
        np.testing.assert_allclose(grown, expected, rtol=1e-4)
    np.testing.assert_allclose(layer([members, *inputs]), members.numpy().mean(1), rtol=1e-4, atol=1e-6)


def test_once_the_decay_is_chosen_all_members_have_it_and_learn_from_all_rows():
    layer, members = Members((0.5, 2.0)), tf.Variable(tf.ones((40, 2 * FOLDS, 1)))
    inputs = [tf.constant(X[:, :1].repeat(8, 0)), tf.zeros((40, 1), tf.int32)]
    layer([members, *inputs])
    for losses, progress, decays in (
        ([1.0, 0.9], CHOOSING - 0.01, [0.5, 0.5, 2.0, 2.0]),
        ([0.0, 0.0], CHOOSING, [1.0] * 4),
        ([1.0, 0.5], CHOOSING, [2.0] * 4),
        ([1.0, 1.02], CHOOSING, [0.5 * 4 ** (1 / (1 + np.e))] * 4),  # 2% worse counts 1/e as much
        ([-1.0, -0.98], CHOOSING, [0.5 * 4 ** (1 / (1 + np.e))] * 4),
    ):
        layer.losses_left_out.assign(losses)
        with stepping({"progress": tf.constant(progress)}), tf.GradientTape(persistent=True) as tape:
            mean = tf.reduce_mean(layer.row_losses(layer([members, *inputs], training=True)[:, :, 0]))
            np.testing.assert_allclose(layer.decay(), decays, rtol=1e-4)
            np.testing.assert_allclose(layer.shared_decay(), np.exp(np.log(decays).mean()), rtol=1e-4)
        assert (tape.gradient(mean, members).numpy() != 0).all() == (progress >= CHOOSING)
        assert tape.gradient(mean, layer.losses_left_out.value).numpy().any() == (progress < CHOOSING)


def test_a_member_leaves_out_whole_units_where_the_split_has_units():
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=(400, 2)).astype("f"), np.zeros((400, 1), "i")]
    units = np.where(np.arange(400) < 100, -1, rng.integers(0, 2**62, 30)[rng.integers(0, 30, 400)])
    members = tf.ones((400, FOLDS, 1))
    with tf.GradientTape() as tape, rows_from(None, tf.constant(units)):
        tape.watch(members)
        learned = tf.reduce_sum(Members((1.0,))([members, *inputs], training=True))
    found = tape.gradient(learned, members).numpy()[:, :, 0]
    for unit in set(units[100:]):
        assert len(np.unique(found[units == unit], axis=0)) == 1
    assert 0 < (found[100:] == 0).mean() < 0.5
    np.testing.assert_array_equal(
        found[:100] == 0, (row_hash(inputs).numpy() % LEFT_OUT)[:100, None] == np.arange(FOLDS)
    )


def test_equal_rows_have_one_hash_and_zeros_of_either_sign_are_equal():
    numbers, ids = np.float32([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0]]), np.int32([[3], [3], [3]])
    first, again, other = row_hash([numbers, ids]).numpy()
    assert first == again != other


@pytest.mark.parametrize(
    "layer",
    [
        PiecewiseLinear([[-1.0, 0.5]] * 6, 4, limit=4.0, seed=3),
        member_dense((5, 2, 3), 2, seed=4, bias_initializer=keras.initializers.Constant([1.0, 2.0])),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_a_layer_comes_back_from_its_config_and_is_the_same_under_xla(layer):
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert type(again) is type(layer) and again.get_config() == layer.get_config()
    given = tf.constant(X.reshape(5, 2, 3) if isinstance(layer, keras.layers.EinsumDense) else X)
    assert_same_bytes(layer(given).numpy(), again(given).numpy())
    compiled = tf.function(layer, jit_compile=True, autograph=False)(given)
    np.testing.assert_allclose(compiled, layer(given), rtol=1e-5, atol=1e-6)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(layer(given)))
    assert all(gradient is not None for gradient in tape.gradient(loss, [v.value for v in layer.trainable_variables]))
