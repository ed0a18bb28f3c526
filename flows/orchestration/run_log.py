"""Reports a run to Prefect: log lines through the run logger, and artifacts.

    log = RunLog(stops, pipeline="flights")              # inside a flow
    log.report.note("...")                               # the flow's log; a step's lines go to its task's log

Progress is a line every ten seconds at most. The lines that the TensorFlow process prints come through `report` as well.
"""

import contextlib
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from prefect.artifacts import create_markdown_artifact
from prefect.exceptions import MissingContextError
from prefect.logging import get_run_logger

from flows.orchestration.server import StopRequests
from flows.pipeline.listeners import LineWriter, Reporter, Scope
from flows.records import RunRecord, State
from flows.report.markdown import markdown
from flows.report.model import Section, Table
from flows.report.page import artifact_key, step_section
from flows.report.site import site_of_report
from flows.report.verdict import ending_of, ending_section
from headway.redaction import redact
from headway.stages.step import Output


class RunLog(LineWriter):
    """Writes lines into a flow run's log and publishes artifacts. The flow, its tasks and other threads share one object."""

    seconds = 10.0

    def __init__(self, stops: StopRequests, *, pipeline: str):
        self.wait_for_server = stops.wait_for_server
        self.report = Reporter([self], stop=stops.stop, ask=stops.check)
        """The reporter through which the flow's runs report to this log."""
        self._stops, self._pipeline = stops, pipeline
        self._flow = get_run_logger()

    def write(self, scope: Scope, line: str) -> None:
        logger = self._flow
        with contextlib.suppress(MissingContextError):  # Headway's own threads belong to no run
            logger = get_run_logger()
        logger.info("%s", scope.named(line).strip())

    def on_output(self, scope: Scope, output: Output[Any]) -> None:
        super().on_output(scope, output)
        if (part := step_section(output)) is not None:
            self._publish(artifact_key(output), part)

    def on_run(self, scope: Scope, record: RunRecord) -> None:
        if record.state == State.RUNNING or (record.last is not None and record.error is None):
            return  # it has judged nothing, and what it says would hide the last verdict
        part = ending_section(ending_of(record))
        if record.report is not None:  # not as a link: browsers follow none from a server's page to a file
            places = [record.report, f"headway report {record.run} --open", site_of_report(record.report)]
            part = replace(part, points=[*part.points, *(f"`{place}`" for place in places)])
        self._publish("verdict", part)

    def table(self, key: str, about: str, rows: Sequence[dict[str, Any]]) -> None:
        """Publish a table as an artifact of Prefect; a later table with the same key becomes its next version."""
        self._publish(key, Section(about, tables=[Table(about, rows)]))

    def _publish(self, key: str, part: Section) -> None:
        """Publish a report section as an artifact of Prefect. A failure is logged and does not end the run."""
        try:
            if self._stops.state() is None:  # Prefect's client would try for a minute
                raise ConnectionError("the Prefect server does not answer")
            about = "; ".join(map(str, part.sentences)) or part.title
            name = re.sub(r"[^a-z0-9]+", "-", f"{self._pipeline}-{key}".lower()).strip("-")  # as Prefect accepts it
            create_markdown_artifact(redact(markdown(part)), key=name, description=redact(about))
        except Exception as error:
            self.write(Scope(), f"the artifact {key} was not published: {error}")
