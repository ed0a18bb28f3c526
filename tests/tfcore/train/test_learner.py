"""The compiled steps, the loop around them and their checkpoints, on data in memory."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from headway.errors import ConfigError, StoreError
from tests.exact_resume import assert_resumes_exactly
from tests.tfcore.train.learners import LAYOUT, NUMERIC, SIZES, B, Learners, Turn, batch, stacked
from tfcore.graph.scheduled import scheduled
from tfcore.models.build import build
from tfcore.models.config import ModelConfig
from tfcore.models.layers import OffsetEmbedding
from tfcore.train.checkpoints import Checkpoints
from tfcore.train.config import OptimizerConfig, repays_compiling
from tfcore.train.cost import scatters_under_xla, slow_under_xla
from tfcore.train.loop import PeriodicAction, run
from tfcore.train.rows import class_weights
from tfcore.train.schedule import Schedule, StepValues

K = 4
MODEL = ModelConfig(name="mlp", hidden=(8, 4), embedding=3)
learner = Learners(K, MODEL, OptimizerConfig())


def stacks(step, change=lambda step, batch: None):
    while True:
        batches = [batch(s) for s in range(step, step + K)]
        for number, one in enumerate(batches):
            change(step + number, one)
        yield stacked(batches)
        step += K


def train(it, total, start=0, batches=stacks, **options):
    schedule = Schedule(name="cosine", settings={"initial": 0.01})
    values = StepValues(dict.fromkeys(it.config.values, schedule), 30)
    return run(it, batches, start=start, total=total, values=values, **options)


def constant(**values):
    return {name: np.full(K, value, np.float32) for name, value in values.items()}


@pytest.mark.parametrize("jit", ["off", "on"])
def test_training_learns_in_one_trace_whatever_number_of_steps_a_call_has(jit):
    it = learner(jit, dropout=0.0)
    outcomes = []
    marks = []
    ended = train(
        it,
        30,
        every=[PeriodicAction(7, marks.append), PeriodicAction(11, marks.append, at_end=True)],
        report=lambda s, o: outcomes.append(o),
    )
    losses = np.concatenate([o.losses for o in outcomes])
    assert ended == 30
    assert len(losses) == 30
    assert {len(o.losses) for o in outcomes} > {1, 4}
    assert marks == [7, 11, 14, 21, 22, 28, 30]
    assert losses[-5:].mean() < losses[:5].mean()
    assert it.traces == 1
    assert int(it.step) == 30


def test_the_loss_of_a_batch_is_its_weighted_mean_and_a_step_is_adam_s():
    it = learner(dropout=0.0)
    reference = build(MODEL, LAYOUT, seed=7)
    one = {key: tf.constant(value) for key, value in batch(0).items()}
    with tf.GradientTape() as tape:
        logits = reference({k: one[k] for k in ("numeric", "categorical")})[:, 0]
        rows = tf.nn.sigmoid_cross_entropy_with_logits(one["label"], logits)
        loss = tf.reduce_sum(rows * one["weight"]) / tf.reduce_sum(one["weight"])
    optimizer = keras.optimizers.Adam(0.01)
    gradients = tape.gradient(loss, [v.value for v in reference.trainable_variables])
    optimizer.apply([tf.convert_to_tensor(g) for g in gradients], reference.trainable_variables)
    outcome = it.run(next(stacks(0)), first=0, steps=1, values=constant(learning_rate=0.01))
    assert np.allclose(outcome.losses, [loss], rtol=1e-5)
    assert np.allclose(outcome.weights, [one["weight"].numpy().sum()], rtol=1e-5)
    for a, b in zip(it.model.get_weights(), reference.get_weights(), strict=True):
        assert np.allclose(a, b, atol=1e-5)


def test_a_resume_carries_the_seeds_of_keras_own_random_layers(tmp_path):
    keras.utils.set_random_seed(1)
    inputs = {
        "numeric": keras.Input((NUMERIC,), name="numeric"),
        "categorical": keras.Input((len(SIZES),), dtype="int32", name="categorical"),
    }
    x = keras.layers.Dropout(0.5)(keras.layers.BatchNormalization()(inputs["numeric"]))
    begun = Turn(learner(model=keras.Model(inputs, keras.layers.Dense(1)(x))))

    def go(turn, first, end):
        turn.run(lambda it: train(it, end, first))

    assert_resumes_exactly(begun.again, go, Turn.variables, steps=10, stops=(6,), folder=tmp_path)


def test_gradients_are_clipped_to_their_global_norm():
    it = learner(dropout=0.0, clip_norm=0.01, optimizer=OptimizerConfig(name="sgd"))
    start = it.model.get_weights()
    it.run(next(stacks(0)), first=0, steps=1, values=constant(learning_rate=1.0))
    moved = np.sqrt(sum(((a - b) ** 2).sum() for a, b in zip(it.model.get_weights(), start, strict=True)))
    assert np.isclose(moved, 0.01, rtol=1e-3)


OFF = {"dropout": 0, "label_smoothing": 0, "temperature": 1, "positive_weight": 1}
"""The values at which scheduled numbers change nothing."""


@pytest.mark.parametrize("jit", ["off", "on"])
def test_scheduled_numbers_change_between_calls_and_steps_without_another_trace(jit):
    it, plain = learner(jit, scheduled=OFF), learner(dropout=0.0)
    variables = [variable for some in it.variables().values() for variable in some]
    begun = [variable.numpy() for variable in variables]
    stack = next(stacks(0))
    whole = it.run(stack, first=0, steps=K, values=constant(learning_rate=0.01, **OFF))
    expected = plain.run(stack, first=0, steps=K, values=constant(learning_rate=0.01))
    assert np.allclose(whole.losses, expected.losses, rtol=1e-5)
    for values in (OFF, OFF | {"dropout": 0.5}, OFF | {"temperature": 4}, OFF):
        it.run(stack, first=0, steps=2, values=constant(learning_rate=0.01, **values))
    for variable, value in zip(variables, begun, strict=True):
        variable.assign(value)
    values = constant(learning_rate=0.01, **OFF)
    values["temperature"][2] = 3.0  # one step of a call
    outcome = it.run(stack, first=0, steps=K, values=values)
    assert np.array_equal(outcome.losses[:2], whole.losses[:2]) and outcome.losses[2] != whole.losses[2]
    assert it.traces == 1


def test_what_scheduled_numbers_mean():
    one = {key: tf.constant(value) for key, value in batch(0).items()}
    reference = build(MODEL, LAYOUT, seed=7)
    logits = reference({k: one[k] for k in ("numeric", "categorical")})[:, 0]
    label, weight = one["label"], one["weight"]

    def loss(label, logits, weight):
        rows = tf.nn.sigmoid_cross_entropy_with_logits(label, logits)
        return float(tf.reduce_sum(rows * weight) / tf.reduce_sum(weight))

    it = learner(scheduled=OFF)
    for name, value, wanted in (
        ("label_smoothing", 0.2, loss(label * 0.8 + 0.1, logits, weight)),
        ("temperature", 2.0, loss(label, logits / 2, weight)),
        ("positive_weight", 3.0, loss(label, logits, weight * tf.where(label > 0, 3.0, 1.0))),
    ):
        found = it.run(next(stacks(0)), first=0, steps=1, values=constant(learning_rate=0.0, **OFF | {name: value}))
        assert np.isclose(found.losses[0], wanted, rtol=1e-5), name


def test_a_mixed_label_counts_as_its_two_rows_with_every_number_scheduled():
    """Of label 0.3 and weight 2 is 0.6 of a positive row and 1.4 of a negative one, for the gradient and the loss."""
    numbers = {"positive_weight": 3.0, "label_smoothing": 0.2, "temperature": 2.0, "learning_rate": 0.01}

    def end(labels, weights):
        it = learner(dropout=0.0, scheduled=list(numbers)[:-1], offsets=[0.7])
        half = B // 2

        def two(_, one):
            for name in ("numeric", "categorical"):
                one[name][half:] = one[name][:half]
            for name, values in (("label", labels), ("weight", weights)):
                one[name] = np.repeat(np.float32(values), half)

        outcome = it.run(next(stacks(0, two)), first=0, steps=K, values=constant(**numbers))
        return outcome, [v.numpy() for v in it.model.trainable_variables]

    mixed, moved = end((0.3, 0.3), (2.0, 0.0))
    apart, expected = end((1.0, 0.0), (0.6, 1.4))
    assert np.allclose(mixed.losses, apart.losses, rtol=1e-4)
    assert np.allclose(mixed.weights, apart.weights, rtol=1e-5)
    for found, wanted in zip(moved, expected, strict=True):
        assert np.allclose(found, wanted, atol=1e-4)


def test_what_a_sample_added_to_the_odds_is_added_in_training_alone():
    one = {key: tf.constant(value) for key, value in batch(0).items()}
    names = ["positive_weight", "label_smoothing", "temperature"]
    plain, offset = learner(dropout=0.0), learner(dropout=0.0, scheduled=names, offsets=[0.7])
    assert plain.evaluate([one]) == offset.evaluate([one])
    rates = constant(learning_rate=0.0), constant(learning_rate=0.0, **{name: OFF[name] for name in names})
    losses = [
        it.run(next(stacks(0)), first=0, steps=1, values=rate).losses[0]
        for it, rate in zip((plain, offset), rates, strict=True)
    ]
    assert losses[0] != losses[1]


class Shifted(keras.layers.Layer):
    def call(self, x):
        return x + scheduled("margin", 1.0)


@pytest.mark.parametrize("jit", ["off", "on"])
def test_a_user_s_layer_reads_its_own_number_and_where_it_predicts_its_default(jit):
    inputs = {name: keras.Input(row, dtype=dtype, name=name) for name, (row, dtype) in LAYOUT.inputs().items()}
    keras.utils.set_random_seed(1)
    model = keras.Model(inputs, keras.layers.Dense(1)(Shifted()(inputs["numeric"])))
    it = learner(jit, model=model, scheduled=["margin"])
    losses = [
        it.run(next(stacks(0)), first=0, steps=1, values=constant(learning_rate=0.0, margin=m)).losses[0]
        for m in (0.0, 2.0, 1.0, 0.0)
    ]
    assert losses[0] == losses[3] != losses[1] and it.traces == 1
    one = {key: tf.constant(value) for key, value in batch(0).items()}
    assert np.isclose(it.evaluate([one]), losses[2], rtol=1e-5)


def test_evaluation_ignores_padding_and_dropout():
    it = learner()
    ones = [{key: tf.constant(value) for key, value in batch(s).items()} for s in range(2)]
    loss = it.evaluate(ones)
    padded = {key: value.numpy().copy() for key, value in ones[1].items()}
    padded["numeric"][10:] = np.nan
    padded["weight"][10:] = 0
    part = it.evaluate([ones[0], {key: tf.constant(value) for key, value in padded.items()}])
    assert np.isfinite(part)
    assert loss == it.evaluate(ones)
    assert loss != part


def test_class_weights():
    assert class_weights(None, ["0", "1"], None) is None
    assert class_weights("balanced", ["0", "1"], {"0": 75, "1": 25}) == [100 / 150, 2.0]
    assert class_weights({"1": 3}, ["0", "1"], None) == [1.0, 3.0]
    with pytest.raises(ConfigError, match="'2' is not a class"):
        class_weights({"2": 3}, ["0", "1"], None)
    with pytest.raises(ConfigError, match="no classes"):
        class_weights("balanced", [], None, "regression")


def test_checkpoints_are_kept_torn_ones_passed_over_and_leftovers_swept(tmp_path):
    it, lines = learner(), []
    checkpoints = Checkpoints(tmp_path, log=lines.append)
    assert checkpoints.newest() is None
    for step in (5, 10, 100):
        checkpoints.save(step, it.variables(), {"at": step})
    (tmp_path / ".staged-of-a-killed-process").mkdir()
    assert checkpoints.newest().state == {"at": 100}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["10", "100"]
    data = next((tmp_path / "100").glob("variables.data*"))
    whole = data.read_bytes()
    data.write_bytes(whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:])
    assert checkpoints.newest().step == 10
    assert "is skipped: variables.data-00000-of-00001 has changed (crc32c)" in lines[-1]
    data.write_bytes(whole[:-8])
    assert checkpoints.newest().step == 10
    assert f"has {len(whole) - 8} bytes, not {len(whole)}" in lines[-1]
    (tmp_path / "10" / "checkpoint.json").write_text("{")
    assert checkpoints.newest() is None
    assert len(lines) == 4


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    Checkpoints(tmp_path).save(1, learner().variables(), {})
    other = learner(optimizer=OptimizerConfig(name="sgd"))
    with pytest.raises(StoreError, match="optimizer has"):
        Checkpoints(tmp_path).restore(Checkpoints(tmp_path).newest(), other.variables())


def test_cancelling_ends_the_loop_between_calls():
    asked = iter([False, False, True])
    assert train(learner(), 30, cancelled=lambda: next(asked)) == 8


class Pooled(keras.layers.Layer):
    def call(self, inputs):
        return tf.nn.max_pool2d(inputs, 2, 2, "VALID")


@pytest.mark.parametrize(
    ("layers", "op"),
    [
        ([keras.layers.Flatten(), keras.layers.Dense(4, activation="relu")], None),
        ([keras.layers.Conv2D(2, 3)], "Conv2D"),
        ([keras.layers.Reshape((32, 3)), keras.layers.Conv1D(2, 3)], "Conv2D"),
        ([keras.layers.MaxPooling2D()], "MaxPool"),
        ([Pooled()], "MaxPool"),
        ([keras.Sequential([keras.layers.Dense(2), keras.layers.DepthwiseConv2D(2)])], "DepthwiseConv2dNative"),
    ],
)
def test_what_xla_makes_slow_on_a_cpu_is_known_without_a_compilation(layers, op):
    photo = keras.Input([8, 12, 1], name="photo")
    x = photo
    for layer in layers:
        x = layer(x)
    model = keras.Model({"photo": photo}, keras.layers.Dense(1)(keras.layers.Flatten()(x)))
    assert slow_under_xla(model, {"photo": tf.TensorSpec([4, None, 8, 12, 1], tf.float32)}) == op


def scattered(table):
    return tf.reduce_sum(tf.sqrt(tf.math.unsorted_segment_sum(tf.square(table[:, 0]), [0] * 9 + [1] * 9, 2)))


@pytest.mark.parametrize(
    ("layers", "op"),
    [
        ([keras.layers.Flatten(), keras.layers.Dense(4)], None),
        ([keras.layers.Embedding(9, 3)], "UnsortedSegmentSum"),
        ([OffsetEmbedding((9, 9), 3, seed=0)], None),
        ([OffsetEmbedding((9, 9), 3, seed=0, regularizer=scattered)], "UnsortedSegmentSum"),
    ],
)
def test_what_xla_makes_slow_on_a_gpu_is_known_without_a_compilation(layers, op, monkeypatch):
    monkeypatch.setattr("tfcore.graph.xla._device", lambda: "GPU")
    ids = keras.Input([2], dtype="int32", name="ids")
    x = ids
    for layer in layers:
        x = layer(x)
    model = keras.Model({"ids": ids}, keras.layers.Dense(1)(keras.layers.Flatten()(x)))
    assert scatters_under_xla(model, {"ids": tf.TensorSpec([4, 16, 2], tf.int32)}) == op


def test_compiling_repays_itself_sooner_on_a_gpu_and_of_an_ensemble():
    assert repays_compiling(1000, 64, gpu=True) and not repays_compiling(1000, 64)
    assert repays_compiling(1000, 64, members=True)
    assert not repays_compiling(100, 64, gpu=True) and repays_compiling(100, 30_000)
