"""Extracts the reason from a TensorFlow error's message, where it stands far below stack frames of TensorFlow's own.

except tf.errors.OpError as error:
    print(op_of(error), why(error))              # rare/GatherV2 indices[0] = 105 is not in [0, 3)

with as_store_errors(folder, "the checkpoint of step 5"):
    tf.train.Checkpoint(v=v).write(str(folder / "v"))
# StoreError: <folder>: the checkpoint of step 5 cannot be written: no space left on device
"""

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from headway.errors import StoreError
from headway.messages import short
from headway.storage.atomic_io import FIXES
from tfcore.graph.python_op import python_text

MADE_AT = re.compile(r"^Detected at node (.+?) defined at \(most recent call last\):$", re.M)
FRAME = re.compile(r'^ *File "(.+?)", line (\d+), in (.+)$', re.M)
_FIRST_OF_MANY = re.compile(r"^\d+ root error\(s\) found\.\s*\(0\) (?:\w+: )?(.*?)(?=^\s*\(1\) |\Z)", re.M | re.S)
_NODES = re.compile(r"\[\[.*?\]\]|\{\{.*?\}\}|\[Op:[^\]]*\]( name:)?|\x1b\[\d*m")
_DATASET = re.compile(r"Error in user-defined function passed to \S+ transformation with iterator: \S+: ")
_KERAS = re.compile(r"^Exception encountered when calling .*$", re.M)
_NODE = re.compile(r"\{\{node (.+?)\}\}")
_OP = re.compile(r"\[Op:(\w+)\]")
_NUMBERS = {os.strerror(number): number for number in errno.errorcode}


def op_of(error: tf.errors.OpError) -> str | None:
    """Returns the name of the op that failed; None if the error's message does not name it."""
    text = str(error.message)
    match = MADE_AT.search(text) or _NODE.search(text) or _OP.search(text)
    return match[1] if match else None


def why(error: tf.errors.OpError) -> str:
    """Returns the reason that a TensorFlow error gives, on one line of at most 600 characters, without op names."""
    text = str(error.message)
    if raised := python_text(error):
        return raised
    if frames := list(FRAME.finditer(text)):
        text = text[frames[-1].end() :]
    if first := _FIRST_OF_MANY.search(text):
        text = first[1]
    text = _DATASET.sub("", _NODES.sub("", text))
    text = _KERAS.sub("", text).partition("Arguments received by ")[0]
    return short(" ".join(text.split()) or type(error).__name__, 600)


@contextlib.contextmanager
def as_store_errors(folder: Path, what: str = "") -> Iterator[None]:
    """Within the block, turn an OSError or TensorFlow error into a StoreError: `what` cannot be written to `folder`, and why."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        if isinstance(error, OSError):
            number, reason = error.errno, error.strerror or str(error)
        else:
            # "<path>; No space left on device", or whatever else stopped it
            reason = why(error)
            last = reason.rpartition("; ")[2]
            number = _NUMBERS.get(last)
            reason = last if number else reason
        problem = f"cannot be written: {reason[:1].lower()}{reason[1:]}"
        raise StoreError(
            f"{what} {problem}" if what else problem, where=str(folder), fix=FIXES.get(number) if number else None
        ) from None
