"""What `headway debug step` asks the TensorFlow process; TensorFlow-free.

DebugRequest(train=TrainRequest(...), steps=5, profile=True)
"""

from __future__ import annotations

from pydantic import Field

from headway.config import Frozen
from tfcore.train.request import TrainRequest


class DebugRequest(Frozen):
    """A training whose first step is looked at. Its checkpoints, summaries and control file are left alone."""

    train: TrainRequest
    steps: int = Field(
        default=5, ge=1, le=1000, description="compiled steps, beginning with the one that is run eagerly"
    )
    profile: bool = Field(
        default=True, description="write a profile of them for TensorBoard, but for the first, which compiles"
    )
