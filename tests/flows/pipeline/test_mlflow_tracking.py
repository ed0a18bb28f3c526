"""MLflow is told of runs, versions and aliases, by a real server; one that is gone costs a note."""

import json
import os
import signal
import subprocess
import sys
import time

import httpx
import pytest

from flows.config.pipeline import read_pipeline
from flows.pipeline.listeners import Listener, Reporter, Scope
from flows.pipeline.mlflow_tracking import MLflow, sync_aliases
from flows.records import read_record
from headway.errors import ConfigError
from headway.registry.registry import Registry
from headway.storage.store import Store
from tests.ports import free_port
from tests.waiting import until

PIPELINE = "name: flights\nsource: {format: csv, path: data.csv}\nlabel: y\n"
BETTER = {
    "name": "champion",
    "metric": "auc",
    "against": "version 1",
    "before": 0.8,
    "value": 0.9,
    "change": 0.1,
    "better": "higher",
    "outcome": "better",
}
RECORD = {
    "run": "20260101-000000-abcd",
    "pipeline": "flights",
    "file": "pipeline.yaml",
    "state": "promoted",
    "started": "2026-01-01T00:00:00Z",
    "ended": "2026-01-01T00:01:00Z",
    "seconds": 60.0,
    "seed": 7,
    "spans": ["2013-01", "2013-02"],
    "metrics": {"auc": 0.9, "f1": None},
    "baselines": {"constant": {"auc": 0.5}},
    "verdict": {"status": "promoted", "basis": "better", "primary": "auc", "checks": [BETTER]},
    "training": {
        "rows": 100,
        "says": "",
        "training": {
            "batch_size": 32,
            "learning_rate": {"name": "cosine", "settings": {"initial": 0.01}},
            "loss": None,
        },
        "model": {"name": "mlp", "hidden": [8, 4]},
    },
    "version": 1,
}
HISTORY = [{"step": 10, "loss": 0.6}, {"step": 20, "loss": 0.5, "holdout_loss": 0.55}]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of an MLflow server of its own."""
    pytest.importorskip("flask")
    pytest.importorskip("mlflow.server")
    folder = tmp_path_factory.mktemp("mlflow")
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += [
        "--backend-store-uri",
        f"sqlite:///{folder}/mlflow.db",
        "--default-artifact-root",
        str(folder / "files"),
    ]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        )
    address = f"http://127.0.0.1:{port}"
    try:
        until(lambda: httpx.get(f"{address}/health", trust_env=False).is_success, about=(folder / "log").read_text)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)


@pytest.fixture
def project(tmp_path):
    """(make: a loaded pipeline with a server's address, registry with two versions, the first the champion)."""
    registry = Registry(Store(tmp_path / "store"), "flights")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "saved_model.pb").write_bytes(b"x")
    registry.store.create()
    for number in (1, 2):
        registry.publish(tmp_path / "saved", {"n": number})
    registry.promote(1, reason="a test")

    def make(uri):
        (tmp_path / "pipeline.yaml").write_text(f"{PIPELINE}tracking: {{uri: '{uri}'}}\n")
        return read_pipeline(tmp_path)

    return make, registry


@pytest.mark.long
def test_a_server_gets_runs_links_to_versions_and_aliases(server, project):
    from mlflow import MlflowClient

    make, registry = project
    loaded, notes = make(server), []
    trained = {
        "stage": "train",
        "title": "train",
        "fingerprint": "0" * 32,
        "cached": False,
        "seconds": 1.0,
        "why": None,
    }
    folder = registry.store.output("train", "0" * 32)
    folder.mkdir(parents=True)
    (folder / "history.json").write_text(json.dumps({"history": HISTORY}))
    MLflow(loaded, registry).on_run(Scope(), read_record(RECORD | {"stages": [trained]}))
    client = MlflowClient(server)
    experiment = client.get_experiment_by_name("flights")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == RECORD["run"] and run.info.status == "FINISHED"
    assert run.data.tags["headway.verdict"] == "promoted"
    assert run.data.tags["headway.reasons"].startswith("auc rose from 0.8 (version 1) to 0.9, which is better")
    assert run.data.params == {
        "seed": "7",
        "spans": "2013-01 to 2013-02",
        "train_rows": "100",
        "training.batch_size": "32",
        "training.learning_rate.name": "cosine",
        "training.learning_rate.settings.initial": "0.01",
        "model.name": "mlp",
        "model.hidden": "[8, 4]",
    }
    metrics = {"auc": 0.9, "constant.auc": 0.5, "seconds": 60.0, "train.loss": 0.5, "train.holdout_loss": 0.55}
    assert run.data.metrics == metrics
    assert [m.step for m in client.get_metric_history(run.info.run_id, "train.loss")] == [10, 20]
    (version,) = client.search_model_versions("name = 'flights'")
    assert version.run_id == run.info.run_id and version.tags == {"headway.version": "1"}
    assert version.source == f"headway://{registry.version(1).saved_model}"
    assert client.get_model_version_by_alias("flights", "champion").version == version.version

    # another champion, and back by hand; an alias that goes
    MLflow(loaded, registry).on_run(Scope(), read_record(RECORD | {"run": "b", "version": 2}))
    registry.promote(2, reason="a test")
    registry.set_alias("stable", 1)
    sync_aliases(loaded, registry, note=notes.append)
    by_alias = {
        alias: client.get_model_version_by_alias("flights", alias).tags["headway.version"]
        for alias in client.get_registered_model("flights").aliases
    }
    assert by_alias == {"champion": "2", "stable": "1"} and not notes
    registry.remove_alias("stable")
    registry.rollback()
    sync_aliases(loaded, registry, note=notes.append)
    assert list(client.get_registered_model("flights").aliases) == ["champion"]
    assert client.get_model_version_by_alias("flights", "champion").tags["headway.version"] == "1"


class Notes(Listener):
    def __init__(self, notes):
        self._notes = notes

    def on_line(self, scope, text, level="info", step=""):
        self._notes.append(text)


def test_a_server_that_is_gone_costs_a_note(project, monkeypatch):
    pytest.importorskip("mlflow")
    make, registry = project
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    notes = []
    Reporter([Notes(notes), MLflow(make("http://127.0.0.1:9"), registry)]).run(read_record(RECORD))
    assert len(notes) == 1 and "MLflow at http://127.0.0.1:9 did not record this run" in notes[0]
    assert os.environ.get("MLFLOW_HTTP_REQUEST_TIMEOUT") is None


def test_a_pipeline_that_names_a_server_needs_mlflow(project, monkeypatch):
    from flows.pipeline import mlflow_tracking

    make, _ = project
    monkeypatch.setattr(mlflow_tracking.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="tracking needs MLflow, which is not installed"):
        mlflow_tracking.check(make("http://127.0.0.1:9"))


@pytest.mark.long
@pytest.mark.parametrize("uri", ["nonsense://x", "sqlite:////proc/mlflow.db"])
def test_an_address_that_mlflow_cannot_use_costs_a_note_at_once(project, uri):
    pytest.importorskip("mlflow")
    make, registry = project
    notes, began = [], time.monotonic()
    sync_aliases(make(uri), registry, note=notes.append)
    assert len(notes) == 1 and notes[0].startswith(f"MLflow at {uri} did not record this run: ")
    assert time.monotonic() - began < 30  # mostly the import
