"""Copies runs, metrics, verdicts, versions and aliases to an MLflow server; the store remains the source of truth.

    report.of(run, MLflow(loaded, registry))          # a listener: logs a run when it has ended
    sync_aliases(loaded, registry, note=print)        # after a promotion or rollback by hand

The server is `tracking.uri` of the pipeline, or MLFLOW_TRACKING_URI; without either, MLflow is not even imported. If
the server cannot be reached, the run gets a note and goes on. MLflow's registry links to Headway's versions.
"""

import contextlib
import importlib.util
import os
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from flows.config.extras import install_command
from flows.config.pipeline import LoadedPipeline
from flows.pipeline.listeners import Listener, Scope, failure
from flows.records import RunRecord, State, read_record
from flows.report.verdict import ending_of, explain
from headway.errors import ConfigError
from headway.registry.pointers import CHAMPION
from headway.registry.registry import Registry
from headway.storage.store import Store
from tfcore.train.request import TrainRequest

URI = "MLFLOW_TRACKING_URI"
_SETTINGS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}
"""Environment variables that are set unless they have a value. By default MLflow waits for minutes for a dead server,
reports its use, and prints each step of making a database."""
_MOST_PARAMS, _LONGEST = 100, 500
VERSION, RUN = "headway.version", "headway.run"
Note = Callable[[str], None]


def check(loaded: LoadedPipeline) -> None:
    """Raise ConfigError if the pipeline names an MLflow server and MLflow is not installed."""
    if loaded.pipeline.tracking.uri is not None and importlib.util.find_spec("mlflow") is None:
        raise ConfigError(
            "tracking needs MLflow, which is not installed",
            where=f"{loaded.file}: tracking.uri",
            fix=install_command("mlflow"),
        )


class MLflow(Listener):
    """A listener that logs ended runs to MLflow, links their versions, sets aliases; not if cancelled or with a `last` stage."""

    def __init__(self, loaded: LoadedPipeline, registry: Registry):
        self._loaded, self._registry, self._uri = loaded, registry, _address(loaded)
        self.name = f"MLflow at {self._uri}"

    def on_run(self, scope: Scope, record: RunRecord) -> None:
        if not self._uri or record.last is not None or record.state in (State.RUNNING, State.CANCELLED):
            return
        with _server(self._uri, self._loaded) as server:
            run_id = server.run(record, _history(self._registry.store, record))
            if record.version is not None and record.state != State.ALREADY:
                server.link(self._registry, record.version, run_id)
            server.point(self._registry)


def sync_aliases(loaded: LoadedPipeline | None, registry: Registry, *, note: Note) -> None:
    """Set MLflow's aliases, champion among them, as in the registry. Without a server do nothing; an error becomes a note."""
    if loaded is None or not (uri := _address(loaded)):
        return
    try:
        with _server(uri, loaded) as server:
            server.point(registry)
    except Exception as error:
        note(failure(f"MLflow at {uri}", error))


def _address(loaded: LoadedPipeline) -> str | None:
    return loaded.pipeline.tracking.uri or os.environ.get(URI)


@contextlib.contextmanager
def _server(uri: str, loaded: LoadedPipeline) -> "Iterator[_Server]":
    unset = [name for name in _SETTINGS if name not in os.environ]
    os.environ.update({name: _SETTINGS[name] for name in unset})
    try:
        from mlflow import MlflowClient  # an extra, and seconds to import

        _check_database(uri)
        yield _Server(MlflowClient(tracking_uri=uri, registry_uri=uri), loaded)
    finally:
        for name in unset:
            os.environ.pop(name, None)


def _check_database(uri: str) -> None:
    """Raise SQLAlchemy's error if a database cannot be opened: MLflow itself would try for minutes. A SQLite file in a
    folder that does not exist is not checked: MLflow makes the folder."""
    if not uri.startswith(("sqlite:", "postgresql", "mysql", "mssql")):
        return
    from sqlalchemy import create_engine, make_url

    url = make_url(uri)
    if url.get_backend_name() == "sqlite" and not Path(url.database or ".").parent.is_dir():
        return
    engine = create_engine(url)
    try:
        engine.connect().close()
    finally:
        engine.dispose()


class _Server:
    def __init__(self, client: Any, loaded: LoadedPipeline):
        self._client, self._pipeline = client, loaded.pipeline
        self._experiment = loaded.pipeline.tracking.experiment or loaded.pipeline.name

    def run(self, record: RunRecord, history: list[dict[str, Any]]) -> str:
        """Log a run, and return MLflow's id of it."""
        from mlflow.entities import Metric, Param, RunTag

        client, record = self._client, read_record(record.as_json())  # without secrets
        experiment = client.get_experiment_by_name(self._experiment)
        number = client.create_experiment(self._experiment) if experiment is None else experiment.experiment_id
        times = (record.started, str(record.ended))
        started, ended = (int(datetime.fromisoformat(time).timestamp() * 1000) for time in times)
        run_id = client.create_run(number, start_time=started, run_name=record.run).info.run_id
        verdict, git = record.verdict, record.code and record.code.git
        ending = ending_of(record)
        tags = {
            RUN: record.run,
            "headway.pipeline": record.pipeline,
            "headway.state": record.state,
            "headway.verdict": verdict and verdict.status,
            "headway.headline": ending.headline,
            "headway.tone": ending.tone,
            "headway.concerns": "; ".join(ending.concerns),
            "headway.reasons": verdict and "; ".join(explain(verdict).sentences),
            "headway.error": record.error,
            VERSION: record.version,
            "mlflow.source.git.commit": git and git.commit,
            "mlflow.source.name": record.file,
        }
        metrics = {
            **record.metrics,
            **{f"test.{name}": value for name, value in (record.test.metrics if record.test else {}).items()},
            **{f"{who}.{name}": value for who, values in record.baselines.items() for name, value in values.items()},
            "seconds": record.seconds,
        }
        known = [Metric(name, value, ended, 0) for name, value in metrics.items() if value is not None]
        curve = [
            Metric(f"train.{name}", point[name], ended, point["step"])
            for point in history
            for name in ("loss", "holdout_loss")
            if point.get(name) is not None
        ]
        params = [Param(name, str(value)[:_LONGEST]) for name, value in _params(record).items()][:_MOST_PARAMS]
        named = [RunTag(name, str(value)[:5000]) for name, value in tags.items() if value not in (None, "")]
        client.log_batch(run_id, metrics=known, params=params, tags=named)
        for first in range(0, len(curve), 1000):
            client.log_batch(run_id, metrics=curve[first : first + 1000])
        failed = record.state in (State.FAILED, State.CANCELLED)
        client.set_terminated(run_id, "FAILED" if failed else "FINISHED", end_time=ended)
        return run_id

    def link(self, registry: Registry, number: int, run_id: str) -> None:
        """Register a version in MLflow as a link to Headway's, unless it is registered."""
        name = self._pipeline.name
        if not self._client.search_registered_models(f"name = '{name}'"):
            self._client.create_registered_model(name, description="versions of Headway's registry")
        if str(number) in self._known():
            return
        path = registry.version(number).saved_model
        store = registry.store.name
        source = (
            f"{store}/{path.relative_to(registry.store.root).as_posix()}" if "://" in store else f"headway://{path}"
        )
        self._client.create_model_version(name, source=source, run_id=run_id, tags={VERSION: str(number)})

    def _known(self) -> dict[str, str]:
        """Returns {Headway's version number: MLflow's version}."""
        found = self._client.search_model_versions(f"name = '{self._pipeline.name}'", max_results=10_000)
        return {version.tags[VERSION]: version.version for version in found if VERSION in version.tags}

    def point(self, registry: Registry) -> None:
        """Set MLflow's aliases as in the registry, for versions that MLflow knows; delete the model's other aliases there."""
        name, known = self._pipeline.name, self._known()
        if not known:
            return
        champion = registry.champion()
        wanted = registry.aliases() | ({CHAMPION: champion.number} if champion is not None else {})
        present = self._client.get_registered_model(name).aliases
        for alias, number in wanted.items():
            version = known.get(str(number))
            if version is not None and str(present.get(alias)) != str(version):
                self._client.set_registered_model_alias(name, alias, version)
        for alias in present:
            if alias not in wanted or str(wanted[alias]) not in known:
                self._client.delete_registered_model_alias(name, alias)


def _history(store: Store, record: RunRecord) -> list[dict[str, Any]]:
    """Returns the loss curve of a run's training: dicts with step, loss, holdout_loss, ...; empty if the run trained nothing."""
    trained = next((step for step in record.executed_steps if step.stage == TrainRequest.name), None)
    if trained is None:
        return []
    from flows.report.training import read_history

    return read_history(store.local(store.output(trained.stage, trained.fingerprint)) / "history.json")


def _params(record: RunRecord) -> dict[str, object]:
    spans, chosen = record.spans, record.training
    params: dict[str, object] = {"seed": record.seed} | ({"spans": f"{spans[0]} to {spans[-1]}"} if spans else {})
    if chosen is None:
        return params
    params["train_rows"] = chosen.rows
    settings = _flat("training", chosen.training) | _flat("model", chosen.model)
    return params | {key: value for key, value in settings.items() if value not in (None, {}, [], "")}


def _flat(name: str, value: object) -> dict[str, object]:
    """Returns a nested setting as {dotted path, such as training.epochs: value}."""
    if not isinstance(value, dict) or not value:
        return {name: value}
    return {path: inner for key, each in value.items() for path, inner in _flat(f"{name}.{key}", each).items()}
