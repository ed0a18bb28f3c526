"""Classic tf.Examples as dense columns: by an op in C++ where it is built, else by TensorFlow's own; the same tensors.

    for chunk in read_examples(["others.tfrecord.gz"], [Column(name="age", type="float32", nullable=True)]):
        chunk["age"], chunk["age/present"]           # float32 [rows], bool [rows]

`python -m tfcore.ops.compile` compiles it with g++, and the op behind `tfcore.losses` too. Nothing needs them, and no exported
model contains one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfcore.ops.example_parser import parse_examples, read_examples, read_runs

__all__ = ["parse_examples", "read_examples", "read_runs"]


def __getattr__(name: str) -> Any:
    # on first use: importing the package imports no TensorFlow
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tfcore.ops import example_parser

    return getattr(example_parser, name)
