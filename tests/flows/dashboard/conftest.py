"""A store as runs, promotions and a monitor leave it, without a training: records, outputs and versions are written through
the store's own doors."""

import datetime
import json
import shutil
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from flows.dashboard.opened_stores import opened
from flows.dashboard.request_checks import Access
from flows.dashboard.web_app import make_app
from headway.registry.registry import Registry
from headway.storage.manifest import Counts
from headway.storage.store import Store

PIPELINE = """
name: flights
source: {format: parquet, path: "data/{span}.parquet"}
label: arr_delay > 15
store: store
"""
HOSTILE = "<script>alert('x')</script>"
SPANS = ["2013-01", "2013-02", "2013-03", "2013-04"]
BASE = "http://127.0.0.1:8765"


def name_of(at):
    """A run's name and the time at which it began."""
    time = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC) + datetime.timedelta(minutes=at)
    return time.strftime("%Y%m%d-%H%M%S") + f"-{at % 65536:04x}", time.isoformat(timespec="milliseconds")


def ingest(store, span):
    """An ingested span; the step as a run's record has it."""
    key = {"stage": "ingest", "span": span}
    fingerprint = f"{int(span.replace('-', '')):032x}"
    counts = Counts(read=1200, written=1100, quarantined=4, filtered=96)
    with store.open("ingest", fingerprint, key) as staging:
        (staging.path / "all.tfrecord").write_bytes(b"x" * 2000)
        staging.commit(result={"span": span}, counts=counts)
    return _step("ingest", f"ingest {span}", fingerprint)


def _step(stage, title, fingerprint, seconds=1.5):
    step = {"stage": stage, "title": title, "fingerprint": fingerprint, "cached": False, "seconds": seconds}
    return step | {"why": "never run"}


def add_run(store, at, *, state="promoted", steps=(), pipeline="flights", **more):
    """A run's record; returns its name."""
    run, began = name_of(at)
    record = {"run": run, "pipeline": pipeline, "file": "/data/flights/pipeline.yaml", "state": state, "started": began}
    record |= {"spans": SPANS[:3], "seed": 0, "seconds": 61.0, "last": None, "warnings": [], "notes": []}
    record |= {"stages": [*steps, _step("train", "train", f"{at:032x}", 40.0)]}
    store.save_run(record | more)
    return run


def add_version(store, run, auc, *, model="flights", spans=SPANS[:3]):
    saved = store.root.parent / "saved"
    saved.mkdir(exist_ok=True)
    (saved / "saved_model.pb").write_bytes(b"model")
    facts = {"run": run, "metrics": {"auc": auc, "loss": 1 - auc}, "spans": spans}
    facts |= {"train_parts": [[span, "all"] for span in spans[:-1]], "eval_parts": [[spans[-1], "all"]]}
    version = Registry(store, model).publish(saved, facts)
    shutil.rmtree(saved)
    return version.number


def verdict(auc):
    reasons = [f"the candidate beats the constant baseline: auc is {auc} {HOSTILE}"]
    found = {"verdict": "promote", "promote": True, "reasons": reasons, "primary": "auc"}
    return {"verdict": found, "metrics": {"auc": auc, "loss": 1 - auc}}


def fill(folder):
    """pipeline.yaml and a store: three versions, of which 2 is the champion and 3 was rolled back, and what monitor found."""
    (folder / "pipeline.yaml").write_text(PIPELINE)
    store = Store(folder / "store")
    store.create()
    steps = [ingest(store, span) for span in SPANS[:3]]
    registry = Registry(store, "flights")
    for at, auc in enumerate((0.8, 0.85, 0.9), start=1):
        run = add_run(store, at, steps=steps, version=at, **verdict(auc))
        (store.runs_folder / f"{run}.log").write_text(f"2026-11-20T00:00:00.000Z   train: done {HOSTILE}\n")
        add_version(store, run, auc)
        registry.promote(at, reason=f"better {HOSTILE}", run=run, verdict="promote")
    registry.rollback(reason="worse on the evening flights")
    add_run(store, 4, state="failed", steps=steps[:1], error="the loss is not a finite number", spans=["2013-04"])
    facts = {"rows": 1200, "drift": [], "distances": {"dep_delay": 0.02, "carrier": 0.01}, "decay": []}
    facts |= {"scored": 1000, "metrics": {"auc": 0.84, "loss": 0.3}, "checked": "2026-11-21T00:00:00.000Z"}
    drifted = facts | {"drift": [f"column 'dep_delay' has drifted {HOSTILE}"], "distances": {"dep_delay": 0.3}}
    state = {"champion": 2, "spans": {"2013-04": facts, "2013-05": drifted}}
    store.replace(store.root / "monitor" / "flights.json", json.dumps(state))
    return store


@pytest.fixture
def project(made_once, tmp_path):
    """Such a folder, to be changed."""
    return Path(shutil.copytree(made_once("dashboard", fill), tmp_path / "flights"))


@pytest.fixture
def store(project):
    return Store(project / "store")


@pytest.fixture
def show():
    """show(pipelines, stores=(), signed_in=True) -> a client of the application, and what it said to the terminal."""

    def client(pipelines, stores=(), *, signed_in=True):
        said = []
        access = Access(port=8765)
        app = make_app(opened(list(map(str, pipelines)), list(map(str, stores))), access, said.append)
        made = TestClient(app, base_url=BASE, follow_redirects=False, raise_server_exceptions=False)
        made.access, made.said = access, said
        if signed_in:
            assert made.get(f"/?token={access.token}").status_code == 303
        return made

    return client


@pytest.fixture
def client(project, show):
    return show([project])
