"""Tools for tf.function that stand alone: signatures, retracing, Python ops, knobs, shared state."""
