"""The training loop: cuts steps into calls, and calls periodic actions between them.

    run(
        learner, batches, start=0, total=2000, values=StepValues(schedules, 2000),
        every=[PeriodicAction(200, evaluate_holdout), PeriodicAction(1000, save)], report=recorder, cancelled=monitor.cancelled,
    )

`batches(step)` yields stacks whose first batch is that of `step`: which rows a step sees never depends on how the steps
were cut into calls, or on where a run was resumed. Stacks begin at multiples of their size also after a resume, so that
calls are cut as they would have been.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tfcore.train.steps.learner import Learner, Outcome, Stack

FIRST_STEPS = 8
CALL_SECONDS = 0.5
"""How long a call may take, so that a stop is heard soon; how steps are cut into calls changes no result."""


@dataclass(frozen=True)
class StepPlan:
    """The plan of the next call, on which several workers must agree."""

    stop: bool
    steps: int


@dataclass(frozen=True)
class PeriodicAction:
    """Call `act(step)` after each `steps` steps; training ends when it returns true."""

    steps: int
    act: Callable[[int], bool | None]
    at_end: bool = False
    """Also after the last step."""

    def due(self, step: int, total: int) -> bool:
        return step % self.steps == 0 or (self.at_end and step == total)


def run(
    learner: Learner,
    batches: Callable[[int], Iterator[Stack]],
    *,
    start: int,
    total: int,
    values: Callable[[int, int], Mapping[str, NDArray[np.float32]]],
    every: Sequence[PeriodicAction] = (),
    report: Callable[[int, Outcome], None] = lambda step, outcome: None,
    cancelled: Callable[[], bool] = lambda: False,
    micro_batches: int = 1,
    agreed: Callable[[StepPlan], StepPlan] = lambda turn: turn,
) -> int:
    """Train from step `start` up to `total`; returns the step it ended at.

    That is earlier when it was cancelled, ended by an act, or when the learner's stop condition is met, in the middle of a
    call.

    Args:
        batches: from a step to the stacks that begin with its batch, without end.
        values: (first step, count) to the scheduled numbers at those steps.
        every: in order; all that are due at a step are called before training may end.
        report: called with the step reached and what the call's steps gave.
        cancelled: asked between calls.
        micro_batches: how many each batch is cut into.
        agreed: what all workers do, given what this one would.
    """
    if start >= total:
        return start
    step, used = start, start % learner.stack
    pace = FIRST_STEPS
    timed = False
    stacks = batches(start - used)
    stack: Stack | None = None
    ended = False
    while step < total and not learner.ending.met:
        if used == learner.stack:
            stack, used = None, 0
        boundary = min([total, *(each.steps * (step // each.steps + 1) for each in every)])
        steps = min(learner.stack - used, boundary - step, pace)
        turn = agreed(StepPlan(ended or cancelled(), steps))
        if turn.stop:
            break
        if stack is None:
            stack = next(stacks)
        began = time.perf_counter()
        now = values(step - used, learner.stack)
        outcome = learner.run(stack, first=used, steps=turn.steps, values=now, micro_batches=micro_batches)
        steps = len(outcome.losses)
        if timed:  # the first call also compiles
            pace = max(1, int(CALL_SECONDS * steps / max(time.perf_counter() - began, 1e-9)))
        timed = True
        step, used = step + steps, used + steps
        report(step, outcome)
        ends = [each.act(step) for each in every if each.due(step, total)]
        ended = any(ends)
    return step
