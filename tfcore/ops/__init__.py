"""Classic tf.Examples as dense columns, by a C++ op where it is built, else by TensorFlow's ops; the same tensors.

`python -m tfcore.ops.compile` compiles it with g++, and the op behind `tfcore.losses` too. Nothing needs them, and no exported
model contains one.
"""
