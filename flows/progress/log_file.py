"""The log of a run: what it reported, line by line with the time, beside its record: runs/<run>.log.

    with logged(store, run, report) as both:          # a reporter that also writes the file
        both.note("...")

Every line is written when it is reported, so that a run that was killed shows its last ones. A store in a bucket gets the
file when the run ends; until then, and after a kill, it lies in the working copy.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from flows.progress.reporter import Reporter, Several
from flows.progress.terminal import Lines
from flows.records import RunRecord, State, log_path
from flows.tell.summary import sentence
from headway.messages import now
from headway.redaction import redact
from headway.registry.registry import Registry
from headway.storage.store import Store


@contextlib.contextmanager
def logged(store: Store, run: str, shown: Reporter) -> Iterator[Reporter]:
    """Yield a reporter that reports to `shown` and to the run's log, which says at the end what the run ended by."""
    path = log_path(store, run)
    log = _LogFile(path)
    try:
        yield Several([shown, log])
    except BaseException as error:
        log.note(f"ended by {type(error).__name__}: {error}")
        raise
    finally:
        with contextlib.suppress(OSError):  # the run matters more than its log
            store.replace(path, path.read_text(encoding="utf-8"))


class _LogFile(Lines):
    seconds = 10.0

    def __init__(self, path: Path):
        super().__init__()
        self._path, self._writing = path, threading.Lock()

    def run_ended(self, record: RunRecord, registry: Registry) -> None:
        if record.state not in (State.FAILED, State.CANCELLED):  # of those `logged` says the error
            self.note(sentence(record))

    def note(self, line: str) -> None:
        with self._writing, contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{now()} {redact(line)}\n")
