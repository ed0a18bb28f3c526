"""`import headway` offers `open`, for a pipeline, and `fit`, for one table. They do what the commands do.

>>> import pyarrow.parquet
>>> import headway

>>> pipeline = headway.open("examples/flights")
>>> run = pipeline.run(window=9, until="2013-09", progress=False)  # finished work is not repeated
>>> print(f"version {run.version}: auc {run.metrics['auc']:.2f}")
version 1: auc 0.92
>>> rows = pyarrow.parquet.read_table("examples/flights/data/2013-10.parquet")
>>> print(pipeline.predict(rows).column_names)
['prediction']
>>> print([step.step for step in pipeline.plan(window=10, until="2013-10").steps if not step.cached][:2])
['ingest 2013-10', 'statistics']
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from flows.config.pipeline import LoadedPipeline, read_pipeline
from flows.pipeline.context import Context
from flows.pipeline.listeners import Reporter, reporter, stop_on_signals
from flows.records import RunRecord, runs_of
from flows.report.verdict import ending_of, explain
from flows.report.versions import metrics_of, names_of_versions, own_levels
from headway.errors import ConfigError, StoreError
from headway.monitor import Monitor
from headway.registry.registry import Registry
from headway.registry.versions import SAVED_MODEL
from headway.storage.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

    from flows.pipeline.plan import Plan

__all__ = ["open", "Pipeline", "Run", "Version", "fit", "TableModel"]

_FITTED = "# Written by headway.fit; what is not here has its default.\n"


def open(path: str | Path = ".", *, set: Mapping[str, object] | None = None) -> Pipeline:
    """Opens a pipeline; its file is read once.

    Args:
        path: the pipeline.yaml, or its folder.
        set: keys with values in place of the file's, as `--set` has them: `{"training.epochs": 3}`.

    Raises:
        ConfigError: there is no such file, or it has a mistake.
    """
    return Pipeline(read_pipeline(Path(path), set))


class Pipeline:
    """A pipeline.yaml with its store; `headway.open` makes it.

    A call works on a window: `window` spans, or a time such as "30d", or "all", up to the span `until`. Without `window` it is
    that of pipeline.yaml, else all spans.

    Attributes:
        name: the name that pipeline.yaml gives it.
        file: the absolute path of pipeline.yaml.
    """

    def __init__(self, loaded: LoadedPipeline):
        self._loaded, self._store = loaded, loaded.open_store()
        self._registry = Registry(self._store, loaded.pipeline.name)
        self.name, self.file = loaded.pipeline.name, loaded.file

    def plan(self, *, window: int | str | None = None, until: str = "latest", seed: int | None = None) -> Plan:
        """Says what a run would do, and why. Nothing is run or written.

        Returns:
            The plan: the `spans` of the window; the `steps`, each with its title `step`, whether its output is there
            (`cached`), and else the `reason` why it would run; `later`, the stages that depend on the verdict.

        Raises:
            ConfigError, DataError: a run would fail with it, too.
        """
        from flows.pipeline.plan import plan_run

        return plan_run(self._context(window, until, seed))

    def run(
        self,
        *,
        window: int | str | None = None,
        until: str = "latest",
        seed: int | None = None,
        last: str | None = None,
        progress: bool = True,
    ) -> Run:
        """Goes from raw files to a promoted model; finished work is not repeated. Training is in a process of its own.

        Ctrl-C, or the stop button of a notebook, ends it in order: finished work is kept. A second one ends it at once.

        Args:
            seed: in place of pipeline.yaml's.
            last: the stage to end with, as `headway run --to` names it; nothing is promoted then.
            progress: whether progress is shown on stderr.

        Returns:
            The run, whatever the gate said of its candidate.

        Raises:
            ConfigError, DataError, StoreError: there is a mistake; the run is recorded as failed.
            Locked: another run of this pipeline goes on.
            Overtaken: somebody else promoted while it ran.
            Cancelled: it was stopped.
        """
        from flows.pipeline.run import execute

        context = self._context(window, until, seed, last=last)
        with _reporting(progress) as report:
            return Run(self._store, execute(context, report))

    def predict(self, rows: Any, *, model: str | int = "champion") -> pa.Table:
        """Predicts rows in memory. TensorFlow is loaded into this process; the predictions are those of files, bit for bit.

        Args:
            rows: a pyarrow.Table, a pandas.DataFrame, a mapping of names to columns, or a list of mappings; other columns
                than the model takes are ignored.
            model: a version's number, "champion", "previous", an alias, or the folder of a SavedModel.

        Returns:
            A table with a row for each row, in their order. It has the column `prediction` (a probability, a class or a
            value in the label's unit) and, with several classes, `probabilities`.

        Raises:
            DataError: a column is missing, or a row cannot be predicted.
            StoreError: the version does not exist.
        """
        from flows.pipeline.predict import predict_rows

        return predict_rows(self._loaded, rows, model=str(model), monitor=Monitor())

    def predict_files(
        self, files: str | Path, output: str | Path, *, model: str | int = "champion", progress: bool = True
    ) -> dict[str, Any]:
        """Predicts files into a folder, as `headway predict` does.

        Args:
            files: their path, in which `*` stands for any name.
            output: the folder, also one of a bucket.
            model: as `predict` takes it.

        Returns:
            What `headway predict --json` prints, such as the `counts` of rows and the files of the predictions, `parts`.

        Raises:
            DataError: a column is missing, or more rows cannot be predicted than `validation.max_quarantined` allows.
            StoreError: the version does not exist.
        """
        from flows.pipeline.predict import predict

        with _reporting(progress) as report, report.step("predict") as monitor:
            return predict(self._loaded, model=str(model), input=str(files), output=str(output), monitor=monitor)

    def runs(self) -> list[Run]:
        """Returns the runs of this pipeline, the newest first."""
        return [Run(self._store, record) for record in runs_of(self._store) if record.pipeline == self.name]

    def versions(self) -> list[Version]:
        """Returns the versions of the model, the oldest first; empty before the first promotion."""
        return [Version(self._loaded, self._registry, version.number) for version in self._registry.versions()]

    def version(self, name: str | int = "champion") -> Version:
        """Returns one version of the model, by its number, "champion", "previous" or an alias.

        Raises:
            StoreError: the version does not exist.
        """
        return Version(self._loaded, self._registry, self._registry.number(str(name)))

    def __repr__(self) -> str:
        here = Path.cwd()
        return f"<Pipeline {self.name}: {self.file.relative_to(here) if self.file.is_relative_to(here) else self.file}>"

    def _context(self, window: int | str | None, until: str, seed: int | None, **more: Any) -> Context:
        return Context(self._loaded, self._store, window, until, seed, **more)


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
        """Returns the folder of a stage's output, such as "statistics", or of one step's, such as "ingest 2013-01".

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
        """The names that point at it now: "champion", "previous", aliases."""
        return names_of_versions(self._registry)[self.number]

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics by name, on the eval split of the run that made it."""
        return metrics_of(self._version)

    def predict(self, rows: Any) -> pa.Table:
        """Predicts rows in memory with this version, as `Pipeline.predict` does; raises the same errors."""
        from flows.pipeline.predict import predict_rows

        return predict_rows(self._loaded, rows, model=str(self.number), monitor=Monitor())

    def __repr__(self) -> str:
        names = "".join(f", {name}" for name in self.names)
        return f"<Version {self.number} of {self._loaded.pipeline.name}{names}: {own_levels(self._version)}>"


def fit(table: Any, *, label: str, store: str | Path | None = None, progress: bool = True, **keys: Any) -> TableModel:
    """Trains a model of one table: drafts a pipeline for it as `headway init` does, sets `keys` in it, and runs it.

    Args:
        table: a pyarrow.Table, a pandas.DataFrame, a mapping of names to columns, or a list of mappings.
        label: a column, or an expression such as `"arr_delay > 15"`.
        store: the folder that keeps pipeline.yaml, the rows and the store, for `headway.open`; None: a temporary one.
        progress: whether progress is shown on stderr.
        keys: top-level keys of pipeline.yaml, such as `training={"steps": 200}` and `split={"eval": 0.3}`.

    Returns:
        The trained model with its run, whatever the gate said of the candidate.

    Raises:
        ConfigError, DataError: a key is wrong, or the rows cannot be learned from.

    >>> import numpy as np

    >>> rng = np.random.default_rng(0)
    >>> rows = {"distance": rng.normal(1000, 400, 2000), "carrier": rng.choice(["AA", "UA", "DL"], 2000)}
    >>> rows["late"] = (rows["distance"] / 400 + 3 * (rows["carrier"] == "UA") + rng.normal(size=2000) > 4).astype(int)
    >>> with headway.fit(rows, label="late", training={"steps": 200}, progress=False) as model:
    ...     print(model.run.state, f"{model.run.metrics['auc']:.1f}")
    ...     print(model.predict({"distance": [500.0, None], "carrier": ["UA", "AA"]}).num_rows)
    promoted 0.9
    2
    """
    import pyarrow.parquet as pq
    import yaml

    from flows.pipeline.predict import as_table
    from headway.config import read_value
    from headway.first_pipeline.draft import draft_of, read_source
    from headway.first_pipeline.found_files import found_source
    from headway.first_pipeline.label_choice import label_of
    from headway.first_pipeline.yaml_text import pipeline_text

    rows = as_table(table).replace_schema_metadata()  # the same rows from pandas and from Arrow are the same file
    temporary = TemporaryDirectory(prefix="headway-fit-") if store is None else None
    folder = Path(temporary.name if temporary else str(store)).resolve()
    file = folder / "pipeline.yaml"
    if file.exists() and not file.read_text(encoding="utf-8").startswith(_FITTED):
        raise ConfigError("there is another pipeline already", where=str(file), fix="give store= a folder of its own")
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, folder / "rows.parquet")
    source, look = read_source(found_source(str(folder / "rows.parquet")))
    draft = draft_of(source, look, label_of(label, look.names), name="table")
    config = read_value(pipeline_text(draft, path="rows.parquet")) | keys
    file.write_text(_FITTED + yaml.safe_dump(config, sort_keys=False, allow_unicode=True), encoding="utf-8")
    pipeline = open(file)
    with _reporting(progress) as report:
        for doubt in draft.doubts:
            report.note(doubt)
    run = exported = pipeline.run(progress=progress)
    if all(step["stage"] != "export" for step in run.record["stages"]):  # the gate let no model through
        exported = pipeline.run(last="export", progress=progress)
    return TableModel(pipeline, run, exported.output("export") / SAVED_MODEL, temporary)


class TableModel:
    """The model of one table; `headway.fit` makes it. At the end of a `with` block it is closed.

    Attributes:
        pipeline: the pipeline that was drafted for the table.
        run: the run that trained it.
        saved_model: the folder of the SavedModel, also of a rejected candidate.
    """

    def __init__(self, pipeline: Pipeline, run: Run, saved_model: Path, temporary: TemporaryDirectory[str] | None):
        self.pipeline, self.run, self.saved_model, self._temporary = pipeline, run, saved_model, temporary

    def predict(self, rows: Any) -> pa.Table:
        """Predicts rows in memory, as `Pipeline.predict` does; raises the same errors."""
        return self.pipeline.predict(rows, model=str(self.saved_model))

    def close(self) -> None:
        """Deletes a temporary store; one that `store` named stays."""
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> TableModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def _reporting(progress: bool) -> Iterator[Reporter]:
    """Yields a reporter that Ctrl-C, or a notebook's stop button, asks to stop; a second one interrupts at once."""
    with reporter(quiet=not progress) as report, stop_on_signals(report.stop, signal.SIGINT):
        yield report
