"""Asserts that a stopped and restored training equals an uninterrupted one."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from tests.same_bytes import assert_same_bytes
from tfcore.train.checkpoints import Checkpoints, Variables

Training = TypeVar("Training")


def assert_resumes_exactly(
    make: Callable[[], Training],
    run: Callable[[Training, int, int], object],
    variables: Callable[[Training], Variables],
    *,
    steps: int,
    stops: Sequence[int],
    folder: Path,
) -> Training:
    """Raise AssertionError unless a resumed training ends with the same bits. Returns the uninterrupted one.

    For each of `stops`, one training runs up to it and is saved as Headway saves checkpoints; another, which ran one
    step of its own, is given that checkpoint and runs to the end. What a checkpoint leaves out (a generator's state, a
    counter in Python) then shows as variables that differ.

    Args:
        make: a new training, the same each time.
        run: (training, first step, end): runs the steps first .. end - 1.
        variables: {name: variables} of all that a step reads and writes.

    Raises:
        AssertionError: with the stop, and the first variable that differs.
    """
    whole = make()
    run(whole, 0, steps)
    for stop in stops:
        first, second = make(), make()
        run(first, 0, stop)
        checkpoints = Checkpoints(folder / f"stop-{stop}")
        checkpoints.save(stop, variables(first), {})
        run(second, 0, 1)  # so that what is not restored cannot be right by being untouched
        newest = checkpoints.newest()
        assert newest is not None, f"there is no checkpoint of step {stop}"
        checkpoints.restore(newest, variables(second))
        run(second, stop, steps)
        try:
            assert_same_bytes(variables(second), variables(whole))
        except AssertionError as error:
            raise AssertionError(f"stopped at step {stop} of {steps} and resumed: {error}") from None
    return whole
