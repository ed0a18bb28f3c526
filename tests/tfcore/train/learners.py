"""Learners that tests share: one of a kind is traced or compiled once, which takes longer than its steps."""

from types import SimpleNamespace

import numpy as np
import tensorflow as tf

from tfcore.models.build import build
from tfcore.models.precision import LossScale
from tfcore.train.loop import Learner
from tfcore.train.step import StepConfig

B, NUMERIC, SIZES = 16, 3, (5, 7)
"""Rows of a batch, numbers of a row, and the size of each vocabulary."""
LAYOUT = SimpleNamespace(
    numeric=("a", "b", "c"),
    categorical=tuple(SimpleNamespace(name=str(i), size=size) for i, size in enumerate(SIZES)),
    lists=(),
    inputs=lambda: {"numeric": ((NUMERIC,), "float32"), "categorical": ((len(SIZES),), "int32")},
    label=SimpleNamespace(task="binary", classes=None),
)


def specs_of(batches):
    """The specs of so many batches in a stack."""
    return {
        "numeric": tf.TensorSpec([batches, B, NUMERIC], tf.float32),
        "categorical": tf.TensorSpec([batches, B, len(SIZES)], tf.int32),
        "label": tf.TensorSpec([batches, B], tf.float32),
        "weight": tf.TensorSpec([batches, B], tf.float32),
    }


def batch(step):
    """Batch number `step` of an endless stream."""
    rng = np.random.default_rng(step)
    numeric = rng.standard_normal((B, NUMERIC), np.float32)
    return {
        "numeric": numeric,
        "categorical": rng.integers(0, SIZES, (B, len(SIZES))).astype(np.int32),
        "label": (numeric.sum(1) + rng.standard_normal(B) > 0).astype(np.float32),
        "weight": rng.uniform(0.5, 2, B).astype(np.float32),
    }


def stacked(batches):
    return {name: tf.constant(np.stack([one[name] for one in batches])) for name in batches[0]}


class Learners:
    """Learners as if each were new; those of one kind are one, with its variables as they were at first.

    Args:
        steps: how many a call makes.
        model: of the built-in model.
        optimizer: where a kind has no other.
    """

    def __init__(self, steps, model, optimizer):
        self.specs, self._model, self._optimizer, self._made = specs_of(steps), model, optimizer, {}

    def __call__(self, jit="off", *, model=None, scheduled=(), optimizer=None, head="binary", good_steps=None, **more):
        """A learner; in float16 its loss scale is doubled after `good_steps`.

        Args:
            more: of the model, `dropout` and `precision`, or of StepConfig.
        """
        given = {"dropout": 0.2, "precision": "float32"} | more
        dropout, precision = given.pop("dropout"), given.pop("precision")

        def make():
            step = tf.Variable(0, dtype=tf.int64, trainable=False)
            config = self._model.model_copy(update={"dropout": dropout})
            built = model or build(config, LAYOUT, seed=7, step=step, precision=precision)
            if precision == "float16":
                given["scale"] = LossScale() if good_steps is None else LossScale(good_steps=good_steps)
            config = StepConfig(optimizer=optimizer or self._optimizer, values=("learning_rate", *scheduled), **given)
            return Learner(model=built, head=head, step=step, specs=self.specs, config=config, jit=jit)

        kind = None if model else repr((jit, sorted(scheduled), optimizer, head, good_steps, more))
        if model or kind not in self._made:
            it = make()
            self._made[kind] = it, [(v, v.numpy()) for some in it.variables().values() for v in some]
        it, begun = self._made[kind]
        for variable, value in begun:
            variable.assign(value)
        it.in_row = np.int32(0)
        return it


class Turn:
    """A training with variables of its own in a learner that takes turns: they are put in before it runs, and taken out
    after. All else goes on from one training to the next, which a comparison of their bits shows."""

    def __init__(self, learner, begun=None):
        self._learner = learner
        self._own = {
            group: [tf.Variable(v.numpy(), dtype=v.dtype, name=v.name.split(":")[0], trainable=False) for v in some]
            for group, some in (begun or learner.variables()).items()
        }

    def again(self):
        """Another training that begins where this one is."""
        return Turn(self._learner, self._own)

    def variables(self):
        return self._own

    def run(self, steps):
        """steps(learner) with this training's variables."""
        pairs = [
            pair for group, own in self._own.items() for pair in zip(own, self._learner.variables()[group], strict=True)
        ]
        for own, inside in pairs:
            inside.assign(own)
        steps(self._learner)
        for own, inside in pairs:
            own.assign(inside)
