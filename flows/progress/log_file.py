"""The log of a run: what it reported, line by line with the time, beside its record: runs/<run>.log.

    with logged(store, run, report) as both:          # a reporter that also writes the file
        both.note("...")

Every line is written when it is reported, so that a run that was killed shows its last ones. A store in a bucket gets the
file when the run ends; until then, and after a kill, it lies in the working copy.

While the run goes on, runs/<run>.progress has its running steps: written when a step begins or ends, in between once a second
at most, and removed at the run's end; of a run that was killed, by the next one. It stays on the run's machine.
"""

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Sequence

from flows.progress.reporter import Reporter
from flows.progress.step_progress import Progress
from flows.progress.terminal import Lines
from flows.records import RunRecord, State, log_path, progress_path
from flows.tell.ending import ending_of
from headway.messages import now
from headway.redaction import redact
from headway.registry.registry import Registry
from headway.stages.step import Output, Step, title_of
from headway.storage.atomic_io import replace_text
from headway.storage.store import Store

LINE_SECONDS = 10.0
"""How much time lies at least between two lines of a step's progress."""


@contextlib.contextmanager
def logged(store: Store, run: str, shown: Reporter) -> Iterator[Reporter]:
    """Yield a reporter that reports to `shown` and to the run's log, which says at the end what the run ended by."""
    path = log_path(store, run)
    log = _LogFile(store, run)
    try:
        yield Reporter([shown, log])
    except BaseException as error:
        log.note(f"ended by {type(error).__name__}: {error}")
        raise
    finally:
        with contextlib.suppress(OSError):  # the run matters more than its log
            progress_path(store, run).unlink(missing_ok=True)
            store.replace(path, path.read_text(encoding="utf-8"))


class _LogFile(Lines):
    seconds = 1.0

    def __init__(self, store: Store, run: str):
        super().__init__()
        self._path, self._writing = log_path(store, run), threading.Lock()
        self._progress = progress_path(store, run)
        self._lines: dict[str, float] = {}
        """When a step's progress was last a line, or would have been."""

    @contextlib.contextmanager
    def stage(self, steps: Sequence[Step]) -> Iterator[None]:
        title = title_of(steps)
        with super().stage(steps):
            self._runs(Progress(step=title))
            try:
                yield
            finally:
                self._ended({title})

    def _runs(self, step: Progress) -> None:
        with self._writing:
            self.steps[step.step] = step
            self._keep()

    def _ended(self, titles: set[str]) -> None:
        with self._writing:
            for title in titles & self.steps.keys():
                del self.steps[title]
                self._keep()

    def progressed(self, progress: Progress) -> None:
        title, now = progress.step, time.monotonic()
        self._runs(progress)
        if now - self._lines.setdefault(title, now) >= LINE_SECONDS:
            self._lines[title] = now
            super().progressed(progress)

    def output(self, output: Output) -> None:
        self._ended(self.ended(output))
        super().output(output)

    def _keep(self) -> None:
        with contextlib.suppress(OSError):  # the run matters more than what is shown of it
            steps = [step.model_dump(mode="json") for step in self.steps.values()]
            replace_text(self._progress, redact(json.dumps(steps)))

    def run_ended(self, record: RunRecord, registry: Registry) -> None:
        if record.state not in (State.FAILED, State.CANCELLED):  # of those `logged` says the error
            self.note(ending_of(record).line)

    def note(self, line: str) -> None:
        with self._writing, contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{now()} {redact(line)}\n")
