"""A recorded run, and a version of the model, as objects that show themselves; `flows.api` hands them out."""

from html import escape
from pathlib import Path
from typing import Any

from flows.config.pipeline import LoadedPipeline
from flows.records import RunRecord, read_log
from flows.tell.ending import Ending, ending_of
from flows.tell.html import fragment
from flows.tell.metric_tables import metric_table, values_of
from flows.tell.paired import metrics_of, names_of, own_levels, own_table
from flows.tell.rendering.parts import Part
from flows.tell.rendering.tables import Table
from flows.tell.rerun_reasons import steps_explained
from flows.tell.summary import summary, window
from headway.errors import StoreError
from headway.evaluation.results.measured import Measured
from headway.evaluation.verdict import Verdict
from headway.messages import counted
from headway.monitor import Monitor
from headway.registry.registry import Registry
from headway.stages.step import Output
from headway.statistics.summary import WindowStatistics
from headway.storage.store import Store


class Run:
    """A run of a pipeline, as the store keeps it."""

    def __init__(self, loaded: LoadedPipeline, store: Store, record: RunRecord):
        self._loaded, self._store, self._record = loaded, store, record

    @property
    def record(self) -> dict[str, Any]:
        """What runs/<run>.json holds."""
        return self._record.as_json()

    @property
    def name(self) -> str:
        return self._record.run

    @property
    def state(self) -> str:
        """promoted, already champion, named, done, the verdict on a candidate that was not promoted, failed, cancelled, ..."""
        return str(self._record.state)

    @property
    def ending(self) -> Ending:
        """How it ended: word, tone (green, amber, red or plain), headline, concerns, reasons, checks."""
        return ending_of(self._record)

    @property
    def headline(self) -> str:
        """How it ended, in a sentence."""
        return self.ending.headline

    @property
    def window(self) -> str:
        return window(self._record.spans) or "no spans"

    @property
    def seconds(self) -> float:
        return self._record.seconds

    @property
    def verdict(self) -> Verdict | None:
        """The gate's decision with its reasons and checks; None: the run ended before the gate."""
        return self._record.verdict

    @property
    def metrics(self) -> dict[str, float]:
        """The candidate's metrics on the eval split; empty: the run ended before the evaluation."""
        return {name: value for name, value in self._record.metrics.items() if value is not None}

    @property
    def warnings(self) -> list[str]:
        return list(self._record.warnings)

    @property
    def statistics(self) -> Table:
        """A row per column and split: rows, missing, distinct, mean, quantiles, the most frequent values. `temporal` names the
        unit of dates and times, counted since 1970-01-01: days ("date"), microseconds ("timestamp"), "epoch_seconds", ...

        Raises:
            StoreError: the run has no statistics, or they are gone.
        """
        found = self._find("statistics").read(WindowStatistics)
        rows = [
            {"split": split, **column.model_dump(exclude_unset=True), "top": [str(value) for value, _ in column.top]}
            for split, columns in found.columns.items()
            for column in columns
        ]
        return Table("statistics", rows)

    @property
    def evaluation(self) -> Table:
        """A row per metric: its value, the ends of its interval, and what constant and linear predictions have on the same
        rows. A run whose candidate was the champion already has what that was promoted with.

        Raises:
            StoreError: the run has no evaluation, or it is gone.
        """
        ran = self._record.step("measure") is not None
        if not ran and self.metrics:
            found = Measured(task="", rows=0, metrics=self._record.metrics, baselines=self._record.baselines)
        else:
            found = self._find("measure").read(Measured)
        rows = []
        for each in found.values:
            low, high = each.interval or (None, None)
            beside = {who: values.get(each.name) for who, values in found.baselines.items()}
            rows.append({"metric": each.name, "value": each.value, "low": low, "high": high, **beside})
        return Table(
            f"metrics on {counted(found.rows, 'eval row')}" if found.rows else "metrics on the eval rows", rows
        )

    @property
    def model(self) -> "Version":
        """The version that this run promoted, or found to be the champion.

        Raises:
            StoreError: there is none.
        """
        if self._record.version is None:
            fix = "Pipeline.champion is the version in production"
            raise StoreError(
                f"run {self.name} has no version of the model: {self.headline}", where=self._store.name, fix=fix
            )
        return Version(self._loaded, Registry(self._store, self._loaded.pipeline.name), self._record.version)

    @property
    def report(self) -> Path | None:
        """The page that `headway report` names, on this machine's disk; None: it was not written."""
        from flows.tell.report_page import on_this_disk, path_of

        try:
            return on_this_disk(self._store, path_of(self._store, self.name))
        except FileNotFoundError:
            return None

    @property
    def log(self) -> str:
        """What the run reported, a line each with its time; empty: it has no log."""
        return read_log(self._store, self.name) or ""

    @property
    def steps(self) -> Table:
        """A row per step: whether it ran or was reused, why, how long it took, and where its output lies."""
        names = {"title", "stage", "cached", "seconds", "reason", "output", "fingerprint"}
        rows = [step.model_dump(include=names) for step in steps_explained(self._store, self._record)]
        return Table(f"run {self.name}: {self.headline}", rows)

    def output(self, stage: str) -> Path:
        """The folder of a stage's output, such as "evaluate", or of a step's, such as "ingest 2013-01".

        Raises:
            StoreError: the run has no such stage, or its output is gone.
        """
        found = self._find(stage)
        self._store.localize([found.path])
        return found.path

    def _find(self, stage: str) -> Output[Any]:
        if self._record.step(stage) is None:
            ran = ", ".join(dict.fromkeys(step.stage for step in self._record.stages)) or "no stage"
            problem = f"run {self.name} has no {stage}: {self.headline}"
            raise StoreError(problem, where=self._store.name, fix=f"it has {ran}")
        if (output := self._record.output(self._store, stage)) is None:
            problem = f"the {stage} of run {self.name} is no longer in the store"
            raise StoreError(problem, where=self._store.name, fix="Pipeline.run makes it again")
        return output

    def __repr__(self) -> str:
        return f"<Run {self.name}: {self.headline}>"

    def __str__(self) -> str:
        return summary(self._record)

    def _repr_html_(self) -> str:
        ending = self.ending
        task = self.verdict.task if self.verdict is not None else None
        tables = [metric_table(values_of(self._record.metrics), task=task)] if self.metrics else []
        about = f"{self._record.pipeline}: {self.window}; {self.seconds:.1f} s; run {self.name}"
        return fragment(ending, [Part("Run", [about], tables=tables)])


class Version:
    """A version of the model in the registry."""

    def __init__(self, loaded: LoadedPipeline, registry: Registry, number: int):
        self._loaded, self._registry, self.number = loaded, registry, number
        self._version = registry.version(number)

    @property
    def saved_model(self) -> Path:
        """The folder of the SavedModel."""
        return self._version.saved_model

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics on the eval split of the run that made it."""
        return metrics_of(self._version)

    @property
    def names(self) -> list[str]:
        """What points at it now: champion, previous, aliases."""
        return list(names_of(self._registry, self.number))

    @property
    def lineage(self) -> dict[str, Any]:
        """Run, code, config, spans and raw files behind it, as lineage.json in its folder has them."""
        return self._registry.lineage(self._version)

    def predict(self, rows: Any) -> Table:
        """Predict rows in memory, by the same job as `headway predict`; TensorFlow is loaded into this process.

        Args:
            rows: a pyarrow.Table, a pandas.DataFrame, a mapping of names to columns, or a list of mappings, with the columns
                that the model takes; others are ignored.

        Returns:
            A row for each, in their order: `prediction`, and of several classes `probabilities`.

        Raises:
            DataError: a column is missing, or a row cannot be predicted.
        """
        from flows.pipeline.predict import predict_rows

        predicted = predict_rows(self._loaded, rows, model=str(self.number), monitor=Monitor())
        return Table.of_arrow(str(self), predicted)

    def __repr__(self) -> str:
        names = "".join(f", {name}" for name in self.names)
        return f"<Version {self.number} of {self._loaded.pipeline.name}{names}: {own_levels(self._version)}>"

    def __str__(self) -> str:
        return f"version {self.number} of {self._loaded.pipeline.name}"

    def _repr_html_(self) -> str:
        head = f"<b>{escape(str(self))}</b> {escape(', '.join(self.names))}<br><code>{escape(str(self.saved_model))}</code>"
        return head + own_table(self._version)._repr_html_()
