"""How long the pages of `headway ui` take over a large store, the first time and again.

    python bench/dashboard.py [--runs 500] [--versions 100]

The store has records, outputs and versions as runs leave them, written without a training: each run has a config of 400
columns, four ingested spans and metrics. "first" is the first request of a new process, which reads every record; "again" the
median of ten; both without the browser.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from common import header
from fastapi.testclient import TestClient

from flows.dashboard.opened_stores import opened
from flows.dashboard.request_checks import Access
from flows.dashboard.web_app import make_app
from headway.process import own
from headway.registry.registry import Registry
from headway.storage.manifest import Counts
from headway.storage.store import Store

SPANS = [f"2013-{month:02d}" for month in range(1, 5)]
MOST_SECONDS = 1.0


def main() -> None:
    own()
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--runs", type=int, default=500)
    options.add_argument("--versions", type=int, default=100)
    given = options.parse_args()
    header("dashboard")
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store")
        fill(store, given.runs, given.versions)
        access = Access()
        app = make_app(opened([], [str(store.root)]), access)
        client = TestClient(app, base_url="http://127.0.0.1")
        slug = next(iter(opened([], [str(store.root)])))
        assert client.get(f"/?token={access.token}", follow_redirects=False).status_code == 303
        at = f"/stores/{slug}"
        pages = {"overview": at, "runs": f"{at}/runs", "run": f"{at}/runs/{_name(0)}", "model": f"{at}/models/flights"}
        pages |= {"spans": f"{at}/spans", "version": f"{at}/models/flights/versions/1"}
        slowest = 0.0
        for name, path in pages.items():
            first = seconds(client, path)
            again = statistics.median(seconds(client, path) for _ in range(10))
            slowest = max(slowest, first)
            print(f"{name:<10} first {1000 * first:6.0f} ms   again {1000 * again:6.1f} ms")
        print(
            f"{given.runs} runs, {given.versions} versions: the slowest page took {slowest:.2f} s (required: {MOST_SECONDS:g} s)"
        )
        raise SystemExit(slowest > MOST_SECONDS)


def seconds(client: TestClient, path: str) -> float:
    began = time.perf_counter()
    assert client.get(path).status_code == 200
    return time.perf_counter() - began


def fill(store: Store, runs: int, versions: int) -> None:
    """Write such a store."""
    store.create()
    steps = []
    for span in SPANS:
        fingerprint = f"{int(span.replace('-', '')):032x}"
        with store.open("ingest", fingerprint, {"span": span}) as staging:
            (staging.path / "all.tfrecord").write_bytes(b"x" * 2000)
            counts = Counts(read=1200, written=1100, quarantined=4, filtered=96)
            staging.commit(result={"span": span}, counts=counts)
        steps.append(
            {"stage": "ingest", "title": f"ingest {span}", "fingerprint": fingerprint, "cached": False, "seconds": 1.0}
        )
    metrics = {"auc": 0.9, "loss": 0.3}
    record = {
        "pipeline": "flights",
        "state": "promoted",
        "spans": SPANS,
        "seconds": 60.0,
        "stages": steps,
        "version": 1,
    }
    record |= {"verdict": {"verdict": "promote", "promote": True, "reasons": ["it is better"], "primary": "auc"}}
    record |= {"metrics": metrics, "config": {"columns": {f"column_{i}": {"role": "feature"} for i in range(400)}}}
    for at in range(runs):
        run = record | {"run": _name(at), "started": f"2026-11-20T{at // 60 % 24:02d}:{at % 60:02d}:00.000Z"}
        (store.runs_folder / f"{_name(at)}.json").write_text(json.dumps(run))
    registry = Registry(store, "flights")
    saved = store.root.parent / "saved"
    saved.mkdir()
    (saved / "saved_model.pb").write_bytes(b"model")
    first = registry.publish(saved, {"run": _name(0), "metrics": metrics, "spans": SPANS}).path
    text = (first / "manifest.json").read_text()
    for number in range(2, versions + 1):
        target = registry.folder / str(number)
        shutil.copytree(first, target)
        (target / "manifest.json").write_text(text.replace('"fingerprint": "1"', f'"fingerprint": "{number}"'))
    for number in range(1, min(versions, 60) + 1):
        registry.promote(number, reason="it is better", verdict="promote")


def _name(at: int) -> str:
    return f"20261120-{at // 3600:02d}{at // 60 % 60:02d}{at % 60:02d}-0000"


if __name__ == "__main__":
    main()
