"""The window of one execution: its spans, their columns, and which part of which span each split has."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from flows.config.columns import Columns, resolve
from flows.config.pipeline import Pipeline
from flows.dag.references import check_metrics, possible_tasks
from flows.dag.run_spec import RunSpec
from flows.dag.step import Output
from headway.errors import ConfigError, HeadwayError
from headway.stages.ingested import Ingested
from headway.stages.refs import Examples
from headway.storage.fingerprint import fingerprint
from headway.tabular.splits import Part, window_splits
from headway.tasks.user_task import load_task
from headway.user_code import files as user_files
from tfcore.runtime.tf_import import startup


@dataclass(frozen=True)
class Window:
    run_spec: RunSpec
    spans: tuple[str, ...]
    parts: dict[str, tuple[Part, ...]]
    """By split of the window, (span, split of the span); none of a run that ends with the ingest."""
    columns: Columns

    @classmethod
    def of(cls, run_spec: RunSpec) -> "Window":
        """The window of an execution, whose config is checked against its columns.

        Raises:
            ConfigError: the config does not go with the columns.
        """
        loaded, pipeline, prepared = run_spec.loaded, run_spec.loaded.pipeline, run_spec.prepared
        spans = run_spec.spans
        # a span alone can be ingested, and be too little to train on
        parts = window_splits(pipeline.split, spans) if run_spec.last != "ingest" else {}
        frozen = None if prepared is None else prepared.schema_text
        columns = resolve(loaded, spans, run_spec.files, schema_text=frozen)
        counted = [column for column in columns.read if column.name in columns.stored]
        with contextlib.suppress(HeadwayError):  # what is wrong with the label is ingest's to say
            counted.append(pipeline.label.stored(columns.read))
        complete = not columns.inferred
        pipeline.validation.check(columns.schema, counted, where=str(loaded.file), complete=complete)
        serving = loaded.serving_file if prepared is None else None
        if serving is not None and not serving.is_file() and run_spec.last not in ("ingest", "statistics"):
            fix = "name a file of logged requests, JSON lines or tf.Examples, or leave the key out"
            raise ConfigError(f"{serving} is not a file", where=f"{loaded.file}: validation.serving", fix=fix)
        if (task_file := loaded.user_files.get("task")) is not None:
            with startup():
                load_task(pipeline.task, task_file)
        read = columns.read
        check_metrics(loaded, possible_tasks(pipeline.task, pipeline.label, read))
        return cls(run_spec, tuple(spans), {name: tuple(of) for name, of in parts.items()}, columns)

    @property
    def pipeline(self) -> Pipeline:
        return self.run_spec.loaded.pipeline

    def examples(self, split: str, ingested: Mapping[str, Output[Ingested]]) -> tuple[Examples, ...]:
        """The records of a split."""
        return tuple(examples_of(ingested[span], part) for span, part in self.parts[split])

    @property
    def group(self) -> str | None:
        """The column whose equal values are one group."""
        column = self.columns.of_role("group")
        return None if column is None else column.name

    @cached_property
    def code(self) -> dict[str, str]:
        """Digests of the user's files that a stage which calls the model, task or loss depends on."""
        files, keys = self.run_spec.loaded.user_files, {"module": "model.name", "task": "task", "loss": "training.loss"}
        return {name: user_files.digest(files[key]) for name, key in keys.items() if key in files}

    @cached_property
    def split_digest(self) -> str:
        """A digest of the settings that assign rows to splits; if it differs, so do the eval rows."""
        hashed = {column.name: f"{column.type}{list(column.shape) or ''}" for column in self.columns.hashed}
        by_place = {"by_place": True} if self.columns.by_place else {}
        return fingerprint(self.pipeline.split.at_ingest() | ({"hashed": hashed} if hashed else {}) | by_place)


def examples_of(ingested: Output[Ingested], part: str) -> Examples:
    """The records of one split of a span."""
    return Examples(fingerprint=ingested.fingerprint, path=ingested.path, split=part, result=ingested.get())
