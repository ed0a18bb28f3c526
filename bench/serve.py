"""`headway serve` beside bare calls of the same signature, in one run.

    python bench/serve.py                     # about a minute on 2 cores
    python bench/serve.py --seconds 10

A SavedModel of the usual size over five raw columns (as in predict.py) is called by `model.signatures[...]` in a loop of its
own process, with tensors that lie ready and with tensors made of the parsed JSON of each request; then it is served in
another process, and clients ask over HTTP with connections that stay open: one client for the latency of a lone request,
`--clients` of them for the throughput. Each measurement runs for --seconds after a second that does not count.

The clients are threads of a third process on the same cores: on two cores they cost about as much as the server.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import child, header, promote, serving
from predict import save_model

BATCHES = (1, 64)
NUMBERS, TEXTS = ("dep_delay", "distance", "sched_dep_time"), ("carrier", "origin")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--clients", type=int, default=16, help="clients at once, for the throughput")
    parser.add_argument("--child", choices=["model", "bare"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child == "model":
        promote(arguments.folder, save_model)
        return
    if arguments.child == "bare":
        print(json.dumps(bare(arguments)))
        return
    header("serve")
    folder = Path(tempfile.mkdtemp(prefix="headway-bench-"))
    try:
        compare(arguments, folder)
    finally:
        shutil.rmtree(folder)


def compare(arguments: argparse.Namespace, folder: Path) -> None:
    child(__file__, "--child", "model", "--folder", str(folder))
    options = ["--folder", str(folder), "--seconds", str(arguments.seconds)]
    calls = json.loads(child(__file__, "--child", "bare", *options).splitlines()[-1])
    with serving(folder) as (_, url, _):
        for batch in BATCHES:
            named = {name: calls[f"{name} {batch}"] for name in ("call", "made and called")}
            named["served, one client"] = ask(url, batch, 1, arguments.seconds)
            named[f"served, {arguments.clients} clients"] = ask(url, batch, arguments.clients, arguments.seconds)
            for name, figures in named.items():
                show(name, batch, figures, named["call"])


def show(name: str, batch: int, figures: dict[str, float], call: dict[str, float]) -> None:
    p50, p99, rate = figures["p50"] * 1e3, figures["p99"] * 1e3, figures["rate"]
    print(
        f"batch {batch:>3}  {name:20s} p50 {p50:7.2f} ms  p99 {p99:7.2f} ms  {rate * batch:>9,.0f} rows/s"
        f"  ({rate:,.0f} calls/s; p50 {figures['p50'] / call['p50']:.1f}x, rows/s {rate / call['rate']:.2f}x of the bare call)",
        flush=True,
    )


def figures_of(seconds: list[float], took: float) -> dict[str, float]:
    return {
        "p50": float(np.percentile(seconds, 50)),
        "p99": float(np.percentile(seconds, 99)),
        "rate": len(seconds) / took,
    }


def body(batch: int) -> bytes:
    r = np.random.default_rng(0)
    rows = [
        {name: float(np.float32(r.normal() * 100)) for name in NUMBERS}
        | {name: str(r.choice(["UA", "B6", "JFK", "LGA"])) for name in TEXTS}
        for _ in range(batch)
    ]
    return json.dumps({"instances": rows}).encode()


def ask(url: str, batch: int, clients: int, seconds: float) -> dict[str, float]:
    """Latency and rate of clients that each ask again as soon as they have their answer."""
    address, _, path = url.removeprefix("http://").partition("/")
    sent, found = body(batch), list[float]()
    begin, end = time.perf_counter() + 1.0, time.perf_counter() + 1.0 + seconds
    wrong: list[str] = []

    def client() -> None:
        connection = http.client.HTTPConnection(address)
        mine = []
        while (began := time.perf_counter()) < end:
            connection.request("POST", f"/{path}:predict", sent)
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 200:
                wrong.append(text.decode())
                return
            if began >= begin:
                mine.append(time.perf_counter() - began)
        found.extend(mine)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise SystemExit(f"a request failed: {wrong[0]}")
    return figures_of(found, seconds)


# --- in a process of its own


def bare(arguments: argparse.Namespace) -> dict[str, Any]:
    """The signature in a loop: with tensors that lie ready, and with tensors made of each request's parsed rows."""
    import tensorflow as tf

    model = tf.saved_model.load(str(arguments.folder / "model"))
    signature = model.signatures["serving_default"]
    found = {}
    for batch in BATCHES:
        rows = json.loads(body(batch))["instances"]

        def made(rows: list[dict[str, Any]] = rows) -> dict[str, Any]:
            numbers = {name: tf.constant([row[name] for row in rows], tf.float32) for name in NUMBERS}
            return numbers | {name: tf.constant([row[name] for row in rows]) for name in TEXTS}

        ready = made()
        for name, tensors in (("call", lambda ready=ready: ready), ("made and called", made)):
            seconds = list[float]()
            begin, end = time.perf_counter() + 1.0, time.perf_counter() + 1.0 + arguments.seconds
            while (began := time.perf_counter()) < end:
                outputs = signature(**tensors())
                {key: value.numpy() for key, value in outputs.items()}
                if began >= begin:
                    seconds.append(time.perf_counter() - began)
            found[f"{name} {batch}"] = figures_of(seconds, arguments.seconds)
    return found


if __name__ == "__main__":
    main()
