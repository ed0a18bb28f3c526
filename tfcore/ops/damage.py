"""Errors of damaged records, as the C++ op raises them: tf.errors.DataLossError with the record's place.

Of a record that is not a tf.Example TensorFlow's parser gives InvalidArgumentError, and quotes the bytes, which Python often
cannot read: what arrives is a UnicodeDecodeError. No graph can catch an error, so it is translated where Python runs: in an
eager call, and while the dataset of `read_examples` itself is iterated. Inside of other graphs TensorFlow's own error stays.

    in_records(records, parse)                   # DataLossError: not a tf.train.Example (record 2)
    for chunk in translated(dataset, files, parse): ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from headway.records.tfrecord import NotWhole
from tfcore.ops.whole import CUT_OFF, NOT_WHOLE, records

_AT_ONCE = 1024
_SURE = (NOT_WHOLE, CUT_OFF, "Could not parse example", "Unsupported datatype")
_UNSURE = "Can't parse serialized Example"
Parse = Callable[[tf.Tensor], Any]


def may_be_damage(error: Exception) -> bool:
    """Whether TensorFlow's error may mean a record that is not a tf.Example, rather than one with other columns."""
    return is_damage(error) or _UNSURE in str(getattr(error, "message", ""))


def is_damage(error: Exception) -> bool:
    """Whether TensorFlow's error certainly means damage."""
    message = str(getattr(error, "message", ""))
    return isinstance(error, UnicodeDecodeError) or any(words in message for words in _SURE)


def in_records(
    records: Sequence[bytes],
    parse: Parse,
    name: str | None = None,
    first: int = 0,
    begins: Sequence[int] | None = None,
) -> tf.errors.DataLossError | None:
    """The error for serialized records of which one is not a tf.Example; None when the first that fails is one.

    Args:
        name: their file.
        first: the number of the first of them there.
        begins: the bytes at which they begin there.
    """
    begin, end = 0, len(records)
    while end - begin > 1:  # some are refused when one of them is
        middle = (begin + end) // 2
        begin, end = (begin, middle) if _refused(records[begin:middle], parse) else (middle, end)
    error = _refused(records[begin:end], parse) if records else None
    if error is None or not _is_damaged(records[begin], error, parse):
        return None
    place = _place(first + begin, None if begins is None else begins[begin])
    return tf.errors.DataLossError(None, None, f"{name + ': ' if name else ''}not a tf.train.Example {place}")


def _refused(records: Sequence[bytes], parse: Parse) -> Exception | None:
    try:
        parse(tf.constant(records, tf.string))
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError) as error:
        return error
    return None


def _is_damaged(record: bytes, error: Exception, parse: Parse) -> bool:
    if _UNSURE not in str(getattr(error, "message", "")):
        return may_be_damage(error)
    try:  # it says so of too many values too
        example = tf.train.Example.FromString(record)
    except Exception:  # the DecodeError of whatever protobuf this is
        return True
    # protobuf passes over what it does not know, and TensorFlow's parser does not
    example.DiscardUnknownFields()
    return _refused([example.SerializeToString()], parse) is None


def in_files(paths: Sequence[str], parse: Parse) -> tf.errors.DataLossError | None:
    """The error for damaged or truncated TFRecord files, which are read again to find the place."""
    for path in paths:
        read: list[tuple[int, bytes]] = []
        first = 0
        broken = None
        try:
            for entry in records(path):
                read.append(entry)
                if len(read) == _AT_ONCE:
                    if _refused([record for _, record in read], parse):
                        break
                    first, read = first + len(read), []
        except NotWhole as error:
            broken = error
        except tf.errors.OpError:  # gone since
            continue
        if read and _refused([record for _, record in read], parse):
            return in_records([record for _, record in read], parse, path, first, [at for at, _ in read])
        if broken is not None:
            place = _place(first + len(read), broken.at)
            return tf.errors.DataLossError(None, None, f"{path}: {broken.what} {place}")
    return None


def _place(number: int, at: int | None) -> str:
    return f"(record {number})" if at is None else f"(record {number} at byte {at})"


def translated(dataset: tf.data.Dataset, paths: Sequence[str], parse: Parse) -> tf.data.Dataset:
    """`dataset` with its errors of damage in the words of the C++ op."""
    plain = type(dataset)

    def iterate(self: Any) -> Any:
        inner = plain.__iter__(self)
        return _Iterator(inner, lambda: in_files(paths, parse)) if tf.executing_eagerly() else inner

    dataset.__class__ = type(plain.__name__, (plain,), {"__iter__": iterate})
    return dataset


class _Iterator:
    """A dataset's iterator with all its methods."""

    def __init__(self, inner: Any, damage: Callable[[], Exception | None]):
        self._inner, self._damage = inner, damage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return next(self._inner)
        except tf.errors.DataLossError as error:
            raise self._damage() or error from None  # TensorFlow's own names no file
        except (tf.errors.InvalidArgumentError, UnicodeDecodeError) as error:
            damage = self._damage() if may_be_damage(error) else None
            if damage is None and is_damage(error):  # in a file that was changed since
                damage = tf.errors.DataLossError(None, None, _line(error))
            if damage is None:
                raise
            raise damage from None


def _line(error: Exception) -> str:
    """The error's message without the place in TensorFlow that raised it."""
    for line in str(getattr(error, "message", "")).splitlines():
        if NOT_WHOLE in line or CUT_OFF in line:
            return line.removeprefix("ValueError: ")
    return "not a tf.train.Example"


def as_bytes(records: tf.Tensor) -> list[bytes]:
    """The records of an eager tensor."""
    return list(np.asarray(records).reshape(-1).tolist())
