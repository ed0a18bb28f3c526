"""Tools for tf.function that stand alone: signatures, retracing, Python ops, scheduled numbers, shared state."""
