"""The answer of the training stage, with the fields that people read; TensorFlow-free.

Trained.model_validate(result).best_step
"""

from __future__ import annotations

from headway.config import Result


class WarmStart(Result):
    """The weights that a training began with."""

    says: str


class Trained(Result):
    """What a training came to; None and 0 where there is nothing to say."""

    steps: int = 0
    epochs: float | None = None
    rows: int | None = None
    """Seen, of train."""
    seconds: float = 0.0
    steps_per_second: float | None = None
    parameters: int | None = None
    final_loss: float | None = None
    best_loss: float | None = None
    """On the holdout."""
    best_step: int | None = None
    stopped: str | None = None
    skipped: int | None = None
    strategy: str | None = None
    jit: str | None = None
    warm_start: WarmStart | None = None
