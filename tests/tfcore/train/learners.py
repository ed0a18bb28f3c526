"""Learners that tests share: one of a kind is traced or compiled once, which takes longer than its steps."""

from types import SimpleNamespace

import tensorflow as tf

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


class Kinds:
    """kinds(key, make) -> the learner that make() returned for this key first, with its variables as they were then."""

    def __init__(self):
        self._made = {}

    def __call__(self, key, make):
        if key not in self._made:
            it = make()
            self._made[key] = (
                it,
                [(variable, variable.numpy()) for some in it.variables().values() for variable in some],
            )
        it, begun = self._made[key]
        for variable, value in begun:
            variable.assign(value)
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
