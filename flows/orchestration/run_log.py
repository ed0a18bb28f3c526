"""Reports a run to Prefect: log lines through the run logger, and artifacts.

    log = RunLog(stops, pipeline="flights")              # inside a flow
    log.report.note("...")                               # the flow's log; a step's lines go to its task's log

Progress is a line every ten seconds at most, and an artifact that shows a bar. The TensorFlow process's own lines come
through `report` as well.
"""

import logging
import re
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from prefect.artifacts import create_markdown_artifact, create_progress_artifact, update_progress_artifact
from prefect.exceptions import CancelledRun, FailedRun, MissingContextError
from prefect.logging import get_run_logger

from flows.orchestration.requested_stops import StopRequests
from flows.pipeline.listeners import Progress, Reporter, Scope
from flows.pipeline.terminal import Lines
from flows.records import RunRecord, State
from flows.report.markdown import markdown
from flows.report.model import Section, Table
from flows.report.page import key_of, step_section
from flows.report.site import site_of_report
from flows.report.text import line_of
from flows.report.verdict import ending_of, ending_section
from headway.redaction import redact
from headway.stages.step import Output


class _SaidOnce(logging.Filter):
    """Drops what Prefect prints of a state, where the flow prints the state's message itself: a traceback, and the message
    again."""

    def __init__(self, *states: str):
        super().__init__()
        self._lines = (*(f"Finished in state {state}(" for state in states), "Task run failed with state: ")

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, FailedRun | CancelledRun) and not record.getMessage().startswith(self._lines)


def say_once() -> None:
    """Let the message of a flow's state, from now on, be logged by the flow alone, and so is that of a task that failed."""
    of_flows = ("Completed", "Held", "Rejected", "Drifting", "Failed", "Cancelled")
    for name, states in (("flow_runs", of_flows), ("task_runs", ("Failed", "Cancelled"))):
        logger = logging.getLogger(f"prefect.{name}")
        if not any(isinstance(present, _SaidOnce) for present in logger.filters):
            logger.addFilter(_SaidOnce(*states))


class RunLog(Lines):
    """Lines in the run's log, and artifacts beside it.

    Made in the flow; used from its tasks and other threads.
    """

    seconds = 10.0

    def __init__(self, stops: StopRequests, *, pipeline: str):
        self.wait_for_server = stops.wait_for_server
        self.report = Reporter([self], stop=stops.stop, ask=stops.check)
        """Tells it of the flow's runs."""
        self._stops, self._pipeline = stops, pipeline
        self._flow = get_run_logger()
        self._bars: dict[tuple[str | None, str], Any] = {}
        """The artifact that shows the progress of a step, by its window and title."""
        self._later: deque[Callable[[], object]] = deque()
        self._publishing = threading.Lock()

    def write(self, scope: Scope, line: str) -> None:
        self.logger().info("%s", scope.named(line).strip())

    def progress(self, scope: Scope, progress: Progress) -> None:
        super().progress(scope, progress)
        if progress.total and self._stops.state() is not None:
            share = 100 * progress.done / progress.total
            self._try(lambda: self._show((scope.until, progress.step), share, progress.words()))

    def output(self, scope: Scope, output: Output[Any]) -> None:
        super().output(scope, output)
        part, step = step_section(output), (scope.until, output.title)

        def publish() -> None:
            if step in self._bars:
                self._show(step, 100.0, " ".join(line_of(output).split()))
            if part is not None:
                self._publish(key_of(output), part)

        if part is not None or step in self._bars:
            self._when_up(publish)

    def run(self, scope: Scope, record: RunRecord) -> None:
        if record.state == State.RUNNING:
            return
        if record.last is not None and record.error is None:
            return  # it judged nothing, and what it says would hide the last verdict
        part = ending_section(ending_of(record))
        if record.report is not None:  # not as a link: browsers follow none from a server's page to a file
            places = [record.report, f"headway report {record.run} --open", site_of_report(record.report)]
            part = replace(part, points=[*part.points, *(f"`{place}`" for place in places)])
        self._when_up(lambda: self._publish("verdict", part))

    def table(self, key: str, about: str, rows: Sequence[dict[str, Any]]) -> None:
        """Publish a table of the flow's own; a later one of the same key follows it."""
        part = Section(about, tables=[Table(about, rows)])
        self._when_up(lambda: self._publish(key, part))

    def _when_up(self, action: Callable[[], object]) -> None:
        """Do it now, or, while the server is away, later: Prefect's client would wait for it a minute each time."""
        self._later.append(action)
        if self._stops.state() is not None:
            self.catch_up()

    def catch_up(self) -> None:
        """Publish what could not be published while the server was away."""
        with self._publishing:
            while self._later:
                self._try(self._later.popleft())

    def _show(self, step: tuple[str | None, str], share: float, words: str) -> None:
        """Show a step's progress as an artifact."""
        until, title = step
        share, about = min(max(share, 0.0), 100.0), redact(f"{title}: {words}")
        if step in self._bars:
            update_progress_artifact(self._bars[step], share, about)
        else:
            key = _key(self._pipeline, f"progress-{until or ''}-{title}")
            self._bars[step] = create_progress_artifact(share, key, about)

    def _publish(self, key: str, part: Section) -> None:
        """Publish a part as an artifact."""
        about = "; ".join(map(str, part.sentences)) or part.title
        create_markdown_artifact(redact(markdown(part)), key=_key(self._pipeline, key), description=redact(about))

    def _try(self, action: Callable[[], object]) -> None:
        """A run matters more than a picture of it: an error is a line of the log."""
        try:
            action()
        except Exception as error:
            self.logger().warning("an artifact was not published: %s", error)

    def logger(self) -> logging.Logger | logging.LoggerAdapter[logging.Logger]:
        """Return the logger of the current task, else of the flow, since Headway's own threads belong to no run."""
        try:
            return get_run_logger()
        except MissingContextError:
            return self._flow


def _key(pipeline: str, key: str) -> str:
    """An artifact's key as Prefect accepts it: lower-case letters, digits and dashes; one history per pipeline."""
    return re.sub(r"[^a-z0-9]+", "-", f"{pipeline}-{key}".lower()).strip("-")
