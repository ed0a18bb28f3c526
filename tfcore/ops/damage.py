"""Records that are no tf.Example, as the op in C++ says so: tf.errors.DataLossError, with the record's place.

TensorFlow's parser gives InvalidArgumentError, and quotes the bytes, which Python often cannot read: what arrives is a
UnicodeDecodeError. No graph can catch an error, so it is translated where Python runs: in an eager call, and while the
dataset of `read_examples` itself is iterated. Inside of other graphs TensorFlow's own error stays.

    in_records(records, parse)                   # DataLossError: not a tf.train.Example (record 2)
    for chunk in translated(dataset, files, parse): ...
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from headway.errors import DataError
from headway.records.tfrecord import read_records

NOT_WHOLE = "not a whole gzip file"
_AT_ONCE = 1024
_SURE = (NOT_WHOLE, "Could not parse example", "Unsupported datatype")
_UNSURE = "Can't parse serialized Example"
Parse = Callable[[tf.Tensor], Any]


def may_be_damage(error: Exception) -> bool:
    """Whether TensorFlow's error may mean a record that is no tf.Example, rather than one of other columns."""
    said = str(getattr(error, "message", ""))
    return isinstance(error, UnicodeDecodeError) or any(words in said for words in (*_SURE, _UNSURE))


def in_records(
    records: Sequence[bytes], parse: Parse, name: str | None = None, first: int = 0
) -> tf.errors.DataLossError | None:
    """The error for serialized records of which one is no tf.Example; None when the first that fails is one."""
    for i, record in enumerate(records):
        error = _refused([record], parse)
        if error is not None:
            place = f"{name}: " if name else ""
            told = tf.errors.DataLossError(None, None, f"{place}not a tf.train.Example (record {first + i})")
            return told if _is_damaged(record, error) else None
    return None


def _refused(records: Sequence[bytes], parse: Parse) -> Exception | None:
    try:
        parse(tf.constant(records, tf.string))
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError) as error:
        return error
    return None


def _is_damaged(record: bytes, error: Exception) -> bool:
    if _UNSURE not in str(getattr(error, "message", "")):
        return may_be_damage(error)
    try:  # it says so of too many values too
        tf.train.Example.FromString(record)
    except Exception:  # the DecodeError of whatever protobuf this is
        return True
    return False


def in_files(paths: Sequence[str], parse: Parse) -> tf.errors.DataLossError | None:
    """The same, of TFRecord files: they are read again to find it."""
    for path in paths:
        found: list[bytes] = []
        first = 0
        with contextlib.suppress(DataError, OSError):  # one that is gzip, or changed since
            for record in read_records(Path(path)):
                found.append(record)
                if len(found) == _AT_ONCE:
                    if _refused(found, parse):
                        return in_records(found, parse, path, first)
                    first, found = first + len(found), []
        if found and _refused(found, parse):
            return in_records(found, parse, path, first)
    return None


def translated(dataset: tf.data.Dataset, paths: Sequence[str], parse: Parse) -> tf.data.Dataset:
    """`dataset`, whose own iteration says of damage what the op would say."""
    plain = type(dataset)

    def iterate(self: Any) -> Any:
        inner = plain.__iter__(self)
        return _Iterator(inner, lambda: in_files(paths, parse)) if tf.executing_eagerly() else inner

    dataset.__class__ = type(plain.__name__, (plain,), {"__iter__": iterate})
    return dataset


class _Iterator:
    """A dataset's iterator, and everything that it can."""

    def __init__(self, inner: Any, damage: Callable[[], Exception | None]):
        self._inner, self._damage = inner, damage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return next(self._inner)
        except (tf.errors.InvalidArgumentError, UnicodeDecodeError) as error:
            said = str(getattr(error, "message", ""))
            if NOT_WHOLE in said:
                line = next(line for line in said.splitlines() if NOT_WHOLE in line)
                raise tf.errors.DataLossError(None, None, line.removeprefix("ValueError: ")) from None
            damage = self._damage() if may_be_damage(error) else None
            if damage is None and isinstance(error, UnicodeDecodeError):  # in a file that is not read again
                damage = tf.errors.DataLossError(None, None, "not a tf.train.Example")
            if damage is None:
                raise
            raise damage from None


def as_bytes(records: tf.Tensor) -> list[bytes]:
    """The records of an eager tensor."""
    return list(np.asarray(records).reshape(-1).tolist())
