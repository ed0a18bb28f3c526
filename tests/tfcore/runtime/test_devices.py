"""What a process of Headway's computes like."""

import tensorflow as tf

from tfcore.runtime.devices import prepare


def test_products_of_float32_are_those_of_float32():
    tf.config.experimental.enable_tensor_float_32_execution(True)  # TensorFlow's default
    prepare(None)
    assert not tf.config.experimental.tensor_float_32_execution_enabled()
