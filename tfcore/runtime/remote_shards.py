"""Fetches shards from a bucket while a stage runs: each is on the disk before it is read.

with staged(remote, monitor) as stager:      # None when all files are here already
    shards = Shards.of(parts, stager)
    records = tf.data.TFRecordDataset(here(path, stager))     # in a dataset's function
"""

import contextlib
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from headway.messages import counted
from headway.monitor import Monitor
from headway.storage.prefetch import RemoteFiles, Stager


@contextlib.contextmanager
def staged(remote: RemoteFiles | None, monitor: Monitor) -> Iterator[Stager | None]:
    """The stager of a stage; logs at the end what it fetched and how long the stage waited for it."""
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


def here(paths: tf.Tensor, stager: Stager | None) -> tf.Tensor:
    """The paths, string [] or [n], once their files are on this disk. `stager.error` keeps what `ensure` raises."""
    if stager is None:
        return paths

    def ensure(names: bytes | np.ndarray) -> np.ndarray:
        local = [stager.ensure(name.decode()).encode() for name in np.atleast_1d(np.asarray(names, object))]
        return np.asarray(local, object).reshape(np.shape(names))

    local_paths = tf.numpy_function(ensure, [paths], tf.string)
    local_paths.set_shape(paths.shape)
    return local_paths
