"""Runs ingest and predict on a local Flink or Spark and compares every byte with what the local runner writes.

    python tests/infra/same_bytes.py                       # a month of flights, after examples/flights/prepare.py
    python tests/infra/same_bytes.py --workers loopback    # workers as threads of the driver instead of processes of their own
    python tests/infra/same_bytes.py --session             # a job manager and a task manager instead of a mini cluster
    python tests/infra/same_bytes.py --spark               # Spark inside its job server, local[2]

Exit 0: byte-identical; 1: different; 3: Java, Maven or jars are missing.
"""

import argparse
import contextlib
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from beam_jobs.runners.config import RunnerConfig

sys.path.insert(0, str(Path(__file__).parents[2] / "infra"))  # scripts, no package
from flink import Unavailable, cluster, jars, job_server, jobs, pool, served, session

__all__ = ["Unavailable", "cluster", "compare", "jars", "job_server", "jobs", "pool", "project", "served", "session"]
PIPELINE = """
name: flights
source: {format: parquet, path: "data/{span}/*.parquet"}
label: arr_delay > 15
columns:
  dep_delay: [{clip: {min: -30, max: 300}}, standardize]
  distance: [log, standardize]
  carrier: vocabulary
  origin: vocabulary
split: {key: [carrier, day]}
model: {name: mlp, hidden: [16, 8], embedding: 4}
training: {steps: 40, batch_size: 128}
gate: {thresholds: {auc: {min: 0.1}}}
"""


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of each file; of a stage's manifest without its timings."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        if path.name == "manifest.json":
            held = json.loads(content)
            content = json.dumps({k: v for k, v in held.items() if k not in ("created", "seconds")}).encode()
        found[path.relative_to(folder).as_posix()] = hashlib.sha256(content).hexdigest()
    return found


def project(folder: Path, data: Path, runner: RunnerConfig) -> None:
    """A pipeline over flights, a file for each range, twice: pipeline.yaml runs here, flink.yaml over there with a store of
    its own."""
    (folder / "data" / "2013-01").mkdir(parents=True)
    for number, rows in enumerate(pq.read_table(data).combine_chunks().to_batches(max_chunksize=4096)):
        pq.write_table(pa.Table.from_batches([rows]), folder / "data" / "2013-01" / f"{number:04d}.parquet")
    (folder / "pipeline.yaml").write_text(PIPELINE)
    there = {"store": "store-flink", "runner": runner.model_dump(exclude={"workers"})}
    (folder / "flink.yaml").write_text(PIPELINE + yaml.safe_dump(there))


def headway(*arguments: object) -> dict[str, Any]:
    """Type a headway command; its answer in JSON."""
    command = [sys.executable, "-P", "-m", "flows.cli", *map(str, arguments), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(f"headway {arguments[0]} ended with {done.returncode}\n{done.stdout}")
    return json.loads(done.stdout)


def compare(folder: Path) -> dict[str, Any]:
    """Ingest and predict of a project, here and on the cluster: rows and files, seconds there, whether they are the same."""
    here, there = folder / "pipeline.yaml", folder / "flink.yaml"
    headway("run", "--to", "export", here)  # ingest, and a small model of its own
    (model,) = (folder / "store" / "stages" / "export").glob("*/saved_model")
    begun = time.monotonic()
    headway("run", "--to", "ingest", there)
    ingest = time.monotonic() - begun
    asked = ("--model", model, "--input", folder / "data", "--columns", "flight,carrier", "--output")
    headway("predict", here, *asked, folder / "predicted")
    begun = time.monotonic()
    rows = headway("predict", there, *asked, folder / "predicted-flink")["counts"]["predicted"]
    predict = time.monotonic() - begun
    stages = [digests(folder / store / "stages" / "ingest") for store in ("store", "store-flink")]
    outputs = [digests(folder / name) for name in ("predicted", "predicted-flink")]
    return {
        "rows": rows,
        "ingest": {"files": len(stages[1]), "seconds": ingest, "same": stages[0] == stages[1]},
        "predict": {"files": len(outputs[1]), "seconds": predict, "same": outputs[0] == outputs[1]},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).parents[2] / "examples/flights/data/2013-01.parquet"
    parser.add_argument("path", type=Path, nargs="?", default=default)
    parser.add_argument("--workers", choices=("pool", "loopback"), default="pool")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--session", action="store_true", help="a Flink of its own instead of a mini cluster")
    which.add_argument("--spark", action="store_true", help="Spark instead of Flink")
    args = parser.parse_args()
    try:
        if not args.path.exists():
            parser.error(f"{args.path} does not exist; run examples/flights/prepare.py first")
        with contextlib.ExitStack() as stack:
            scratch = stack.enter_context(tempfile.TemporaryDirectory())
            if args.spark:
                runner = stack.enter_context(served("spark", {"spark_master_url": "local[2]"}, args.workers))
            else:
                master = stack.enter_context(session(jars())) if args.session else "[local]"
                runner = stack.enter_context(cluster(args.workers, master=master))
            project(Path(scratch) / "flights", args.path, runner)
            found = compare(Path(scratch) / "flights")
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 3
    for job in ("ingest", "predict"):
        same = "byte-identical to" if found[job]["same"] else "DIFFERENT from"
        took = f"{found[job]['files']} files on {'Spark' if args.spark else 'Flink'} in {found[job]['seconds']:.1f} s"
        print(f"{job}: {found['rows']} rows, {took}: {same} the local runner's")
    return 0 if found["ingest"]["same"] and found["predict"]["same"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
