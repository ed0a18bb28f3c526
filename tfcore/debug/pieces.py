"""A training's pieces without the training: its rows, model, learner and knobs, on one device whatever its strategy.

with pieces(request, monitor, stager) as training:
    training.learner, training.data
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headway.monitor import Monitor
from headway.stager import Stager
from tfcore.train.request import TrainRequest
from tfcore.train.stage import _Training


@contextmanager
def pieces(request: TrainRequest, monitor: Monitor, stager: Stager | None) -> Iterator[_Training]:
    """See the module. Nothing is resumed, written or heeded: checkpoints, summaries and control file are left alone."""
    yield _Training(
        request.model_copy(update={"checkpoints": None, "summaries": None, "control": None}), monitor, stager
    )
