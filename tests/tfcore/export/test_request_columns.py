"""A word that means a missing value in a text column is a null in every signature, whoever sends it."""

import numpy as np
import tensorflow as tf

from headway.schema.columns import Column
from tfcore.export.request_columns import of_examples, of_tensors
from tfcore.export.signatures import nullable_inputs, raw_inputs

COLUMNS = (
    Column(name="state", type="bytes", nullable=True, null=("",)),
    Column(name="city", type="bytes", nullable=True, null=("", "NA")),
    Column(name="x", type="float32", nullable=True, null=("", "NA")),
    Column(name="plain", type="bytes", nullable=False, null=("NA",)),
)
ROWS = {"state": [b"NA", b"", b"DE"], "city": [b"NA", b"", b"Bonn"], "x": [1.0, 2.0, 3.0], "plain": [b"NA", b"a", b"b"]}
PRESENT = {"state": [True, False, True], "city": [False, False, True], "x": [True, True, True]}


def _check(raw):
    for name, present in PRESENT.items():
        assert raw[name].present.numpy().tolist() == present
    assert raw["plain"].present is None and raw["plain"].plain().numpy().tolist() == ROWS["plain"]
    assert raw["city"].plain().numpy().tolist() == [b"", b"", b"Bonn"]


def test_a_word_for_a_missing_value_is_a_null_in_tensors():
    tensors = {name: tf.constant(np.array(values)) for name, values in ROWS.items()}
    tensors["x"] = tf.cast(tensors["x"], tf.float32)
    _check(of_tensors(tensors, COLUMNS, raw_inputs(COLUMNS)))
    flags = {f"{name}__present": tf.constant([True]) for name in PRESENT}
    _check(of_tensors(tensors | flags, COLUMNS, nullable_inputs(COLUMNS)))


def test_a_word_for_a_missing_value_is_a_null_in_examples():
    records = []
    for i in range(3):
        example = tf.train.Example()
        for name, values in ROWS.items():
            kind = example.features.feature[name]
            (kind.float_list if name == "x" else kind.bytes_list).value.append(values[i])
        records.append(example.SerializeToString())
    _check(of_examples(tf.constant(records), COLUMNS))
