"""The learning rate, or any other knob, as a pure function of the step; NumPy only.

    schedule = CosineRate(name="cosine", initial=0.01, warmup_steps=100)
    schedule.rates(first=0, count=32, total=2000)      # float32 [32], one rate for each step

The rates of a call's steps are handed to the compiled loop as a tensor, so a schedule never causes a retrace and
resuming at step s continues with the rate of step s. Steps in a schedule count from the end of the warm-up.
Arithmetic is float64, the result float32.
"""

from abc import abstractmethod
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from headway.config import Frozen
from headway.messages import counted

Number = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]


class _Schedule(Frozen):
    warmup_steps: int = Field(default=0, ge=0, description="steps over which the rate rises from near zero")

    def rates(self, first: int, count: int, total: int) -> NDArray[np.float32]:
        """Learning rates of steps first .. first + count - 1 (step 0 is the first) of `total`. float32 [count]"""
        step = np.arange(first, first + count, dtype=np.float64)
        rate = self._after_warmup(np.maximum(step - self.warmup_steps, 0.0), max(total - self.warmup_steps, 1))
        if self.warmup_steps:
            rate = rate * np.minimum((step + 1) / self.warmup_steps, 1.0)
        return rate.astype(np.float32)

    @abstractmethod
    def _after_warmup(self, step: NDArray[np.float64], total: int) -> NDArray[np.float64]: ...

    @abstractmethod
    def ends(self) -> tuple[float, ...]:
        """Values between which all others lie."""


class ConstantRate(_Schedule):
    """The same rate throughout, after the warm-up."""

    name: Literal["constant"] = Field(default="constant", description="the same value throughout, after the warm-up")
    initial: Number = Field(default=0.001, description="the value")

    def _after_warmup(self, step: NDArray[np.float64], total: int) -> NDArray[np.float64]:
        return np.full_like(step, self.initial)

    def ends(self) -> tuple[float, ...]:
        return (self.initial,)


class CosineRate(_Schedule):
    """From `initial` down half a cosine to `final` at `steps` (by default at the end of training)."""

    name: Literal["cosine"] = Field(description="half a cosine from initial down to final")
    initial: Number = Field(default=0.001, description="the value after the warm-up")
    final: Number = Field(default=0.0, description="the value at steps, and from there on")
    steps: int | None = Field(
        default=None, ge=1, description="steps from the end of the warm-up to final; none: to the end of the training"
    )

    def _after_warmup(self, step: NDArray[np.float64], total: int) -> NDArray[np.float64]:
        done = np.minimum(step / (self.steps or total), 1.0)
        return self.final + (self.initial - self.final) * 0.5 * (1.0 + np.cos(np.pi * done))

    def ends(self) -> tuple[float, ...]:
        return (self.initial, self.final)


class ExponentialRate(_Schedule):
    """`initial` times `decay` for every `every_steps` steps, smoothly or in stairs."""

    name: Literal["exponential"] = Field(description="a factor for every so many steps")
    initial: Number = Field(default=0.001, description="the value after the warm-up")
    decay: Annotated[float, Field(gt=0.0, le=1.0)] = Field(description="the factor")
    every_steps: int = Field(ge=1, description="steps for which the factor counts once")
    shape: Literal["smooth", "stairs"] = Field(
        default="smooth",
        description="smooth: a part of the factor at every step; stairs: the whole factor every so many steps",
    )

    def _after_warmup(self, step: NDArray[np.float64], total: int) -> NDArray[np.float64]:
        times = step / self.every_steps
        return self.initial * self.decay ** (np.floor(times) if self.shape == "stairs" else times)

    def ends(self) -> tuple[float, ...]:
        return (self.initial,)


class PiecewiseRate(_Schedule):
    """`values[i]` until step `boundaries[i]`, the last value from there on."""

    name: Literal["piecewise"] = Field(description="values that hold for some steps each")
    boundaries: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        min_length=1, description="steps after the warm-up at which the next value begins, rising"
    )
    values: tuple[Number, ...] = Field(description="the values in order, one more than boundaries")

    @model_validator(mode="after")
    def _fit(self) -> Self:
        if len(self.values) != len(self.boundaries) + 1:
            raise ValueError(
                f"{counted(len(self.boundaries), 'boundary needs', 'boundaries need')} {len(self.boundaries) + 1} values"
            )
        if list(self.boundaries) != sorted(set(self.boundaries)):
            raise ValueError("boundaries must rise")
        return self

    def _after_warmup(self, step: NDArray[np.float64], total: int) -> NDArray[np.float64]:
        return np.asarray(self.values)[np.searchsorted(np.asarray(self.boundaries), step, side="right")]

    def ends(self) -> tuple[float, ...]:
        return self.values


Schedule = ConstantRate | CosineRate | ExponentialRate | PiecewiseRate
