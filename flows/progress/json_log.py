"""`--log-format json`: a command's log as JSON lines on stderr, by a formatter of the standard library's logging.

A line has time (UTC), level and message; where they are known also run, stage, span and status.
"""

import copy
import datetime
import json
import logging

from flows.progress.reporter import Level
from flows.progress.step_progress import Progress
from flows.progress.terminal import Lines
from flows.records import RunRecord
from flows.tell.ending import ending_of
from flows.tell.step_line import line_of
from headway.monitor import Monitor
from headway.redaction import redacted
from headway.registry.registry import Registry
from headway.stages.step import Output

LOGGER = logging.getLogger("headway")


class JsonFormatter(logging.Formatter):
    """Writes a record as one line, without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds")
        line: dict[str, str | None] = {"time": time, "level": record.levelname.lower(), "message": record.getMessage()}
        line |= {name: getattr(record, name, None) for name in ("run", "stage", "span", "status")}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(redacted({name: value for name, value in line.items() if value is not None}))


def log_as_json(*, quiet: bool) -> None:
    """Let the loggers of this process write JSON lines on stderr; `quiet`: warnings and errors only."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(handlers=[handler], force=True)
    logging.captureWarnings(True)
    LOGGER.setLevel(logging.WARNING if quiet else logging.INFO)


class JsonLog(Lines):
    """Logs what happens in a run."""

    _run: str | None = None

    def note(self, line: str, level: int = logging.INFO, *, step: str = "", status: str | None = None) -> None:
        stage, _, span = step.partition(" ")
        fields = {"stage": stage or None, "span": span if stage == "ingest" and "(" not in span else None}
        LOGGER.log(level, "%s", self.told(line).strip(), extra={"run": self._run, "status": status, **fields})

    def run(self, record: RunRecord) -> "JsonLog":
        bound = copy.copy(self)
        bound._run = record.run
        bound.note(f"{record.pipeline}: run {record.run} starts", status="started")
        return bound

    def run_ended(self, record: RunRecord, registry: Registry) -> None:
        level = logging.ERROR if record.error else logging.INFO
        self.note(f"{record.pipeline}: {ending_of(record).line}", level, status=record.state)

    def monitor(self, title: str) -> Monitor:
        self.note(f"{title} starts", step=title, status="started")
        return super().monitor(title)

    def progressed(self, progress: Progress) -> None:
        self.note(f"{progress.step}: {progress.words()}", step=progress.step, status="running")

    def logged(self, title: str, line: str, level: Level = "info") -> None:
        self.note(f"{title}: {line}", logging.WARNING if level == "warning" else logging.INFO, step=title)

    def output(self, output: Output) -> None:
        line = " ".join(line_of(output).split())
        self.note(line, step=output.title, status="reused" if output.hit else "done")
