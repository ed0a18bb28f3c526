"""`--log-format json`: a command's log as JSON lines on stderr, by a formatter of the standard library's logging.

A line has time (UTC), level and message; also run, stage, span and status where they are known.
"""

import datetime
import json
import logging
from typing import Any

from flows.pipeline.listeners import Level, Listener, Progress, Scope, line_of
from flows.records import RunRecord, State
from flows.report.verdict import ending_of
from headway.redaction import redacted
from headway.stages.step import Output

LOGGER = logging.getLogger("headway")


class JsonFormatter(logging.Formatter):
    """Writes a log record as one line of JSON, without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds")
        line: dict[str, str | None] = {"time": time, "level": record.levelname.lower(), "message": record.getMessage()}
        line |= {name: getattr(record, name, None) for name in ("run", "stage", "span", "status")}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(redacted({name: value for name, value in line.items() if value is not None}))


def log_as_json(*, quiet: bool) -> None:
    """Make all loggers of this process write JSON lines on stderr. `quiet`: Headway's loggers write only warnings and errors."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(handlers=[handler], force=True)
    logging.captureWarnings(True)
    LOGGER.setLevel(logging.WARNING if quiet else logging.INFO)


class JsonLog(Listener):
    """A listener that logs one JSON line for a run's start and end, each line and progress, and each step's start and output."""

    name, seconds = "the JSON log", 5.0

    def on_run(self, scope: Scope, record: RunRecord) -> None:
        starts = record.state == State.RUNNING
        words = f"run {record.run} starts" if starts else ending_of(record).line
        status = "started" if starts else record.state
        _log(scope, f"{record.pipeline}: {words}", logging.ERROR if record.error else logging.INFO, status=status)

    def on_step(self, scope: Scope, title: str, *, running: bool) -> None:
        if running:
            _log(scope, f"{title} starts", step=title, status="started")

    def on_progress(self, scope: Scope, progress: Progress) -> None:
        _log(scope, f"{progress.step}: {progress.words()}", step=progress.step, status="running")

    def on_line(self, scope: Scope, text: str, level: Level = "info", step: str = "") -> None:
        known = logging.WARNING if level == "warning" else logging.INFO
        _log(scope, f"{step}: {text}" if step else text, known, step=step)

    def on_output(self, scope: Scope, output: Output[Any]) -> None:
        status = "reused" if output.hit else "done"
        _log(scope, " ".join(line_of(output).split()), step=output.title, status=status)


def _log(scope: Scope, line: str, level: int = logging.INFO, *, step: str = "", status: str | None = None) -> None:
    stage, _, span = step.partition(" ")
    fields = {"stage": stage or None, "span": span if stage == "ingest" and "(" not in span else None}
    LOGGER.log(level, "%s", scope.named(line).strip(), extra={"run": scope.run, "status": status, **fields})
