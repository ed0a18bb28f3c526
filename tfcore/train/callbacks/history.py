"""The history of a training and its progress.

    recorder = Recorder(total=2000, batch=256, monitor=monitor)
    recorder(32, outcome)

Losses are summed step by step in float64, so the history is the same however the steps were cut into calls.
"""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headway.monitor import Monitor
from tfcore.train.session import Callback, PeriodicAction, TrainingSession
from tfcore.train.steps.learner import Outcome

PROGRESS_SECONDS = 0.25
POINTS = 200
"""Of a history, about."""


class Recorder:
    """Reports each call's outcome; `point()` closes an interval of the history."""

    def __init__(self, *, total: int, batch: int, monitor: Monitor):
        self._total, self._batch, self._monitor = total, batch, monitor
        self.history: list[dict[str, Any]] = []
        self.skipped = self.retryable = 0  # of those skipped, the ones for a loss scale that was too large
        self._loss = self._weight = 0.0
        self._last_loss = math.nan
        self._holdout: float | None = None
        self._first_at: float | None = None
        self._first_step = self._last_step = self._shown_step = 0
        self._last_at = self._shown_at = 0.0

    def __call__(self, step: int, outcome: Outcome) -> None:
        rows = (outcome.losses, outcome.weights, outcome.applied, outcome.retryable)
        for loss, weight, applied, retryable in zip(*(row.tolist() for row in rows), strict=True):
            if applied:
                self._loss += loss * weight
                self._weight += weight
            else:
                self.skipped += 1
                self.retryable += retryable
        finite = outcome.losses[outcome.applied]
        if len(finite):
            self._last_loss = float(np.mean(finite))
        self._show(step)

    def loss(self) -> float | None:
        """The weighted mean training loss since the last call of this; None where no step counted."""
        loss = self._loss / self._weight if self._weight else None
        self._loss = self._weight = 0.0
        return loss

    def point(self, step: int, **values: float | None) -> None:
        """Append a point to the history; values that are not finite become None."""
        finite = {name: value if value is None or math.isfinite(value) else None for name, value in values.items()}
        self.history.append({"step": step, **finite})
        self._holdout = finite.get("holdout_loss", self._holdout)

    @property
    def steps_per_second(self) -> float | None:
        """The speed of this process after its first call, so without tracing and compiling."""
        if self._first_at is None or self._last_step <= self._first_step:
            return None
        return round((self._last_step - self._first_step) / max(self._last_at - self._first_at, 1e-9), 1)

    def state(self) -> dict[str, Any]:
        return {
            "history": self.history,
            "skipped": self.skipped,
            "excused": self.retryable,
            "loss": self._loss,
            "weight": self._weight,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.history, self.skipped, self.retryable = list(state["history"]), state["skipped"], state["excused"]
        self._loss, self._weight = state["loss"], state["weight"]

    def _show(self, step: int) -> None:
        now = time.monotonic()
        self._last_at, self._last_step = now, step
        facts: dict[str, Any] = {"loss": round(self._last_loss, 6) if math.isfinite(self._last_loss) else None}
        facts |= {} if self._holdout is None else {"holdout_loss": round(self._holdout, 6)}
        if self._first_at is None:  # the first call traced and compiled: no rate to tell yet
            self._first_at, self._first_step = now, step
        elif now - self._shown_at < PROGRESS_SECONDS and step != self._total:
            return
        else:
            rows = (step - self._shown_step) * self._batch
            facts["rows_per_second"] = round(rows / max(now - self._shown_at, 1e-9))
        self._shown_at, self._shown_step = now, step
        self._monitor.progress(step, self._total, "steps", **facts)


class History(Callback):
    """Adds the loss and the scheduled numbers to the history about `POINTS` times, and what other callbacks record."""

    name = "recorder"
    recorder: Recorder

    def build(self, session: TrainingSession) -> None:
        config = session.request.training
        self.recorder = Recorder(total=session.total, batch=config.batch_size, monitor=session.monitor)

    def actions(self, session: TrainingSession) -> Sequence[PeriodicAction]:
        # a multiple of the stack, so that calls stay whole
        steps = session.stack * max(1, math.ceil(session.total / POINTS / session.stack))
        return [
            PeriodicAction(
                steps,
                lambda step: session.record(loss=self.recorder.loss(), **session.values.at(step - 1)),
                at_end=True,
            )
        ]

    def after_call(self, session: TrainingSession, outcome: Outcome) -> None:
        self.recorder(session.step, outcome)

    def recorded(self, session: TrainingSession, values: Mapping[str, float | None]) -> None:
        self.recorder.point(session.step, **values)

    def state(self) -> dict[str, Any]:
        return self.recorder.state()

    def restore(self, state: dict[str, Any]) -> None:
        self.recorder.restore(state)
