"""Fetches shards from a bucket while a stage runs: each is on the disk before it is read.

with staged(remote, monitor) as stager:      # None when all files are here already
    shards = Shards.of(parts, stager)
    records = tf.data.TFRecordDataset(local_path(path, stager))     # in a dataset's function, where there is a stager
"""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from headway.messages import counted
from headway.monitor import Monitor
from headway.storage.prefetch import RemoteFiles, Stager


@contextlib.contextmanager
def staged(remote: RemoteFiles | None, monitor: Monitor) -> Iterator[Stager | None]:
    """Yields a stage's stager, None without `remote`; logs at the end what it fetched and how long the stage waited."""
    if remote is None:
        yield None
        return
    with Stager(remote, cancelled=monitor.cancelled) as stager:
        yield stager
        if stager.fetched:
            monitor.log(
                f"fetched {counted(stager.fetched, 'shard')}, {stager.fetched_bytes / 1e6:,.1f} MB, while reading; "
                f"waited {stager.waited:.1f} s for them"
            )


def local_path(path: tf.Tensor, stager: Stager) -> tf.Tensor:
    """Returns the path of a file, a string tensor, once it is on this disk; `stager.error` keeps errors of `ensure`."""
    local = tf.numpy_function(lambda name: stager.ensure(name.decode()).encode(), [path], tf.string)
    return tf.ensure_shape(local, [])
