"""The C++ op that `tfcore.train.ranking` can use, and the parser of classic tf.Examples in TensorFlow's own ops.

`python -m tfcore.ops.compile` compiles the op with g++. Headway works without the op; no exported model contains it.
"""
