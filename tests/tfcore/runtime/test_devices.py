"""What a process of Headway's computes like."""

import tensorflow as tf

from tfcore.private_api import op_determinism
from tfcore.runtime.devices import prepare, relaxed


def test_products_of_float32_are_those_of_float32():
    tf.config.experimental.enable_tensor_float_32_execution(True)  # TensorFlow's default
    prepare()
    assert not tf.config.experimental.tensor_float_32_execution_enabled()


def test_a_training_s_own_rounding_and_order_end_with_it():
    prepare()
    rounds = tf.config.experimental.tensor_float_32_execution_enabled
    with relaxed(tf32=True, deterministic=False):
        assert rounds() and not op_determinism()
    assert not rounds() and op_determinism()
    with relaxed(tf32=False, deterministic=True):
        assert not rounds() and op_determinism()
