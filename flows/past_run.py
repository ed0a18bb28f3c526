"""A recorded run, and a version of the model, as `headway.open` hands them out."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.config.pipeline import LoadedPipeline
from flows.records import RunRecord
from flows.report.checks import explain
from flows.report.verdict import ending_of
from flows.report.versions import metrics_of, names_of, own_levels
from headway.errors import StoreError
from headway.monitor import Monitor
from headway.registry.registry import Registry
from headway.storage.store import Store

if TYPE_CHECKING:
    import pyarrow as pa


class Run:
    """A run of a pipeline, as the store keeps it; `Pipeline.run` and `Pipeline.runs` return it.

    Attributes:
        name: by which `headway show` and `headway report` find it.
        state: how it ended: "promoted", "already champion", "kept", "rejected" or "needs a person" where the gate promoted
            nothing, "done" (after the stage `last`), "failed", "cancelled" or "killed"; "running" while it goes on.
        headline: the same as a sentence.
        version: the number of the version that it promoted or found to be the champion; None if there is none.
    """

    def __init__(self, store: Store, record: RunRecord):
        self._store, self._record = store, record
        self.name, self.state, self.version = record.run, str(record.state), record.version
        self.headline = ending_of(record).headline

    @property
    def verdict(self) -> str | None:
        """The gate's decision with its reasons, as text; None if the run ended before the gate."""
        found = self._record.verdict
        return None if found is None else f"{found.status}: {'; '.join(explain(found).sentences)}"

    @property
    def metrics(self) -> dict[str, float]:
        """The candidate's metrics on the rows of the eval split, by name; empty if the run ended before the evaluation. Errors
        such as rmse are in the label's unit."""
        return {name: value for name, value in self._record.metrics.items() if value is not None}

    @property
    def report(self) -> Path | None:
        """The path of the report, one HTML page, on this machine's disk; None if it was not written."""
        from flows.report.page import on_this_disk, path_of

        try:
            return on_this_disk(self._store, path_of(self._store, self.name))
        except FileNotFoundError:
            return None

    @property
    def record(self) -> dict[str, Any]:
        """All that the run left in runs/NAME.json of the store, such as its steps, config and verdict with every check."""
        return self._record.as_json()

    def output(self, stage: str) -> Path:
        """The folder of a stage's output, such as "statistics", or of one step's, such as "ingest 2013-01".

        Raises:
            StoreError: the run has no such stage, or its output is gone.
        """
        if self._record.step(stage) is None:
            ran = ", ".join(dict.fromkeys(step.stage for step in self._record.stages)) or "no stage"
            problem = f"run {self.name} has no {stage}: {self.headline}"
            raise StoreError(problem, where=self._store.name, fix=f"it has {ran}")
        if (found := self._record.output(self._store, stage)) is None:
            problem = f"the {stage} of run {self.name} is no longer in the store"
            raise StoreError(problem, where=self._store.name, fix="Pipeline.run makes it again")
        self._store.localize([found.path])
        return found.path

    def __repr__(self) -> str:
        return f"<Run {self.name}: {self.headline}>"


class Version:
    """A version of the model in the registry; `Pipeline.version` and `Pipeline.versions` return it.

    Attributes:
        number: from 1, in the order in which they were made.
        saved_model: the folder of the SavedModel.
    """

    def __init__(self, loaded: LoadedPipeline, registry: Registry, number: int):
        self._loaded, self._registry, self._version = loaded, registry, registry.version(number)
        self.number, self.saved_model = number, self._version.saved_model

    @property
    def names(self) -> list[str]:
        """What points at it now: "champion", "previous", aliases."""
        return list(names_of(self._registry, self.number))

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics by name, on the eval split of the run that made it."""
        return metrics_of(self._version)

    def predict(self, rows: Any) -> "pa.Table":
        """Predicts rows in memory with this version, as `Pipeline.predict` does with any, with its errors."""
        from flows.pipeline.predict import predict_rows

        return predict_rows(self._loaded, rows, model=str(self.number), monitor=Monitor())

    def __repr__(self) -> str:
        names = "".join(f", {name}" for name in self.names)
        return f"<Version {self.number} of {self._loaded.pipeline.name}{names}: {own_levels(self._version)}>"
