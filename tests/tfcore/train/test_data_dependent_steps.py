"""What the compiled steps decide on their own: micro-batches, the loss scale, and where they end; in every mode alike."""

from functools import cache

import keras
import numpy as np
import pytest
import tensorflow as tf

from headway.monitor import Monitor
from headway.tasks.table import task_of
from tests.exact_resume import assert_resumes_exactly
from tests.same_bytes import assert_same_bytes
from tests.tfcore.train.learners import B, Learners, Turn, batch, stacked
from tfcore.heads.head import BinaryHead
from tfcore.models.config import ModelConfig
from tfcore.models.layers import OffsetEmbedding
from tfcore.models.precision import FIRST, LossScale, computing_in
from tfcore.train.callbacks import Recorder
from tfcore.train.config import OptimizerConfig
from tfcore.train.loop import run

pytestmark = pytest.mark.long
K = 8
learner = Learners(
    K, ModelConfig(name="mlp", hidden=(8,), embedding=3), OptimizerConfig(name="sgd", settings={"momentum": 0.9})
)


def stack(first=0, spoilt=()):
    """Batches first .. first + K - 1 of an endless stream; in those that are spoilt one number is none."""
    batches = [batch(step) for step in range(first, first + K)]
    for step in {*spoilt} & {*range(first, first + K)}:
        batches[step - first]["numeric"][B - 1, 0] = np.nan
    return stacked(batches)


def stacks(step, **spoilt):
    while True:
        yield stack(step, **spoilt)
        step += K


def rates(rate=0.05, **scheduled):
    return {name: np.full(K, value, np.float32) for name, value in ({"learning_rate": rate} | scheduled).items()}


def train(it, total, start=0, batches=stacks, rate=0.05, **options):
    return run(it, batches, start=start, total=total, values=lambda first, count: rates(rate), **options)


def eagerly(it, stack, *, steps, values):
    """The same steps without a graph: every op at once, the loop and its conditions in Python."""
    made, ran, counts = it._train_steps(
        stack,
        tf.constant(0),
        tf.constant(steps),
        {n: tf.constant(v) for n, v in values.items()},
        tf.constant(it.in_row),
    )
    it.in_row = counts.numpy()
    return {name: value.numpy()[: int(ran)] for name, value in made.items()}


# --- micro-batches


NUMBERS = {"positive_weight": 3.0, "label_smoothing": 0.1}


@cache
def whole_batches(steps):
    """(the outcomes of three calls of so many steps without micro-batches, the weights at the end)."""
    whole = learner(scheduled=NUMBERS, clip_norm=0.5)
    outcomes = [whole.run(stack(first), first=0, steps=steps, values=rates(**NUMBERS)) for first in (0, K, 2 * K)]
    return outcomes, whole.model.get_weights()


@pytest.mark.parametrize(("jit", "count"), [("off", 16), ("on", 4), ("eager", 4)])
def test_micro_batches_make_the_step_of_the_whole_batch(jit, count):
    """Rows of unlike weights, dropout masks by row and every number that changes a weight: to float tolerance the same."""
    steps = 1 if jit == "eager" else K  # op by op many micro-batches take a second
    expected, weights = whole_batches(steps)
    it = learner("off" if jit == "eager" else jit, scheduled=NUMBERS, clip_norm=0.5, micro_batches=count)
    traces = it.traces if jit == "eager" else 1
    for i in range(3):
        batches, given = stack(i * K), rates(**NUMBERS)
        if jit == "eager":
            found = eagerly(it, batches, steps=steps, values=given)
        else:
            found = vars(it.run(batches, first=0, steps=steps, values=given))
        np.testing.assert_allclose(found["losses"], expected[i].losses, rtol=2e-5)
        np.testing.assert_allclose(found["weights"], expected[i].weights, rtol=1e-6)
    for found, wanted in zip(it.model.get_weights(), weights, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert it.traces == traces


@pytest.mark.parametrize("jit", ["off", "on"])
def test_one_micro_batch_that_is_not_finite_skips_the_whole_step(jit):
    it = learner(jit, scheduled=NUMBERS, clip_norm=0.5, micro_batches=4)
    it.run(stack(), first=0, steps=2, values=rates(**NUMBERS))
    before = it.model.get_weights()
    outcome = it.run(stack(spoilt=[2]), first=2, steps=1, values=rates(**NUMBERS))
    assert outcome.applied.tolist() == [False]
    assert_same_bytes(it.model.get_weights(), before)


# --- where the steps end


@pytest.mark.parametrize("jit", ["off", "on", "eager"])
def test_steps_that_stay_not_finite_end_the_call_at_the_last_of_them(jit):
    it = learner("off" if jit == "eager" else jit, limit=3)
    batches = stack(spoilt=[1, 3, 4, 5, 6])
    if jit == "eager":
        applied = eagerly(it, batches, steps=K, values=rates())["applied"]
    else:
        applied = it.run(batches, first=0, steps=K, values=rates()).applied
    assert applied.tolist() == [True, False, True, False, False, False]
    assert it.ended
    assert int(it.step) == 6


def test_the_row_of_steps_that_are_not_finite_goes_on_from_call_to_call():
    it = learner(limit=3)
    outcomes = [it.run(stack(spoilt=[2, 3, 4]), first=i, steps=1, values=rates()) for i in range(4)]
    assert not it.ended and it.in_row == 2
    assert [len(o.losses) for o in outcomes] == [1, 1, 1, 1]
    it.run(stack(spoilt=[2, 3, 4]), first=4, steps=4, values=rates())
    assert it.ended and int(it.step) == 5
    assert len(it.run(stack(), first=5, steps=3, values=rates()).losses) == 0


# --- mixed precision


def test_a_loss_scale_is_halved_and_doubled_alike_in_graph_and_eager_mode():
    flags = np.random.default_rng(3).random((60, 2)) > 0.15  # applied, and if not, whether the loss was a number
    value, good, expected = FIRST, 0, []
    for applied, finite in flags:
        retryable = bool(not applied and finite and value > 1)
        value, good = (value, good + 1) if applied else (max(value / 2, 1.0), 0)
        if good == 4:
            value, good = value * 2, 0
        expected.append((retryable, value, good))
    for mode in ("eager", "graph"):
        scale = LossScale(good_steps=4)
        update = tf.function(scale.update, autograph=False) if mode == "graph" else scale.update
        found = []
        for applied, finite in flags:
            retryable = bool(update(tf.constant(applied), tf.constant(finite)))
            found.append((retryable, float(scale.value), int(scale.good)))
        assert found == expected
    for _ in range(20):
        scale.update(tf.constant(False), tf.constant(True))
    assert float(scale.value) == 1.0
    assert not bool(scale.update(tf.constant(False), tf.constant(True)))  # smaller it cannot be: that step is lost


class InUnits(BinaryHead):
    """Its objective is divided by label_std squared."""

    degree = 2


IN_UNITS = InUnits(task_of("binary"))


def in_float16(jit):
    """Compiled, in micro-batches: one program for what is below."""
    options = {"head": IN_UNITS, "label_std": 0.01, "micro_batches": 2 if jit == "on" else 1, "limit": 1}
    return learner(jit, precision="float16", dropout=0.0, good_steps=15, **options)


@pytest.mark.parametrize("jit", ["off", "on"])
def test_float16_finds_its_loss_scale_and_learns_while_no_step_counts_as_gone_wrong(jit):
    """An objective 1e4 times as large overflows at first; the limit of one step would end any training at that."""
    recorder = Recorder(total=400, batch=B, monitor=Monitor())
    it = in_float16(jit)
    outcomes = []

    def report(step, outcome):
        recorder(step, outcome)
        outcomes.append(outcome)

    assert train(it, 400, rate=1e-5, report=report) == 400
    losses = np.concatenate([o.losses for o in outcomes])
    applied = np.concatenate([o.applied for o in outcomes])
    assert not applied[0] and applied[-100:].mean() > 0.9
    assert recorder.skipped == recorder.retryable == (~applied).sum() > 2
    assert np.isfinite(losses).all() and losses[-50:].mean() < losses[:50].mean() - 0.05
    assert 1.0 <= float(it.train_step.scale.value) < FIRST
    assert {v.dtype.name for v in it.variables()["model"] if v.dtype.is_floating} == {"float32"}
    assert it.traces == 1


def test_what_is_not_finite_for_its_data_counts_in_float16_too():
    it = learner(precision="float16", limit=3)
    outcome = it.run(stack(spoilt=[2, 3, 4, 5]), first=0, steps=K, values=rates())
    assert len(outcome.losses) == 5 and it.ended
    assert not outcome.retryable.any()


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision_is_near_float32_and_its_variables_and_output_are_float32(precision):
    plain, mixed = learner(dropout=0.0), learner(dropout=0.0, precision=precision)
    one, two = (it.run(stack(), first=0, steps=K, values=rates()) for it in (plain, mixed))
    assert two.applied.all()
    np.testing.assert_allclose(two.losses, one.losses, rtol=0.03)
    assert not np.array_equal(two.losses, one.losses)  # it does compute in fewer bits
    example = {name: stack()[name][0] for name in ("numeric", "categorical")}
    assert mixed.model(example).dtype == tf.float32
    assert {v.dtype for v in mixed.model.variables if "float" in v.dtype} == {"float32"}
    assert keras.config.dtype_policy().name == "float32"


def test_many_rows_of_one_id_lose_nothing_when_their_gradients_are_added_up():
    """In float16 a sum of ones ends at 2,048: what is added to it then is rounded away."""
    with computing_in("float16"):
        layer = OffsetEmbedding((3,), 2, seed=0)
    with tf.GradientTape() as tape:
        out = layer(tf.zeros([5000, 1], tf.int32))
        total = tf.reduce_sum(tf.cast(out, tf.float32))
    assert out.dtype == tf.float16
    gradient = tf.convert_to_tensor(tape.gradient(total, layer.table.value))
    assert gradient.numpy()[0].tolist() == [5000.0, 5000.0]


def test_a_resume_carries_the_loss_scale_and_micro_batches_change_no_bit_of_it(tmp_path):
    """Compiled by XLA; what is restored is the same uncompiled, and test_stage.py resumes such a training."""
    begun = Turn(in_float16("on"))

    def go(turn, first, end):
        turn.run(lambda it: train(it, end, first, rate=1e-5))

    whole = assert_resumes_exactly(begun.again, go, Turn.variables, steps=40, stops=(23,), folder=tmp_path)
    assert float(whole.variables()["loss_scale"][0]) != FIRST
