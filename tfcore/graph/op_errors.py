"""Explains the failure of a TensorFlow op: reason, op, and the user's line.

    except tf.errors.OpError as error:
        raise explained(error) or error
    # /flights/model.py:31, in call: InvalidArgumentError in op rare/GatherV2: indices[0] = 105 is not in [0, 3)
    #     return tf.gather(self.table, codes)

A graph tells "Graph execution error:" and then, far below frames of its own, where the op was made and why it failed; an
op that runs eagerly inside a Keras layer tells which layer was called before it tells that.
"""

import linecache
import re
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path

import tensorflow as tf

from headway.errors import HeadwayError
from tfcore.graph.python_errors import python_text

_MADE_AT = re.compile(r"^Detected at node (.+?) defined at \(most recent call last\):$", re.M)
_FRAME = re.compile(r'^ *File "(.+?)", line (\d+), in (.+)$', re.M)
_FIRST_OF_MANY = re.compile(r"^\d+ root error\(s\) found\.\s*\(0\) (?:\w+: )?(.*?)(?=^\s*\(1\) |\Z)", re.M | re.S)
_NODES = re.compile(r"\[\[.*?\]\]|\{\{.*?\}\}|\[Op:[^\]]*\]( name:)?|\x1b\[\d*m")
_DATASET = re.compile(r"Error in user-defined function passed to \S+ transformation with iterator: \S+: ")
_KERAS = re.compile(r"^Exception encountered when calling .*$", re.M)
_NODE = re.compile(r"\{\{node (.+?)\}\}")
_OP = re.compile(r"\[Op:(\w+)\]")
_OURS = tuple(str(Path(__file__).parents[2] / package) + "/" for package in ("headway", "beam_jobs", "tfcore", "flows"))
_LIBRARIES = tuple(sysconfig.get_path(name) + "/" for name in ("stdlib", "purelib", "platlib"))
_FROM_OUTSIDE = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)
"""Another worker was lost, or the call was ended: no line of the user's is to blame, though one may lead there."""
_LONG = 600

Frame = tuple[str, int, str]
"""File, line, function."""


def reason(error: tf.errors.OpError) -> str:
    """The reason and the op: "indices[0] = 105 is not in [0, 3) (op rare/GatherV2)"."""
    op = op_of(error)
    return f"{why(error)} (op {op})" if op else why(error)


def explained(error: tf.errors.OpError) -> HeadwayError | None:
    """The error that names the user's line; None where no user's line leads to the op, or the cause came from outside,
    such as a lost worker."""
    if isinstance(error, _FROM_OUTSIDE):
        return None
    text = str(error.message)
    created = [(file, int(line), function) for file, line, function in _FRAME.findall(_creation(text))]
    called = [(f.filename, f.lineno or 0, f.name) for f in traceback.extract_tb(error.__traceback__)]
    theirs = [*_theirs(created)] or [*_theirs(called)]
    if not theirs:
        return None
    file, line, function = theirs[-1]
    source = linecache.getline(file, line).strip()
    op = f" in op {name}" if (name := op_of(error)) else ""
    problem = f"{type(error).__name__}{op}: {why(error)}" + (f"\n    {source}" if source else "")
    explanation = HeadwayError(problem, where=f"{file}:{line}, in {function}")
    explanation.__cause__ = error
    return explanation


def _theirs(frames: Iterable[Frame]) -> Iterable[Frame]:
    """The frames that belong neither to Headway nor to a library."""
    for frame in frames:
        file = frame[0]
        if Path(file).is_file() and not file.startswith((*_OURS, *_LIBRARIES)) and "/site-packages/" not in file:
            yield frame


def _creation(text: str) -> str:
    """The part of the text that says where the first op was created."""
    frames = list(_MADE_AT.finditer(text))
    return text[frames[0].end() : frames[1].start() if len(frames) > 1 else None] if frames else ""


def op_of(error: tf.errors.OpError) -> str | None:
    """The name of the op that failed, where TensorFlow says it."""
    text = str(error.message)
    match = _MADE_AT.search(text) or _NODE.search(text) or _OP.search(text)
    return match[1] if match else None


def why(error: tf.errors.OpError) -> str:
    """The reason, without the op."""
    text = str(error.message)
    if raised := python_text(error):
        return raised
    if frames := list(_FRAME.finditer(text)):
        text = text[frames[-1].end() :]
    if first := _FIRST_OF_MANY.search(text):
        text = first[1]
    text = _DATASET.sub("", _NODES.sub("", text))
    text = _KERAS.sub("", text).partition("Arguments received by ")[0]
    text = " ".join(text.split()) or type(error).__name__
    return text if len(text) <= _LONG else text[:_LONG] + "..."
