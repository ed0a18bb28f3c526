"""Reports a run as JSON records: one for each thing that happens, on the stream of `flows.observability.json_stream`.

    report = JsonLog(stream)                  # run.started, stage.started, stage.progress, stage.ended, ..., run.ended

docs/observability.md lists the events and their fields.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flows.dag.step import Output, Step
from flows.observability.json_stream import JsonStream
from flows.progress.reporter import Reporter
from flows.progress.terminal import Pace, line_of
from flows.records import RunRecord, State
from flows.tell.summary import sentence
from headway.monitor import Monitor
from headway.redaction import redact
from headway.registry.registry import Registry

PROGRESS_SECONDS = 5.0
"""How much time lies at least between two records of a step's progress."""
_LEVELS = {"warning:": "warning", "error:": "error"}
_RESULT = (
    *("rows", "steps", "epochs", "final_loss", "best_loss", "steps_per_second", "metrics", "verdict", "reasons"),
    *("errors", "warnings", "counts", "stopped", "largest_difference", "signatures"),
)
"""What a stage's answer has of small values, and no table."""


class JsonLog(Reporter):
    """Writes records.

    Args:
        quiet: only warnings and errors.
        pipeline, run: of the run that is reported.
    """

    def __init__(
        self,
        stream: JsonStream,
        *,
        quiet: bool = False,
        pipeline: str | None = None,
        run: str | None = None,
        stop: threading.Event | None = None,
    ):
        super().__init__(stop)
        self._stream, self._quiet, self._pipeline, self._run = stream, quiet, pipeline, run
        self._stages: dict[str, str] = {}
        """The stage of each step that runs, by its title."""

    def _write(self, event: str, message: str, *, level: str = "info", step: str | None = None, **fields: Any) -> None:
        # a backfill that runs several windows at once puts the window before the step
        pipeline = fields.pop("pipeline", None) or self._pipeline  # an event of no run has its own
        stage = fields.pop("stage", None) or self._stages.get((step or "").rpartition(": ")[2])
        if not self._quiet or level in ("warning", "error"):
            told = {name: value for name, value in fields.items() if value is not None}
            self._stream.write(
                event,
                message,
                level=level,
                fields=told,
                pipeline=pipeline,
                run=self._run,
                stage=stage,
                step=step,
            )

    def run(self, record: RunRecord) -> Reporter:
        bound = JsonLog(self._stream, quiet=self._quiet, pipeline=record.pipeline, run=record.run, stop=self.stop)
        facts = record.model_dump(include={"file", "window", "until", "seed", "force", "last"})
        git = record.code and record.code.git
        bound._write("run.started", f"{record.pipeline}: run {record.run}", **facts, commit=git and git.commit)
        return bound

    def run_ended(self, record: RunRecord, registry: Registry) -> None:
        fields = {"state", "version", "metrics", "spans", "seconds", "report", "error", "warnings"}
        facts = {name: value for name, value in record.as_json().items() if name in fields and value != []}
        if record.verdict is not None:
            facts |= {"verdict": record.verdict.verdict, "reasons": list(record.verdict.reasons)}
        bad = record.state in (State.FAILED, State.CANCELLED)
        level = "error" if record.state == State.FAILED else "warning" if bad else "info"
        said = f"{record.state}: {record.error}" if bad else sentence(record)
        self._write("run.ended", f"{record.pipeline}: {said}", level=level, **facts)

    @contextlib.contextmanager
    def stage(self, steps: Sequence[Step]) -> Iterator[None]:
        stage, began = steps[0].stage.name, time.perf_counter()
        titles = [step.title for step in steps]
        self._stages |= dict.fromkeys([*titles, f"{stage} ({len(steps)})"], stage)
        for step in steps:
            self._write("stage.started", f"{step.title} starts", step=step.title, fingerprint=step.fingerprint)
        try:
            yield
        except BaseException as error:
            seconds = round(time.perf_counter() - began, 3)
            problem = redact(str(error).splitlines()[0] if str(error) else type(error).__name__)
            title = titles[0] if len(titles) == 1 else f"{stage} ({len(steps)})"
            facts = {"error": str(error), "kind": type(error).__name__, "seconds": seconds}
            self._write("stage.failed", f"{title}: {problem}", level="error", step=title, **facts)
            raise

    def monitor(self, title: str) -> Monitor:
        return _JsonMonitor(self, title)

    def output(self, output: Output) -> None:
        facts: dict[str, Any] = {"cached": output.hit, "fingerprint": output.fingerprint, "why": output.why}
        facts |= {"seconds": 0.0 if output.hit else round(output.seconds, 3), "bytes": output.bytes}
        facts |= {name: output.result[name] for name in _RESULT if output.result and name in output.result}
        self._stages.setdefault(output.title, output.stage)
        message = " ".join(line_of(output).split())
        self._write("stage.ended", message, step=output.title, stage=output.stage, **facts)

    def drawn(self, place: str) -> None:
        self._write("report.drawn", f"report: {place}", place=place)

    def note(self, line: str) -> None:
        text = line.strip()
        level = next((level for word, level in _LEVELS.items() if text.startswith(word)), "info")
        self._write("note", text, level=level)

    def relay(self, line: str) -> None:
        self._write("line", line, source="tensorflow")

    def happened(self, event: str, facts: Mapping[str, Any]) -> None:
        fields = {name: value for name, value in facts.items() if name not in ("message", "pipeline", "run")}
        self._write(event, str(facts.get("message", event)), pipeline=facts.get("pipeline"), **fields)


class _JsonMonitor(Monitor):
    def __init__(self, log: JsonLog, title: str):
        super().__init__(log.stop)
        self._log, self._title, self._pace = log, title, Pace()
        self._reported = float("-inf")

    def progress(self, done: float, total: float | None, unit: str, **facts: Any) -> None:
        rate, left = self._pace.numbers(done, total)
        now = time.monotonic()
        if now - self._reported < PROGRESS_SECONDS:
            return
        self._reported = now
        words = f"{done:,.0f}" + (f" of {total:,.0f}" if total else "") + f" {unit}"
        told: dict[str, Any] = {"done": done, "total": total, "unit": unit, "per_second": rate, "seconds_left": left}
        self._log._write("stage.progress", f"{self._title}: {words}", step=self._title, **told, **facts)

    def log(self, line: str) -> None:
        level = next((level for word, level in _LEVELS.items() if line.startswith(word)), "info")
        self._log._write("stage.log", line, level=level, step=self._title)

    def part(self, name: str, **facts: Any) -> None:
        self._log._write("stage.part", f"{self._title}: {name}", step=self._title, part=name, **facts)
