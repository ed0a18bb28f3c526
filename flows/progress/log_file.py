"""The log of a run: what it reported, line by line with the time, beside its record: runs/<run>.log.

    with logged(store, run, report) as both:          # a reporter that also writes the file
        both.note("...")
    read_log(store, run)                              # the text, for `headway logs`

Every line is written when it is reported, so that a run that was killed shows its last ones. A store in a bucket gets the
file when the run ends; until then, and after a kill, it lies in the working copy.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flows.dag.step import Output
from flows.progress.terminal import Lines, Reporter
from headway.messages import now
from headway.monitor import Monitor
from headway.redaction import redact
from headway.storage.store import Store


def path_of(store: Store, run: str) -> Path:
    return store.runs_folder / f"{run}.log"


@contextlib.contextmanager
def logged(store: Store, run: str, shown: Reporter) -> Iterator[Both]:
    """Yield a reporter that reports to `shown` and to the run's log, which says at the end what the run ended by."""
    path = path_of(store, run)
    both = Both(shown, _LogFile(path))
    try:
        yield both
    except BaseException as error:
        both.log.note(f"ended by {type(error).__name__}: {error}")
        raise
    finally:
        with contextlib.suppress(OSError):  # the run matters more than its log
            store.replace(path, path.read_text(encoding="utf-8"))


def read_log(store: Store, run: str) -> str | None:
    """Return the log of a run; None where there is none."""
    path = path_of(store, run)
    try:
        return store.read(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None


class _LogFile(Lines):
    seconds = 10.0

    def __init__(self, path: Path):
        super().__init__()
        self._path, self._writing = path, threading.Lock()

    def note(self, line: str) -> None:
        with self._writing, contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{now()} {redact(line)}\n")


class Both(Reporter):
    """Reports to two; the stop is the first one's."""

    def __init__(self, shown: Reporter, log: Reporter):
        super().__init__(shown.stop)
        self._shown, self.log = shown, log

    def monitor(self, title: str) -> Monitor:
        return _BothMonitors(self._shown.monitor(title), self.log.monitor(title))

    def check(self) -> None:
        self._shown.check()

    def output(self, output: Output) -> None:
        self.log.output(output)
        self._shown.output(output)

    def drawn(self, place: str) -> None:
        self._shown.drawn(place)

    def note(self, line: str) -> None:
        self.log.note(line)
        self._shown.note(line)


class _BothMonitors(Monitor):
    def __init__(self, shown: Monitor, log: Monitor):
        super().__init__(shown.stop)
        self._shown, self._log = shown, log

    def progress(self, done: float, total: float | None, unit: str, **facts: Any) -> None:
        self._log.progress(done, total, unit, **facts)
        self._shown.progress(done, total, unit, **facts)

    def log(self, line: str) -> None:
        self._log.log(line)
        self._shown.log(line)
