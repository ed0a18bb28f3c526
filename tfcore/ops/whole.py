"""Detects gzip and truncation of TFRecord files that are read without the C++ op.

TensorFlow takes a file that is cut off within the twelve bytes before a record, or a gzip file that is cut off anywhere, for
one that ends there. What was read is therefore held against the size of the file.

    batches = only_of_a_whole_file(batches, path, compression)    # batches of serialized records
    for at, record in records(path): ...                          # in Python, to say what is wrong and where
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import tensorflow as tf

from headway.records.tfrecord import NotWhole, framed, masked

NOT_WHOLE = "not a whole gzip file"
CUT_OFF = "the file is cut off in a record's length"
_HEADER, _AROUND, _READ_BYTES = 12, 16, 1 << 20
_BROKEN_GZIP = (OSError, EOFError, zlib.error)  # an OSError is BadGzipFile


def is_gzip(path: str) -> bool:
    """Whether the file begins like a gzip file and not like a TFRecord file."""
    with tf.io.gfile.GFile(path, "rb") as file:
        head = file.read(_HEADER)
    plain = len(head) == _HEADER and masked(head[:8]) == int.from_bytes(head[8:], "little")
    return bool(head.startswith(b"\x1f\x8b")) and not plain


def only_of_a_whole_file(batches: tf.data.Dataset, path: tf.Tensor, compression: tf.Tensor) -> tf.data.Dataset:
    """Yield `batches` of all records of a file, string [rows]; raise at their end if the file is cut off there.

    In a graph that is an InvalidArgumentError, whose message holds the file, and NOT_WHOLE or CUT_OFF.
    """

    def so_far(total: tf.Tensor, batch: tf.Tensor) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
        total += tf.reduce_sum(tf.cast(tf.strings.length(batch), tf.int64) + _AROUND)
        return total, (batch, total)

    def not_empty(batch: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
        def checked() -> tf.Tensor:
            # not stateful: a dataset's iterator can still be saved in a checkpoint
            return tf.numpy_function(_ends, [path, compression, total], tf.bool, stateful=False)

        return tf.ensure_shape(tf.cond(tf.size(batch) > 0, lambda: True, checked), [])

    end = tf.data.Dataset.from_tensors(tf.constant([], tf.string))
    counted = batches.concatenate(end).scan(tf.constant(0, tf.int64), so_far)
    return counted.filter(not_empty).map(lambda batch, total: batch)


def _ends(path: bytes, compression: bytes, total: np.int64) -> np.bool_:
    """Raise ValueError unless the file ends after `total` bytes; False drops the empty batch that asked."""
    name = path.decode()
    try:
        # more than a header would have been a record: it was appended since
        cut = 0 < _size(name, compression == b"GZIP") - total < _HEADER
    except _BROKEN_GZIP as error:
        raise ValueError(f"{name}: {NOT_WHOLE}: {error}") from None
    if cut:
        raise ValueError(f"{name}: {CUT_OFF} (at byte {total})")
    return np.bool_(False)


def _size(name: str, zipped: bool) -> int:
    """Bytes of the file, inflated."""
    if not zipped:
        return int(tf.io.gfile.stat(name).length)
    size = 0
    with tf.io.gfile.GFile(name, "rb") as file, gzip.GzipFile(fileobj=file) as inflated:
        while piece := inflated.read(_READ_BYTES):
            size += len(piece)
    return size


def records(path: str) -> Iterator[tuple[int, bytes]]:
    """(offset, record) of each record of a file; of its inflated bytes where it is gzip.

    Raises:
        NotWhole: it is cut off or damaged.
        tf.errors.OpError: it cannot be read.
    """
    after = 0
    with ExitStack() as stack:
        file = stack.enter_context(tf.io.gfile.GFile(path, "rb"))
        if is_gzip(path):
            file = stack.enter_context(gzip.GzipFile(fileobj=file))
        try:
            for at, record in framed(file):
                after = at + len(record) + _AROUND
                yield at, record
        except _BROKEN_GZIP as error:
            raise NotWhole(f"{NOT_WHOLE}: {error}", after) from None
