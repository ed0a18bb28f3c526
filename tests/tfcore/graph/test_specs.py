"""tfcore.graph.specs: what is bound to a spec, and the one readable error for all else."""

from collections import namedtuple

import keras
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf

from tfcore.graph.function import graph_function
from tfcore.graph.specs import SignatureError, bind, pack

ROWS = tf.TensorSpec([None, 2], tf.float32)
TEXT = tf.TensorSpec([None], tf.string)
Pair = namedtuple("Pair", "left right")


def bound(spec, value):
    (tensor,) = bind("f", {"x": spec}, {"x": value})
    return tensor


def refused(spec, value):
    with pytest.raises(SignatureError) as caught:
        bound(spec, value)
    assert str(caught.value).startswith("f: argument 'x': expected ")
    return str(caught.value)


@pytest.mark.parametrize("make", [tf.constant, tf.Variable, keras.Variable, np.float32])
def test_tensors_variables_and_arrays_are_bound(make):
    assert bound(ROWS, make([[1.0, 2.0]])).numpy().tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (lambda: tf.ragged.constant([[1.0, 2.0]]), ["given RaggedTensor", "values and row_splits"]),
        (lambda: tf.sparse.from_dense([[1.0, 2.0]]), ["given SparseTensor", "indices, values and dense_shape"]),
        (lambda: np.zeros([1, 2], "datetime64[s]"), ["given datetime64[s] [1, 2]"]),
        (lambda: np.zeros(2, [("a", "f4")]), ["given [('a', '<f4')] [2]"]),
        (lambda: pd.Series(["a"], dtype="category"), ["given Series", ".to_numpy()"]),
        (lambda: pd.DataFrame({"a": [1.0], "b": [2.0]}), ["given DataFrame", ".to_numpy()"]),
        (lambda: pa.array([1.0, 2.0]), ["given DoubleArray", ".to_numpy()"]),
        (
            lambda: np.ma.masked_array(np.ones([1, 2], np.float32), [[True, False]]),
            ["given masked float32 [1, 2]", "mask"],
        ),
        (lambda: [[1.0, 2.0]], ["given list", "np.asarray(..., dtype), as float32"]),
        (lambda: keras.KerasTensor([1, 2]), ["given KerasTensor"]),
        (lambda: None, ["given NoneType"]),
    ],
)
def test_what_is_no_tensor_is_named_and_what_to_pass_instead(value, words):
    said = refused(ROWS, value())
    assert "expected float32 [None, 2]" in said
    for word in words:
        assert word in said


def test_text_is_str_or_bytes_and_nothing_else():
    for text in (np.array(["a", b"b"], object), np.array(["a", "b"]), np.array([b"a", b"b"])):
        assert bound(TEXT, text).numpy().tolist() == [b"a", b"b"]
    assert "given object [2] with NoneType in it" in refused(TEXT, np.array(["a", None], object))
    assert "given object [1] with float 1.5 in it" in refused(TEXT, np.array([1.5], object))
    assert "given object [1] with text that UTF-8 cannot encode, " in refused(TEXT, np.array(["\ud800"], object))


def test_structures_are_compared_key_by_key():
    one, wrong = np.ones([1, 2], np.float32), np.ones([1, 2])
    assert bound({"a": (ROWS,)}, {"a": (one,)}).numpy().tolist() == [[1.0, 1.0]]
    assert "the keys ['a'], given the keys ['b', 1]" in refused({"a": ROWS}, {1: 2, "b": 3})
    assert "the keys ['a', 'b'], given the keys ['a']" in refused({"a": ROWS, "b": ROWS}, {"a": one})
    assert "expected 2 values, given 1 values" in refused((ROWS, ROWS), (one,))
    with pytest.raises(SignatureError, match=r"x\['a'\]\[0\]: expected float32 \[None, 2\], given float64 \[1, 2\]"):
        bound({"a": (ROWS,)}, {"a": (wrong,)})


def test_a_namedtuple_stays_one():
    @graph_function(pair=Pair(tf.TensorSpec([], tf.float32), tf.TensorSpec([], tf.float32)))
    def difference(pair):
        return pair.left - pair.right

    assert float(difference(pair=Pair(np.float32(3), np.float32(1)))) == 2.0
    assert pack({"a": [ROWS, Pair(ROWS, ROWS)]}, iter([1, 2, 3])) == {"a": (1, Pair(2, 3))}
