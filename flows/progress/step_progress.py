"""How far a step is: as numbers for the JSON log, in words for terminals and Prefect.

rate, left = pace.of(50, 200)            # pace = Pace(), told of each progress of the step
Progress(step="train", done=50, total=200, unit="steps", per_second=rate, seconds_left=left).words()
"""

import time
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict

from headway.messages import amount, duration, number


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
