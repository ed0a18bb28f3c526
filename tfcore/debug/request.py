"""The request of `headway debug step`; TensorFlow-free.

DebugRequest(train=TrainRequest(...), steps=5, profile=True)
"""

from pathlib import Path

from pydantic import Field

from headway.config import Frozen
from tfcore.train.request import TrainRequest


class DebugRequest(Frozen):
    """A training to inspect one step of. Its own checkpoints, summaries and control file stay untouched."""

    train: TrainRequest
    checkpoints: Path | None = Field(default=None, description="a copy of its checkpoints, to go on from the newest")
    steps: int = Field(
        default=5, ge=1, le=1000, description="compiled steps, beginning with the one that is run eagerly"
    )
    profile: bool = Field(
        default=True, description="write a profile of them for TensorBoard, but for the first, which compiles"
    )
