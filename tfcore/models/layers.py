"""Keras layers of the built-in models.

x = OffsetEmbedding(sizes=(13, 32), width=8, seed=3)(ids)        # int32 [rows, 2] -> float32 [rows, 2, 8]
x = HashDropout(0.1, seed=3, salt=0, step=step)(x)

Importing this module registers them with Keras: a model with them is saved, and `keras.models.load_model` loads it.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfcore.graph.scheduled import scheduled
from tfcore.graph.xla import compiling_for_gpu

MOST_ONE_HOT = 2**22
"""The most elements of the one-hot matrix that replaces an embedding's scatter on a GPU; beyond them sums over sorted
ids take less time."""

_FIRST_ROW: ContextVar[Any] = ContextVar("first_row", default=None)
UNITS: ContextVar[Any] = ContextVar("units", default=None)
"""The split's unit of each row of the batch, int64 [rows], negative for a row without one; None: rows have no units."""
_U32, _U32S = tf.TensorSpec([], tf.uint32), tf.TensorSpec([None], tf.uint32)


@contextmanager
def rows_from(first: Any, units: Any = None) -> Iterator[None]:
    """Within the block layers know which rows of the batch they get: all if `first` is None, else the rows from `first`
    on, an int or int32 scalar. `units` is the value of `UNITS` within the block."""
    tokens = _FIRST_ROW.set(first), UNITS.set(units)
    try:
        yield
    finally:
        _FIRST_ROW.reset(tokens[0])
        UNITS.reset(tokens[1])


class ConfigLayer(keras.layers.Layer):
    """The base class of layers that Keras saves by their arguments. By default the output has the shape of the input.

    Args:
        made_of: the arguments by name: numbers, lists of numbers, regularizers and initializers.
    """

    def __init__(self, made_of: dict[str, Any], **keywords: Any):
        super().__init__(**keywords)
        # as text: Keras would track a dict or a list that is an attribute of a layer
        self._made_of = json.dumps(made_of, default=_plain)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | json.loads(self._made_of)


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else keras.saving.serialize_keras_object(value)


@keras.saving.register_keras_serializable("headway")
class HashDropout(ConfigLayer):
    """Dropout whose mask is a pure function of (seed, step, salt, index in the batch).

    Keras' Dropout draws its mask from a counter that a checkpoint can miss, gives other bits under XLA than without,
    and is many times slower there. A uint32 hash is the same everywhere and needs no state besides the training step.

    Args:
        rate: the share of units dropped, unless "dropout" is scheduled; the others are scaled by 1 / (1 - rate).
        seed: the seed of the model.
        salt: the layer's number within the model.
        step: int64 variable that the training loop counts up; None in a model that only predicts, such as a loaded one.
    """

    def __init__(self, rate: float, *, seed: int, salt: int, step: tf.Variable | None = None, **keywords: Any):
        super().__init__({"rate": rate, "seed": seed, "salt": salt}, **keywords)
        self.rate, self.seed, self.salt = rate, seed, salt
        self._step = [step]  # in a list Keras does not take it for a weight of the model
        self.supports_masking = True

    def call(self, inputs: Any, training: bool = False) -> Any:
        if not training:
            return inputs
        rate = scheduled("dropout", self.rate)
        step = self._step[0]
        if step is None:
            raise ValueError("this model was built to predict: it has no step to draw dropout masks from")
        keep = hash_uniform(tf.shape(inputs), self.seed, step, self.salt, first=_FIRST_ROW.get()) >= rate
        return tf.where(keep, inputs * tf.cast(1.0 / (1.0 - rate), inputs.dtype), tf.zeros_like(inputs))


def hash_uniform(shape: Any, seed: int, step: Any, salt: int, *, first: Any = None) -> tf.Tensor:
    """Returns float32 numbers in [0, 1) of `shape`: a hash of (seed, step, salt, index), the same with and without XLA.

    With `first` they are the numbers for the rows of a longer batch, from row `first` on."""
    index = tf.range(tf.reduce_prod(shape))
    if first is not None:
        index += first * tf.reduce_prod(shape[1:])
    bits = _hash_bits(tf.cast(index, tf.uint32), tf.cast(step, tf.int64), _u32(seed & 0xFFFFFFFF), _u32(salt))
    # 24 bits: what a float32 in [0, 1) holds exactly
    return tf.reshape(tf.cast(tf.bitwise.right_shift(bits, _u32(8)), tf.float32) * (1.0 / (1 << 24)), shape)


# A function, since its hundred ops would be traced anew for each layer.
@tf.function(input_signature=[_U32S, tf.TensorSpec([], tf.int64), _U32, _U32], autograph=False)
def _hash_bits(index: tf.Tensor, step: tf.Tensor, seed: tf.Tensor, salt: tf.Tensor) -> tf.Tensor:
    key = tf.zeros([], tf.uint32)
    # bitcast, since a cast of an int64 beyond 2**32 to uint32 is undefined on some devices
    low_high = tf.bitcast(step, tf.uint32)
    for part in (seed, low_high[0], low_high[1], salt):
        key = _mix(tf.bitwise.bitwise_xor(key, part) + _u32(0x9E3779B9))
    return _mix(_mix(tf.bitwise.bitwise_xor(index * _u32(0x9E3779B9), key)) + key)


def row_hash(inputs: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns a hash of each row's values in all `inputs`, float32 or int32 [rows, n]; int32 [rows], at least 0."""
    total = tf.constant(0, tf.uint32)
    for matrix in inputs:
        places = _mix(tf.constant(np.arange(matrix.shape[1], dtype=np.uint32)) + _u32(0x9E3779B9))
        bits = tf.bitcast(matrix + tf.zeros([], matrix.dtype), tf.uint32)  # -0.0 becomes 0.0
        total = _mix(total + tf.reduce_sum(_mix(tf.bitwise.bitwise_xor(bits, places)), axis=1))
    return tf.cast(tf.bitwise.right_shift(total, _u32(1)), tf.int32)


def _mix(x: tf.Tensor) -> tf.Tensor:
    """Mix the bits of uint32 numbers with full avalanche, by xorshift and two odd multipliers."""
    x = tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, _u32(16))) * _u32(0x7FEB352D)
    x = tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, _u32(15))) * _u32(0x846CA68B)
    return tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, _u32(16)))


def _u32(value: int) -> tf.Tensor:
    return tf.constant(value, tf.uint32)


@keras.saving.register_keras_serializable("headway")
class Shift(ConfigLayer):
    """Adds one trained number per output.

    Args:
        initializer: the initializer of the numbers.
    """

    def __init__(self, initializer: Any = "zeros", **keywords: Any):
        super().__init__({"initializer": initializer}, **keywords)
        self.initializer = keras.initializers.get(initializer)

    def build(self, input_shape: Any) -> None:
        self.bias = self.add_weight(name="bias", shape=(input_shape[-1],), initializer=self.initializer)
        self.built = True

    def call(self, inputs: Any) -> Any:
        return inputs + self.bias


class _Embeddings(ConfigLayer):
    """The base class of layers that embed several columns by one table; `starts` has the row of each column's id 0.

    Args:
        sizes: number of ids of each column.
        width: the width of every embedding.
        seed, initial: the initial values: "uniform" draws from [-0.05, 0.05) by the seed, as in Keras; "zeros" are 0.
        regularizer, more: the regularizer of the table, and further arguments of the subclass.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        width: int,
        *,
        seed: int,
        initial: str = "uniform",
        regularizer: keras.regularizers.Regularizer | None = None,
        more: dict[str, Any] | None = None,
        **keywords: Any,
    ):
        made_of = {"sizes": sizes, "width": width, "seed": seed, "initial": initial, "regularizer": regularizer}
        super().__init__(made_of | (more or {}), **keywords)
        self._regularizer = keras.regularizers.get(regularizer)
        self.starts = np.concatenate(([0], np.cumsum(sizes)))[:-1].astype(np.int32)
        self.rows, self.width = int(sum(sizes)), width
        self._initializer = (
            keras.initializers.Zeros()
            if initial == "zeros"
            else keras.initializers.RandomUniform(-0.05, 0.05, seed=seed)
        )

    def build(self, input_shape: Any) -> None:
        # float32 whatever the layer computes in: the gradients of many rows with one id are added up in it
        self.table = self.add_weight(
            name="table",
            shape=(self.rows, self.width),
            initializer=self._initializer,
            regularizer=self._regularizer,
            autocast=False,
        )
        self.built = True


def look_up_rows(table: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Returns the row of `table` ([rows, width]) for each of `ids`, [*shape of ids, width].

    On a GPU, deterministic XLA adds the gradients of the rows one after the other. That takes sixty times as long as the
    whole step. So the gradient there is a matrix product with the ids as one-hot rows. If the one-hot matrix would have more
    than `MOST_ONE_HOT` elements, it is `sum_by_id`.
    """
    rows, width = table.shape
    count = ids.shape.num_elements()
    if not compiling_for_gpu() or not count:
        return tf.gather(table, ids)

    @tf.custom_gradient
    def gathered(table: tf.Tensor) -> Any:
        def backward(upstream: tf.Tensor) -> tf.Tensor:
            terms, flat = tf.reshape(upstream, [-1, width]), tf.reshape(ids, [-1])
            if rows * count > MOST_ONE_HOT:
                return sum_by_id(terms, flat, rows)
            return tf.matmul(tf.one_hot(flat, rows, dtype=upstream.dtype), terms, transpose_a=True)

        return tf.gather(table, ids), backward

    return gathered(table)


def sum_by_id(terms: tf.Tensor, ids: tf.Tensor, rows: int) -> tf.Tensor:
    """Returns the sum of the terms of each id from 0 to rows - 1, [rows, width]. Terms are always added in the same
    order, without a scatter.

    Args:
        terms: [count, width]; the count is known when the graph is traced.
        ids: int32 [count], the id of each term.
    """
    count, width = terms.shape
    order = tf.argsort(ids, stable=True)
    ids, terms = tf.gather(ids, order), tf.gather(terms, order)
    distance = 1
    while distance < count:  # a term then holds the sum of twice as many before it, as far as they have its id
        same = tf.concat([tf.zeros([distance], tf.bool), ids[distance:] == ids[:-distance]], 0)
        before = tf.concat([tf.zeros([distance, width], terms.dtype), terms[:-distance]], 0)
        terms += tf.where(same[:, None], before, tf.zeros_like(before))
        distance *= 2
    # the last term of an id has its sum: each row looks for its own by halving
    row, passed = tf.range(rows), tf.zeros([rows], tf.int32)
    while distance:
        further = passed + distance
        fits = (further <= count) & (tf.gather(ids, tf.minimum(further, count) - 1) <= row)
        passed = tf.where(fits, further, passed)
        distance //= 2
    last = tf.maximum(passed - 1, 0)
    sums = tf.gather(terms, last)
    return tf.where((tf.gather(ids, last) == row)[:, None], sums, tf.zeros_like(sums))


@keras.saving.register_keras_serializable("headway")
class OffsetEmbedding(_Embeddings):
    """A layer that embeds categorical columns with one id per row.

    One gather forward and one scatter backward serve all columns. A gather and a scatter for each column would be most
    of a step's cost."""

    def call(self, inputs: Any) -> Any:
        """Returns the embeddings [rows, columns, width] of int32 ids [rows, columns]."""
        return tf.cast(look_up_rows(tf.convert_to_tensor(self.table), inputs + self.starts), self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (*input_shape, self.width)


@keras.saving.register_keras_serializable("headway")
class ListEmbedding(_Embeddings):
    """A layer that embeds list columns: the embedding of a row's list is the mean over its ids, or 0 if it is empty.

    Args:
        lengths: the number of slots of each column; the inputs have all columns' slots in a row, -1 in empty slots.
        power: the sum of a list's embeddings is divided by (number of ids) ** power; with 1 this is the mean.
    """

    def __init__(
        self, sizes: Sequence[int], lengths: Sequence[int], width: int, *, power: float = 1.0, **keywords: Any
    ):
        super().__init__(sizes, width, more={"lengths": lengths, "power": power}, **keywords)
        self.offsets, self.lengths, self.power = np.repeat(self.starts, lengths), tuple(lengths), power

    def call(self, inputs: Any) -> Any:
        """Returns the mean embeddings [rows, columns, width] of int32 ids [rows, slots]."""
        held = inputs >= 0
        vectors = look_up_rows(tf.convert_to_tensor(self.table), tf.where(held, inputs + self.offsets, 0))
        weight = tf.cast(held, vectors.dtype)[:, :, None]
        means = []
        for values, weights in zip(
            tf.split(vectors * weight, self.lengths, 1), tf.split(weight, self.lengths, 1), strict=True
        ):
            count = tf.reduce_sum(weights, 1)
            if self.power != 1.0:  # at least one id, whose power has a gradient
                count = tf.pow(tf.maximum(count, 1.0), self.power)
            means.append(tf.math.divide_no_nan(tf.reduce_sum(values, 1), count))
        return tf.cast(tf.stack(means, 1), self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (input_shape[0], len(self.lengths), self.width)
