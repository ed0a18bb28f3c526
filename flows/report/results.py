"""What a report is made from: a run's record, and the outputs of its steps as far as the store still has them.

results = RunResults(store, record)
results.read("train", Trained)                      # a step's result as an object; None if there is none
results.measured.of("auc").interval                 # properties are the results that several sections read
results.file("train", "history.json")               # its path on this machine, or None
"""

import functools
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from flows.records import RunRecord
from flows.report.versions import judged_spans
from headway.errors import HeadwayError
from headway.evaluation.measured import Measured
from headway.evaluation.verdict import Verdict, read_verdict
from headway.registry.registry import Registry
from headway.stages.step import Output
from headway.statistics.summary import WindowStatistics
from headway.storage.manifest import Manifest
from headway.storage.store import Store
from headway.validation.anomaly import Validated
from tfcore.evaluation.request import Evaluated, Importance

Answer = TypeVar("Answer", bound=BaseModel)


class RunResults:
    """A run and the outputs of its steps.

    Args:
        files: {span: raw files, each with path, bytes and crc32c}, where they are known.
    """

    def __init__(self, store: Store, record: RunRecord, files: Mapping[str, Any] | None = None):
        self.store, self.record, self.files = store, record, files or {}

    @functools.cached_property
    def manifests(self) -> dict[str, Manifest]:
        """{title of a step: manifest of its output}, in the order of the steps; outputs that are gone are left out."""
        found = {step.title: self.store.find(step.stage, step.fingerprint) for step in self.record.stages}
        return {title: manifest for title, manifest in found.items() if manifest is not None}

    @functools.cached_property
    def outputs(self) -> dict[str, Output]:
        """{title of a step: its output}; outputs that are gone are left out."""
        return {
            title: Output(title, m.stage, m.fingerprint, self.store.output(m.stage, m.fingerprint), m.result, hit=True)
            for title, m in self.manifests.items()
        }

    def read(self, title: str, answers: type[Answer]) -> Answer | None:
        """Returns a step's result as an `answers` object; None if the step did not run, or its output is gone or damaged."""
        try:
            return None if (output := self.outputs.get(title)) is None else output.read(answers)
        except ValidationError:
            return None

    @functools.cached_property
    def measured(self) -> Measured | None:
        """The candidate's metrics on the eval rows; None if the store does not have them."""
        found = self.read("measure", Measured)
        if found is None or found.spans:
            return found
        return found.model_copy(update={"spans": judged_spans(self.store, self.record)})

    @functools.cached_property
    def statistics(self) -> WindowStatistics:
        """The statistics of the window; empty ones if the store does not have them."""
        return self.read("statistics", WindowStatistics) or WindowStatistics()

    @functools.cached_property
    def validated(self) -> Validated | None:
        return self.read("validate", Validated)

    @functools.cached_property
    def evaluated(self) -> Evaluated | None:
        """The result of the step in which the candidate predicted the eval rows; None if the store does not have it."""
        predictions = self.key("measure").get("inputs", {}).get("predictions")
        title = next((title for title, output in self.outputs.items() if output.fingerprint == predictions), "")
        return self.read(title, Evaluated)

    @functools.cached_property
    def importance(self) -> Importance | None:
        """The importance of each column, from a small sample of the eval rows; None if it is not known."""
        return None if self.evaluated is None else self.evaluated.importance

    def key(self, title: str) -> dict[str, Any]:
        """Returns the key of a step's output, that is, all that the output depends on; {} if there is no output."""
        manifest = self.manifests.get(title)
        return dict(manifest.key) if manifest is not None else {}

    def file(self, title: str, name: str) -> Path | None:
        """Returns the local path of a file or folder in a step's output; None if there is none, or it cannot be fetched."""
        output, manifest = self.outputs.get(title), self.manifests.get(title)
        if output is None or manifest is None:
            return None
        if not any(entry.path == name or entry.path.startswith(f"{name}/") for entry in manifest.files):
            return None
        return self.localized(output.path / name)

    def localized(self, path: Path) -> Path | None:
        """Fetches a path of any output onto this machine's disk and returns the path; None if it cannot be fetched."""
        try:
            self.store.localize([path])
        except HeadwayError:
            return None
        return path

    def ingested(self) -> dict[str, Output]:
        """Returns the outputs of ingest, by span."""
        return {s.span: self.outputs[s.title] for s in self.record.stages if s.span and s.title in self.outputs}

    @functools.cached_property
    def raw_files(self) -> dict[str, Any]:
        """{span: its raw files}, from `files`; for other spans from the lineage of the run's version."""
        kept: dict[str, Any] = {}
        if (number := self.record.version) is not None:
            registry = Registry(self.store, self.record.pipeline)
            with suppress(HeadwayError, OSError, KeyError):  # it was removed
                lineage = registry.lineage(registry.version(number))
                kept = {span["span"]: span["files"] for span in lineage.get("spans", [])}
        return kept | dict(self.files)

    @functools.cached_property
    def verdict(self) -> Verdict | None:
        """The gate's full verdict if the store has it, else the record's brief one; None: the gate was not reached."""
        try:
            return read_verdict(self.store.local(self.outputs["gate"].path))
        except (KeyError, HeadwayError):
            return self.record.verdict
