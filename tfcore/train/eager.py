"""Training without compiled functions, for a user's own print and breakpoint(): `training: {eager: true}`.

with eagerly():                       # tf.functions, those of tf.data too, run op by op as Python
    ...
with checked_numerics(learner.step):  # the first op whose output is not finite is an error that names the step
    ...                               # for a step that is known to fail: each op takes milliseconds
"""

import contextlib
import os
import pdb
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from headway.errors import DataError
from headway.process import is_own_process
from tfcore.private_api import tf_data_debug_mode

TERMINAL = Path("/dev/tty")


@contextlib.contextmanager
def eagerly() -> Iterator[None]:
    """Within the block tf.functions run op by op in Python; so do the functions of tf.data pipelines made there."""
    hook = sys.breakpointhook
    tf.config.run_functions_eagerly(True)
    try:
        with tf_data_debug_mode():
            if is_own_process() and "PYTHONBREAKPOINT" not in os.environ:
                sys.breakpointhook = _breakpoint
            yield
    finally:
        tf.config.run_functions_eagerly(False)
        sys.breakpointhook = hook


@contextlib.contextmanager
def checked_numerics(step: tf.Variable) -> Iterator[None]:
    """The block raises DataError if the output of an op on this thread has a NaN or an infinity.

    Args:
        step: the number of finished steps; the error names the next step.
    """
    tf.debugging.enable_check_numerics()
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        text = str(error.message)
        begin = text.find("Detected ")
        if begin < 0:
            raise
        said = " ".join(text[begin : text.find("!!!", begin)].split())
        raise DataError(
            f"step {int(step) + 1}: {said[0].lower()}{said[1:]}{_place(error)}",
            where="training",
            fix="look at what goes into this op: print it, or call breakpoint() above that line",
        ) from error
    finally:
        tf.debugging.disable_check_numerics()


def _place(error: BaseException) -> str:
    """Returns ", in FILE, line N" for the innermost line of the traceback that is not in site-packages; "" if there is none."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if not {"site-packages", "<string>"} & {*file.parts}:
            place = f", in {file.name}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return place


class _Debugger(pdb.Pdb):
    """Python's debugger at the terminal where the command runs. This process needs it, since its own input and output
    are pipes, and its process group is in the terminal's background."""

    def __init__(self) -> None:
        self._terminal = os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY)
        # a process of the background gets this signal where it changes the terminal
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        super().__init__(
            stdin=os.fdopen(os.dup(self._terminal)), stdout=os.fdopen(os.dup(self._terminal), "w"), nosigint=True
        )

    def interaction(self, *arguments: Any) -> None:
        before = os.tcgetpgrp(self._terminal)
        os.tcsetpgrp(self._terminal, os.getpgrp())
        try:
            super().interaction(*arguments)
        finally:
            os.tcsetpgrp(self._terminal, before)


def _breakpoint(*arguments: Any, **named: Any) -> None:
    try:
        debugger = _Debugger()
    except OSError:
        print("breakpoint() is passed over: this command has no terminal", file=sys.stderr)
        return
    debugger.set_trace(sys._getframe(1))
