"""A C++ op behind `tfcore.train.ranking`, and the parser of classic tf.Examples in TensorFlow's own ops.

`python -m tfcore.ops.compile` compiles the op with g++. Nothing needs it, and no exported model contains it.
"""
