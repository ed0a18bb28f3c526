"""TensorBoard summaries of a training: a scalar for each figure that a callback records, such as loss and learning_rate."""

from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf
from tensorflow.core.framework.summary_pb2 import SummaryMetadata  # tf.compat.v1 has it too, with 240 modules

from tfcore.train.session import Callback, TrainingSession

SCALARS = SummaryMetadata(plugin_data={"plugin_name": "scalars"})
"""What tf.summary.scalar writes beside a value; that function imports TensorBoard for it, which takes half a second."""


class Summaries(Callback):
    """Scalars by step in `folder`. The event file is opened at the first one."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._writer: tf.summary.SummaryWriter | None = None

    def recorded(self, session: TrainingSession, values: Mapping[str, float | None]) -> None:
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(str(self._folder))
        with self._writer.as_default(step=session.step):
            for name, value in values.items():
                if value is not None:
                    tf.summary.write(name, tf.constant(value, tf.float32), metadata=SCALARS)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
