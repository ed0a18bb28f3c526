"""How far a step is: as numbers for the JSON log and the live page, in words for terminals and Prefect.

    rate, left = pace.of(50, 200)            # pace = Pace(), told of each progress of the step
    Progress(step="train", done=50, total=200, unit="steps", per_second=rate, seconds_left=left).words()
    read_progress(store, record.run)         # the running steps of a run that goes on, as its process keeps them

A run keeps its running steps in runs/<run>.progress while it goes on, written when a step begins or ends, in between once a
second at most, and removed at the run's end; of a run that was killed, by the next one. The file is on the run's machine only,
as is the log of a run that goes on.
"""

import time
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter

from flows.records import progress_path
from headway.messages import amount, duration, number
from headway.storage.store import Store


class Progress(BaseModel):
    """How far a step is."""

    model_config = ConfigDict(frozen=True)

    step: str
    """Its title."""
    done: float = 0.0
    total: float | None = None
    unit: str = ""
    """Empty until the step has said how much there is to do."""
    per_second: float | None = None
    seconds_left: float | None = None
    """This and the speed are None until they can be estimated."""
    facts: dict[str, Any] = {}
    """JSON values, such as the loss."""

    @property
    def amount(self) -> str:
        return amount(self.done, self.total, self.unit)

    def words(self, amount: str | None = None, *, brief: bool = False) -> str:
        """All of it, the amount first; `brief` has first what a narrow terminal should not cut."""
        rate, left = self.per_second, "" if self.seconds_left is None else f"{duration(self.seconds_left)} left"
        speed = "" if rate is None else f"{rate:,.0f} {self.unit}/s" if rate >= 10 else f"{rate:.2g} {self.unit}/s"
        facts = [
            f"{name.replace('_', ' ')} {number(value)}"
            for name, value in self.facts.items()
            if isinstance(value, int | float) and not name.endswith("_per_second")  # the speed stands beside it
        ][:2]
        rest = [left, speed, *facts] if brief else [speed, *facts, left]
        return ", ".join(word for word in (amount or self.amount, *rest) if word)


class RunningStep(Progress):
    """A step that runs: since when, how far it is, and its losses so far."""

    began: float
    """Seconds since 1970."""
    losses: tuple[dict[str, float], ...] = ()
    """{"step", "loss"}, and "holdout_loss" where it was measured anew; about 100 for each factor e of steps."""

    def after(self, progress: Progress) -> "RunningStep":
        """The step after it has reported."""
        facts, losses, done = progress.facts, self.losses, progress.done
        if facts.get("loss") is not None and (not losses or done >= 1.01 * losses[-1]["step"]):
            point, held = {"step": done, "loss": facts["loss"]}, facts.get("holdout_loss")
            before = next((p["holdout_loss"] for p in reversed(losses) if "holdout_loss" in p), None)
            if held not in (None, before):
                point["holdout_loss"] = held
            losses = (*losses, point)
        return RunningStep(**dict(progress), began=self.began, losses=losses)


class Pace:
    """The speed of a step, from its progress so far; the time before something is done (imports, tracing) is not counted.

    `clock` is for tests.
    """

    _SECONDS, _SHARE, _LONG = 5.0, 0.01, 60.0

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._first: tuple[float, float] | None = None

    def of(self, done: float, total: float | None) -> tuple[float | None, float | None]:
        """(Units per second, seconds left); None until they can be estimated."""
        now = self._clock()
        if not done:
            return None, None
        if self._first is None or done < self._first[1]:
            self._first = (now, done)
        seconds, progressed = now - self._first[0], done - self._first[1]
        if seconds < self._SECONDS or progressed <= 0:
            return None, None
        rate = progressed / seconds
        steady = total and (progressed >= self._SHARE * total or seconds >= self._LONG)
        return rate, (total - done) / rate if total and done < total and steady else None


_LIST = TypeAdapter(list[RunningStep])


def read_progress(store: Store, run: str) -> list[RunningStep]:
    """The running steps of a run; [] where nothing is known of it on this machine."""
    try:
        return _LIST.validate_json(progress_path(store, run).read_bytes())
    except (OSError, ValueError):
        return []


def as_json(steps: list[RunningStep]) -> str:
    """The text of such a file."""
    return _LIST.dump_json(steps).decode()
