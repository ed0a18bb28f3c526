"""TensorBoard summaries of a training: one scalar each for loss, learning rate, carve loss and rows per second.

summaries = Summaries(Path("summaries"))
summaries.write(200, loss=0.51, learning_rate=0.001)
summaries.close()
"""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf


class Summaries:
    """Scalars by step; silent when made with None. The event file is opened at the first write."""

    def __init__(self, folder: Path | None):
        self._folder = folder
        self._writer: tf.summary.SummaryWriter | None = None

    def write(self, step: int, **values: float | None) -> None:
        """Add the values that are not None at `step`."""
        if self._folder is None:
            return
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(str(self._folder))
        with self._writer.as_default(step=step):
            for name, value in values.items():
                if value is not None:
                    tf.summary.scalar(name, value)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
