"""Reports a run as JSON records: one for each thing that happens, on the stream of `flows.observability.json_stream`.

    report = JsonLog(stream)                  # run.started, stage.started, stage.progress, stage.ended, ..., run.ended

docs/observability.md lists the events and their fields.
"""

import contextlib
import copy
import time
from collections.abc import Iterator, Sequence
from typing import Any

from flows.dag.step import Output, Step, title_of
from flows.observability.json_stream import JsonStream
from flows.progress.reporter import Event, Level, Reporter
from flows.progress.step_progress import Progress
from flows.records import RunRecord, State
from flows.tell.ending import TOLD, ending_of
from flows.tell.step_line import line_of
from headway.errors import HeadwayError
from headway.redaction import redact
from headway.registry.registry import Registry

_RESULT = (
    *("rows", "steps", "epochs", "final_loss", "best_loss", "steps_per_second", "metrics", "verdict", "reasons"),
    *("errors", "warnings", "counts", "stopped", "largest_difference", "signatures"),
)
"""What a stage's answer has of small values, and no table."""


class JsonLog(Reporter):
    """Writes records.

    Args:
        quiet: only warnings and errors.
    """

    seconds, at_once = 5.0, True

    def __init__(self, stream: JsonStream, *, quiet: bool = False):
        super().__init__()
        self._stream, self._quiet = stream, quiet
        self._pipeline: str | None = None
        self._run: str | None = None
        self._stages: dict[str, str] = {}
        """The stage of each step that runs, by its title."""

    def _write(self, event: str, message: str, *, level: str = "info", step: str | None = None, **fields: Any) -> None:
        pipeline = fields.pop("pipeline", None) or self._pipeline  # an event of no run has its own
        stage = fields.pop("stage", None) or self._stages.get(step or "")
        if not self._quiet or level in ("warning", "error"):
            told = {name: value for name, value in fields.items() if value is not None}
            about = {"pipeline": pipeline, "run": self._run, "stage": stage, "step": step}
            self._stream.write(event, message, level=level, fields=told, **about)

    def run(self, record: RunRecord) -> Reporter:
        bound = copy.copy(self)
        bound._pipeline, bound._run, bound._stages = record.pipeline, record.run, {}
        facts = record.model_dump(include={"file", "window", "until", "seed", "force", "last"})
        git = record.code and record.code.git
        bound._write("run.started", f"{record.pipeline}: run {record.run}", **facts, commit=git and git.commit)
        return bound

    def run_ended(self, record: RunRecord, registry: Registry) -> None:
        if record.report is not None:
            self._write("report.drawn", f"report: {record.report}", place=record.report)
        fields = {"state", "version", "metrics", "spans", "seconds", "report", "warnings"}
        facts = {name: value for name, value in record.as_json().items() if name in fields and value != []}
        ending = ending_of(record)
        facts |= ending.model_dump(mode="json", include=TOLD)
        if record.verdict is not None:
            facts["checks"] = [check.model_dump(mode="json", exclude_none=True) for check in ending.checks]
            facts |= {"verdict": record.verdict.verdict, "reasons": record.verdict.sentences}
        facts |= self._stream.once(record.error, {"error": redact(record.error)}) if record.error else {}
        level = {State.FAILED: "error", State.CANCELLED: "warning"}.get(record.state, "info")
        self._write("run.ended", f"{record.pipeline}: {ending.line}", level=level, **facts)

    @contextlib.contextmanager
    def stage(self, steps: Sequence[Step]) -> Iterator[None]:
        stage, began = steps[0].stage.name, time.perf_counter()
        title = title_of(steps)
        self._stages |= dict.fromkeys([*(step.title for step in steps), title], stage)
        for step in steps:
            self._write("stage.started", f"{step.title} starts", step=step.title, fingerprint=step.fingerprint)
        try:
            yield
        except BaseException as error:
            seconds = round(time.perf_counter() - began, 3)
            problem = redact(str(error).splitlines()[0] if str(error) else type(error).__name__)
            text, facts = f"{type(error).__name__}: {error}", dict[str, Any](kind=type(error).__name__)
            if isinstance(error, HeadwayError):
                text, facts = str(error), error.facts
            told = self._stream.once(text, {"error": text, **facts})
            self._write("stage.failed", f"{title}: {problem}", level="error", step=title, seconds=seconds, **told)
            raise

    def progressed(self, progress: Progress) -> None:
        fields = progress.model_dump(exclude={"step", "facts"}) | progress.facts
        self._write("stage.progress", f"{progress.step}: {progress.amount}", step=progress.step, **fields)

    def logged(self, title: str, line: str, level: Level = "info") -> None:
        self._write("stage.log", line, level=level, step=title)

    def output(self, output: Output) -> None:
        facts: dict[str, Any] = {
            "cached": output.hit,
            "fingerprint": output.fingerprint,
            "why": output.why and str(output.why),
        }
        facts |= {"seconds": 0.0 if output.hit else round(output.seconds, 3), "bytes": output.bytes}
        facts |= {name: output.result[name] for name in _RESULT if output.result and name in output.result}
        self._stages.setdefault(output.title, output.stage)
        self._write("stage.ended", " ".join(line_of(output).split()), step=output.title, stage=output.stage, **facts)

    def note(self, line: str) -> None:
        self._write("note", line.strip())

    def relay(self, line: str) -> None:
        self._write("line", line, source="tensorflow")

    def happened(self, event: Event) -> None:
        self._write(event.name, event.message, pipeline=event.pipeline, **event.facts)
