"""A training's pieces without the training: its rows, model, learner and knobs, on one device whatever its strategy.

with pieces(request, monitor, stager) as training:
    training.learner, training.data, training.start
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tensorflow as tf

from headway.monitor import Monitor
from headway.storage.prefetch import Stager
from tfcore.distribute.placement import Choice, place
from tfcore.train.request import TrainRequest
from tfcore.train.stage import _Training


@contextmanager
def pieces(
    request: TrainRequest, monitor: Monitor, stager: Stager | None, checkpoints: Path | None = None
) -> Iterator[_Training]:
    """See the module. The request's checkpoints, summaries and control file are neither read nor written.

    Args:
        checkpoints: a folder of its own to resume from.
    """
    alone = request.model_copy(update={"checkpoints": checkpoints, "summaries": None, "control": None})
    gpus = len(tf.config.list_physical_devices("GPU"))
    training = _Training(alone, monitor, stager, None, lambda: place(Choice("gpu" if gpus else "cpu"), gpus=gpus))
    with training.placement.device_scope():
        yield training
