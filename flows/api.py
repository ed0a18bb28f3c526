"""Headway from Python; `import headway` hands it out.

    import headway

    pipeline = headway.open("flights")                    # a folder with pipeline.yaml, or the file
    run = pipeline.run(window=9, until="2013-09")         # ingest to promotion; finished work is not repeated
    run.verdict.reasons; run.metrics["auc"]
    run.statistics.to_frame()
    run.model.predict(rows)                               # rows in memory: a table, a frame, columns by name

    with headway.fit(rows, label="arr_delay > 15") as model:    # no pipeline yet: one is drafted for the rows
        model.run.metrics["auc"], model.predict(others)

Each call is what the command of that name calls (`headway --help`): the same functions, the same store, the same errors. In a
notebook, what a call returns shows itself.
"""

import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from flows.config.pipeline import LoadedPipeline, read_pipeline
from flows.past_run import Run, Version
from flows.pipeline.context import Context
from flows.progress import terminal
from flows.progress.reporter import Reporter, stop_on_signals
from flows.records import LATEST, RunRecord, find, runs_of
from flows.tell.comparison.shown import Comparison
from flows.tell.rendering.tables import Table
from headway.errors import ConfigError, StoreError
from headway.monitor import Monitor
from headway.registry.registry import Registry
from headway.registry.versions import SAVED_MODEL

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Comparison", "Pipeline", "Run", "Table", "TableModel", "Version", "fit", "open"]

ASKED = "asked for from Python"
_FITTED = "# Written by headway.fit; what is not here has its default.\n"
Progress = bool | Callable[[str], None]
"""True: bars on a terminal, else lines, on stderr; False: nothing; a function: it gets each line."""


class _Calls(terminal.Lines):
    """Gives each line to a function."""

    def __init__(self, take: Callable[[str], None]):
        super().__init__()
        self._take = take

    def note(self, line: str) -> None:
        self._take(self.told(line))


@contextlib.contextmanager
def reporting(progress: Progress) -> Iterator[Reporter]:
    """A reporter whose stop Ctrl-C, or a notebook's stop button, asks for; a second one interrupts at once."""
    made = _Calls(progress) if callable(progress) else terminal.reporter(quiet=not progress)
    with made as report, stop_on_signals(report.stop, signal.SIGINT):
        yield report


def open(pipeline: str | Path = ".", *, set: Mapping[str, object] | None = None) -> "Pipeline":
    """Open a pipeline.

    Args:
        pipeline: pipeline.yaml, or its folder.
        set: keys with values in place of the file's, such as {"training.epochs": 3}.

    Raises:
        ConfigError: there is no such file, or it has a mistake.
    """
    return Pipeline(read_pipeline(Path(pipeline), set))


class Pipeline:
    """A pipeline.yaml with its store; `headway.open` makes it. The file is read once: open it again after a change.

    The window of a call is `window` spans (or a time, such as "30d", or "all") up to the span `until`; by default `window` of
    pipeline.yaml, else all spans.
    """

    def __init__(self, loaded: LoadedPipeline):
        self._loaded = loaded
        self._store = loaded.open_store()

    @property
    def name(self) -> str:
        return self._loaded.pipeline.name

    @property
    def file(self) -> Path:
        return self._loaded.file

    @property
    def config(self) -> dict[str, Any]:
        """Every key with its value, defaults among them."""
        return self._loaded.pipeline.model_dump(mode="json")

    # --- run

    def plan(self, *, window: int | str | None = None, until: str = "latest", seed: int | None = None) -> Table:
        """What a run would do, and why: a row per step that is known already. Runs nothing.

        Raises:
            ConfigError, DataError: as a run would.
        """
        from flows.pipeline.plan import plan_run
        from headway.messages import window_text

        found = plan_run(self._context(window, until, seed))
        rows = [{"step": step.step, "runs": not step.cached, "why": step.reason} for step in found.steps]
        later = f"; then, depending on the verdict: {', '.join(found.later)}" if found.later else ""
        about = f" ({found.window_says})" if found.window_says else ""
        return Table(f"{self.name}: {window_text(found.spans)}{about}{later}", rows)

    def run(
        self,
        *,
        window: int | str | None = None,
        until: str = "latest",
        seed: int | None = None,
        last: str | None = None,
        force: bool = False,
        alias: str | None = None,
        wait: float = 0.0,
        progress: Progress = True,
    ) -> Run:
        """Bring the pipeline from raw files to a promoted model; finished work is not repeated. Ctrl-C keeps what is done.

        Args:
            last: the stage to stop after, as `headway run --to` names it; nothing is promoted then. None: all the way.
            force: promote whatever the gate says.
            alias: point this alias at a candidate that passes, in place of the champion.
            wait: how many seconds to wait for another run of this pipeline.

        Returns:
            The run, whatever the gate said of its candidate.

        Raises:
            ConfigError, DataError, StoreError, Locked, Cancelled: as `headway run` says it; the run is recorded as failed.
        """
        from flows.pipeline.run import execute

        context = self._context(window, until, seed, last=last, force=force, alias=alias)
        with reporting(progress) as report:
            return self._as_run(execute(context, report, wait_seconds=wait))

    def tune(
        self,
        *,
        trials: int | None = None,
        timeout: float | None = None,
        window: int | str | None = None,
        until: str = "latest",
        progress: Progress = True,
    ) -> dict[str, Any]:
        """Try settings, judged on a holdout of the train rows; the result as `headway tune --json` prints it."""
        from flows.pipeline.tune import tune

        with reporting(progress) as report:
            found = tune(self._context(window, until, None), report, trials=trials, timeout=timeout)
        return found.model_dump(mode="json")

    def predict(
        self,
        input: str | Path,
        output: str | Path,
        *,
        model: str | int = "champion",
        columns: Sequence[str] | None = None,
        format: str | None = None,
        write: Literal["parquet", "jsonl"] = "parquet",
        progress: Progress = True,
    ) -> dict[str, Any]:
        """Predict files into a folder, as `headway predict` does; `Version.predict` predicts rows in memory."""
        from flows.pipeline.predict import predict

        with reporting(progress) as report:
            return predict(
                self._loaded,
                model=str(model),
                input=str(input),
                output=str(output),
                monitor=report.monitor("predict"),
                format=format,
                columns=columns,
                write=write,
            )

    # --- look

    def runs(self, limit: int = 20) -> list[Run]:
        """The runs of this pipeline, newest first."""
        records = [record for record in runs_of(self._store) if record.pipeline == self.name]
        return [self._as_run(record) for record in records[:limit]]

    def last_run(self, name: str = LATEST) -> Run:
        """The newest run, or the run whose name begins so.

        Raises:
            StoreError: there is none.
        """
        return self._as_run(find(self._store, name, pipeline=self.name))

    # --- versions

    @property
    def champion(self) -> Version | None:
        """The version in production; None: nothing was promoted yet."""
        found = self._registry.champion()
        return None if found is None else self._version(found.number)

    def versions(self) -> list[Version]:
        """The versions in the registry, oldest first."""
        return [self._version(version.number) for version in self._registry.versions()]

    def version(self, name: str | int) -> Version:
        """A version by its number, champion, previous or an alias.

        Raises:
            StoreError: there is none.
        """
        return self._version(self._registry.number(str(name)))

    def promote(
        self, version: str | int, *, alias: str | None = None, reason: str = ASKED, force: bool = False
    ) -> Version:
        """Make a version the champion, or point an alias at it.

        Args:
            version: its number, previous or an alias.
            force: even if it was rolled back, or somebody promoted meanwhile.

        Raises:
            StoreError: there is no such version, it was rolled back, or the champion changed meanwhile.
        """
        from flows.pipeline.promote import promote_version

        event = promote_version(
            self._loaded, self._registry, str(version), alias=alias, reason=reason, force=force, note=print
        )
        return self._version(event.version)

    def rollback(self, to: str | int | None = None, *, reason: str = ASKED, force: bool = False) -> Version:
        """Make the champion before the champion again, or the version `to`.

        Raises:
            StoreError: there is none, or the champion changed meanwhile.
        """
        from flows.pipeline.promote import roll_back

        name = None if to is None else str(to)
        event = roll_back(self._loaded, self._registry, name, reason=reason, force=force, note=print)
        return self._version(event.version)

    def compare(self, first: str | int, second: str | int) -> Comparison:
        """Two versions, or two runs, side by side.

        Args:
            first, second: a version's number, champion, previous or an alias, or a run's name.

        Raises:
            StoreError: no version or run has this name.
            ConfigError: both are the same one.
        """
        from flows.tell.comparison.compared import compare

        return Comparison(compare(self._registry, str(first), str(second)))

    # --- keep in order

    def clean(self, *, yes: bool = False, keep: int = 20, keep_versions: int | None = None) -> Table:
        """What of the store no kept run and no version needs; deleted only with `yes`."""
        from headway.messages import size
        from headway.registry import gc

        found = gc.clean(self._existing_store(), keep, keep_versions, dry_run=not yes)
        rows = [{"path": str(item.path), "bytes": item.bytes, "why": item.why} for item in found.removed]
        return Table(f"{size(found.bytes)} {'deleted' if yes else 'could be deleted'}", rows)

    def __repr__(self) -> str:
        return f"<Pipeline {self.name}: {self._place()}>"

    def _repr_html_(self) -> str:
        champion, runs = self.champion, self.runs(5)
        table = Table("", [{"run": run.name, "state": run.ending.label, "window": run.window} for run in runs])
        about = f"champion: {escape(repr(champion)) if champion else 'none yet'}"
        return f"<b>{escape(self.name)}</b> <code>{escape(self._place())}</code><br>{about}" + (
            table._repr_html_() if table else ""
        )

    def _place(self) -> str:
        """The file, as one would type it from here."""
        here = Path.cwd()
        return str(self.file.relative_to(here) if self.file.is_relative_to(here) else self.file)

    @property
    def _registry(self) -> Registry:
        return Registry(self._store, self.name)

    def _version(self, number: int) -> Version:
        return Version(self._loaded, self._registry, number)

    def _as_run(self, record: RunRecord) -> Run:
        return Run(self._loaded, self._store, record)

    def _context(self, window: int | str | None, until: str, seed: int | None, **more: Any) -> Context:
        return Context(self._loaded, self._store, window, until, seed, **more)

    def _existing_store(self) -> Any:
        if not self._store.exists():
            raise StoreError("there is no store yet", where=self._store.name, fix="Pipeline.run makes one")
        return self._store


def fit(
    rows: Any, *, label: str, store: str | Path | None = None, progress: Progress = True, **keys: Any
) -> "TableModel":
    """Train a model of one table: the table becomes the only span of a store, and the ordinary pipeline runs on it.

    The pipeline is the one that `headway init` drafts for the rows, with `keys` in place of its own.

    Args:
        rows: a pyarrow.Table, a pandas.DataFrame, a mapping of names to columns, or a list of mappings.
        label: a column, or an expression such as "arr_delay > 15".
        store: the folder that keeps pipeline.yaml, the rows and the store, for `headway.open`; None: a temporary one.
        keys: top-level keys of pipeline.yaml, such as training={"steps": 200} and columns={"*": "auto", "fare": "ignore"}.

    Returns:
        The run, whatever the gate said of its candidate, and what predicts with the model that it trained.

    Raises:
        ConfigError, DataError: a key is wrong, or the rows cannot be learned from.
    """
    import pyarrow.parquet as pq
    import yaml

    from flows.pipeline.predict import as_table
    from headway.config import read_value
    from headway.first_pipeline.draft import draft_of, look_at
    from headway.first_pipeline.found_files import found_source
    from headway.first_pipeline.label_choice import label_of
    from headway.first_pipeline.yaml_text import pipeline_text

    table = as_table(rows).replace_schema_metadata()  # the same rows from pandas and from Arrow are the same file
    temporary = TemporaryDirectory(prefix="headway-fit-") if store is None else None
    folder = Path(temporary.name if temporary else str(store)).resolve()
    file = folder / "pipeline.yaml"
    if file.exists() and not file.read_text(encoding="utf-8").startswith(_FITTED):
        raise ConfigError("there is another pipeline already", where=str(file), fix="give store= a folder of its own")
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / "rows.parquet")
    source, look = look_at(found_source(str(folder / "rows.parquet")))
    draft = draft_of(source, look, label_of(label, look.names), name="table")
    config = read_value(pipeline_text(draft, path="rows.parquet")) | keys
    file.write_text(_FITTED + yaml.safe_dump(config, sort_keys=False, allow_unicode=True), encoding="utf-8")
    pipeline = open(file)
    with reporting(progress) as report:
        for doubt in draft.doubts:
            report.note(doubt)
    run = exported = pipeline.run(progress=progress)
    if all(step["stage"] != "export" for step in run.record["stages"]):  # the gate let no model through
        exported = pipeline.run(last="export", progress=progress)
    return TableModel(pipeline, run, exported.output("export") / SAVED_MODEL, temporary)


class TableModel:
    """The model of one table; `headway.fit` makes it.

    Attributes:
        pipeline: the pipeline that was drafted for the table.
        run: the run that trained it: its verdict, metrics and report.
        saved_model: the folder of the SavedModel, of a candidate that the gate rejected too.
    """

    def __init__(self, pipeline: Pipeline, run: Run, saved_model: Path, temporary: "TemporaryDirectory[str] | None"):
        self.pipeline, self.run, self.saved_model, self._temporary = pipeline, run, saved_model, temporary

    def predict(self, rows: Any) -> "pa.Table":
        """Predict rows in memory, as `Version.predict` does: an Arrow table with a row for each, in their order."""
        from flows.pipeline.predict import predict_rows

        return predict_rows(self.pipeline._loaded, rows, model=str(self.saved_model), monitor=Monitor())

    def close(self) -> None:
        """Delete a temporary store; one that `store` named stays."""
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> "TableModel":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
