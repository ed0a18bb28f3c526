"""A training session that is inspected and not run, on one device whatever its strategy.

with debug_session(request, monitor, stager) as session:
    session.learner, session.data, session.start
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
from tfcore.train.session import TrainingSession


@contextmanager
def debug_session(
    request: TrainRequest, monitor: Monitor, stager: Stager | None, checkpoints: Path | None = None
) -> Iterator[TrainingSession]:
    """See the module. The request's checkpoints, summaries and control file are neither read nor written.

    Args:
        checkpoints: a folder of its own to resume from.
    """
    alone = request.model_copy(update={"checkpoints": checkpoints, "summaries": None, "control": None})
    gpus = len(tf.config.list_physical_devices("GPU"))
    session = TrainingSession(
        alone, monitor, stager=stager, placed=lambda: place(Choice("gpu" if gpus else "cpu"), gpus=gpus)
    )
    with session.placement.device_scope():
        yield session
