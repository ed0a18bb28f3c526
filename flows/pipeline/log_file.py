"""The log of a run: what it reported, line by line with the time, beside its record: runs/<run>.log.

    with logged(store, run) as log:                   # a listener that writes the file
        report.of(run, log).note("...")

Every line is written when it is reported, so that a run that was killed shows its last ones. A store in a bucket gets the
file when the run ends; until then, and after a kill, it lies in the working copy.

While the run goes on, runs/<run>.progress has its running steps: written when a step begins or ends, in between once a second
at most, and removed at the run's end; of a run that was killed, by the next one. It stays on the run's machine.
"""

import contextlib
import json
import threading
import time
from collections.abc import Iterator

from flows.pipeline.listeners import Progress, Scope
from flows.pipeline.terminal import Lines
from flows.records import RunRecord, State, log_path, progress_path
from flows.report.verdict import ending_of
from headway.messages import now
from headway.redaction import redact
from headway.storage.atomic_io import replace_text
from headway.storage.store import Store

LINE_SECONDS = 10.0
"""How much time lies at least between two lines of a step's progress."""


@contextlib.contextmanager
def logged(store: Store, run: str) -> Iterator["LogFile"]:
    """Yield what writes the run's log, which says at the end what the run ended by."""
    path, log = log_path(store, run), LogFile(store, run)
    try:
        yield log
    except BaseException as error:
        with contextlib.suppress(OSError):
            log.line(Scope(run), f"ended by {type(error).__name__}: {error}")
        raise
    finally:
        with contextlib.suppress(OSError):  # the run matters more than its log
            progress_path(store, run).unlink(missing_ok=True)
            store.replace(path, path.read_text(encoding="utf-8"))


class LogFile(Lines):
    """Writes the log of one run, and which of its steps run."""

    name, seconds = "the run's log", 1.0

    def __init__(self, store: Store, run: str):
        self._path, self._progress, self._writing = log_path(store, run), progress_path(store, run), threading.Lock()
        self._steps: dict[str, Progress] = {}
        self._lines: dict[str, float] = {}
        """When a step's progress was last a line, or would have been."""

    def run(self, scope: Scope, record: RunRecord) -> None:
        if record.state not in (
            State.RUNNING,
            State.FAILED,
            State.CANCELLED,
        ):  # of the last two `logged` says the error
            self.line(scope, ending_of(record).line)

    def step(self, scope: Scope, title: str, *, runs: bool) -> None:
        self._keep(title, Progress(step=title) if runs else None)

    def progress(self, scope: Scope, progress: Progress) -> None:
        self._keep(progress.step, progress)
        seconds = time.monotonic()
        if seconds - self._lines.setdefault(progress.step, seconds) >= LINE_SECONDS:
            self._lines[progress.step] = seconds
            super().progress(scope, progress)

    def _keep(self, title: str, step: Progress | None) -> None:
        """Keep how far a step is; None: it does not run any more."""
        with self._writing:
            if step is None:
                self._steps.pop(title, None)
            else:
                self._steps[title] = step
            steps = [each.model_dump(mode="json") for each in self._steps.values()]
            replace_text(self._progress, redact(json.dumps(steps)))

    def write(self, scope: Scope, line: str) -> None:
        with self._writing:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{now()} {redact(line)}\n")
