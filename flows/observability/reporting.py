"""Who is told of a run: a terminal, a stream of JSON lines or a function, and OpenTelemetry where that is set up.

    with reporter(quiet=False) as report:             # of a command
        execute(run_spec, report)
    with reporting(True) as report:                   # of a call from Python

The flows have the same listeners beside Prefect's log (`flows.orchestration.run_log`).
"""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from flows.observability.json_stream import stream
from flows.observability.providers import providers
from flows.progress import terminal
from flows.progress.reporter import Reporter

Progress = bool | Callable[[str], None]
"""True: bars on a terminal, else lines, on stderr; False: nothing; a function: it gets each line."""


def reporter(*, silent: bool = False, quiet: bool = False, verbose: bool = False) -> Reporter:
    """The reporter of a command.

    Args:
        silent: nothing for people, as the answer is a JSON document; a JSON stream goes on.
        quiet: no progress; of a JSON stream warnings and errors only.
        verbose: every line for people.
    """
    if stream():
        return Reporter(listeners(quiet=quiet))
    return Reporter([terminal.reporter(quiet=silent or quiet, verbose=verbose), *listeners()])


def listeners(*, quiet: bool = False) -> list[Reporter]:
    """Those of a process beside whatever else reports its runs: the JSON stream and OpenTelemetry."""
    found: list[Reporter] = []
    if (told := stream()) is not None:
        from flows.observability.json_log import JsonLog

        found.append(JsonLog(told, quiet=quiet))
    if (made := providers()) is not None:
        from flows.observability.telemetry import Telemetry  # imports OpenTelemetry

        found.append(Telemetry(made))
    return found


@contextlib.contextmanager
def reporting(progress: Progress) -> Iterator[Reporter]:
    """A reporter whose stop Ctrl-C, or a notebook's stop button, asks for; a second one interrupts at once."""
    made = Reporter([_Calls(progress), *listeners()]) if callable(progress) else reporter(quiet=not progress)
    with made as report, stop_on_signals(report.stop, signal.SIGINT):
        yield report


class _Calls(terminal.Lines):
    """Gives each line to a function."""

    def __init__(self, take: Callable[[str], None]):
        super().__init__()
        self._take = take

    def note(self, line: str) -> None:
        self._take(self.told(line))


@contextlib.contextmanager
def stop_on_signals(
    stop: threading.Event, *signals: signal.Signals, say: Callable[[], None] = lambda: None, same_seconds: float = 0.0
) -> Iterator[None]:
    """The signals ask for a clean stop while the block runs; a second one interrupts at once.

    Args:
        stop: set at the first.
        say: tells of it.
        same_seconds: a signal that comes this soon after the first is of the same stop.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set a handler
        return
    first: list[float] = []

    def handle(number: int, frame: FrameType | None) -> None:
        first.append(time.monotonic())
        if len(first) > 1 and first[-1] - first[0] >= same_seconds:
            raise KeyboardInterrupt
        stop.set()
        if len(first) == 1:
            say()

    before = {number: signal.signal(number, handle) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
