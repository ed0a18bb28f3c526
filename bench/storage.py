"""How long a training from a bucket waits for its first step: shards read ahead, or all of them fetched before.

    python bench/storage.py [--shards 256] [--megabytes 384] [--latency 0.05] [--rate 40]

An S3 endpoint (moto's server, a process of its own) answers each request `latency` seconds late and sends at most `rate`
MB/s to each connection. Each way of training runs in a fresh process and is stopped after its first steps: "before" and
"ahead" with an empty working copy, "again" with the one that "before" left. TensorFlow's import is not counted,
building and compiling the model is.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import pyarrow as pa
from common import child, header

from headway.process import mark_own_process

BUCKET, FP = "bench", "0" * 32
COLUMNS = 40


def main() -> None:
    mark_own_process()
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--shards", type=int, default=256)
    options.add_argument("--megabytes", type=int, default=384)
    options.add_argument("--latency", type=float, default=0.05, help="seconds before each answer")
    options.add_argument("--rate", type=float, default=40.0, help="MB/s of one connection")
    options.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options.add_argument("--train", choices=("before", "ahead", "again"), help=argparse.SUPPRESS)
    options.add_argument("--cache", help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.latency, arguments.rate)
    elif arguments.train:
        print(json.dumps(train(arguments.train, Path(arguments.cache))))
    else:
        compare(arguments)


def compare(arguments: argparse.Namespace) -> None:
    header("storage")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    os.environ.update(AWS_ENDPOINT_URL=url, AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x")
    os.environ.update(AWS_DEFAULT_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true", TF_CPP_MIN_LOG_LEVEL="2")
    slow = [f"--latency={arguments.latency}", f"--rate={arguments.rate}"]
    server = subprocess.Popen(
        [sys.executable, __file__, f"--serve={port}", *slow], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        with tempfile.TemporaryDirectory(prefix="headway-bench-") as folder:
            wait_for(url)
            urllib.request.urlopen(urllib.request.Request(f"{url}/{BUCKET}", method="PUT"), timeout=20).close()
            size = write(Path(folder) / "made", arguments.shards, arguments.megabytes)
            print(
                f"{arguments.shards} shards, {size / 1e6:,.0f} MB; each answer {arguments.latency * 1e3:.0f} ms late, "
                f"{arguments.rate:.0f} MB/s a connection"
            )
            found = {}
            for way, cache in (("before", "a"), ("ahead", "b"), ("again", "a")):
                found[way] = json.loads(child(__file__, f"--train={way}", f"--cache={folder}/{cache}").splitlines()[-1])
                print(
                    f"{way}: first step after {found[way]['seconds']:.2f} s, {found[way]['here']} shards here by then"
                )
            before, ahead, again = (found[way]["seconds"] for way in ("before", "ahead", "again"))
            print(f"read-ahead reaches the first step {before / ahead:.2f}x sooner")
            print(
                f"beyond the {again:.2f} s of a working copy that has all: {before - again:.2f} s and {ahead - again:.2f} s"
            )
    finally:
        server.kill()
        server.wait()


def wait_for(url: str) -> None:
    for _ in range(600):
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url, timeout=20).close()
            return
        time.sleep(0.1)
    raise SystemExit("the S3 server did not start: pip install 'moto[server]'")


def serve(port: int, latency: float, rate: float) -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import run_simple

    behind = DomainDispatcherApplication(create_backend_app)

    def slowed(environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        time.sleep(latency)
        for block in behind(environ, start):
            for first in range(0, len(block), 1 << 18):
                piece = block[first : first + (1 << 18)]
                time.sleep(len(piece) / (rate * 1e6))
                yield piece

    run_simple("127.0.0.1", port, slowed, threaded=True)


def write(folder: Path, shards: int, megabytes: int) -> int:
    """Commit a span of that many train shards; its bytes."""
    from headway.schema.columns import Column
    from headway.storage.store import open_store
    from tests.example_shards import write_examples

    columns = [Column(name=f"x{i}", type="float32", nullable=False) for i in range(COLUMNS)]
    columns.append(Column(name="label", type="int64", nullable=False, role="label"))
    rows = megabytes * 1_000_000 // (4 * COLUMNS + 1)
    rng = np.random.default_rng(0)
    table = pa.table({c.name: rng.standard_normal(rows, np.float32) for c in columns[:-1]})
    table = table.append_column("label", pa.array((table["x0"].to_numpy() > 0).astype(np.int64)))
    store = open_store(f"s3://{BUCKET}/store", folder)
    store.create()
    with store.open("ingest", FP, {"stage": "ingest"}) as staging:
        made = write_examples(staging.path / "span", {"train": table}, columns, shards=shards)
        for path in (staging.path / "span").iterdir():
            path.rename(staging.path / path.name)
        (staging.path / "span").rmdir()
        found = {"result": made.result, "transform": made.fit().model_dump(mode="json")}
        manifest = staging.commit(result=json.loads(json.dumps(found)))
    return sum(entry.bytes for entry in manifest.files)


def train(way: str, cache: Path) -> dict[str, Any]:
    """Seconds from nothing to the first step, in this process."""
    import tensorflow as tf

    from headway.errors import Cancelled
    from headway.monitor import Monitor
    from headway.storage.store import open_store
    from tfcore.train.config import TrainingConfig
    from tfcore.train.request import TrainRequest
    from tfcore.train.stage import train as run

    class FirstStep(Monitor):
        def progress(self, done: float, total: float | None, unit: str, **facts: Any) -> None:
            if not self.stop.is_set():
                self.at, self.here = time.perf_counter(), len(list(folder.glob("*.tfrecord")))
                self.stop.set()

    assert tf.executing_eagerly()
    store = open_store(f"s3://{BUCKET}/store", cache)
    store.create()
    folder, manifest = store.output("ingest", FP), store.find("ingest", FP)
    assert manifest is not None
    request = TrainRequest(
        examples=[{"path": folder, "split": "train", "result": manifest.result["result"]}],
        transform=manifest.result["transform"],
        training=TrainingConfig(epochs=1, batch_size=256),
    )
    monitor = FirstStep()
    began = time.perf_counter()
    remote = store.localize(request.input_paths(), later=way == "ahead")
    with contextlib.suppress(Cancelled):
        run(request, cache / "out", monitor, remote=remote)
    shutil.rmtree(cache / "out", ignore_errors=True)
    return {"seconds": monitor.at - began, "here": monitor.here}


if __name__ == "__main__":
    main()
