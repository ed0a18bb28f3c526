"""Runs Headway's jobs on a local Flink and compares every byte with what the local runner writes.

    python infra/flink.py                          # ingest and predict of a month of flights, after prepare.py
    python infra/flink.py --workers loopback       # workers as threads of the driver instead of processes of their own
    python infra/flink.py --session                # a job manager and a task manager instead of a mini cluster
    python infra/flink.py --jars                   # only fetch the job server's jars, and print their folder

Flink is a mini cluster inside Beam's job server, or with --session a cluster of its own (flink_session.py); both are put
together by Maven from flink-job-server/pom.xml. Maven checks the files' checksums, and they are kept in the user's cache
folder (150 MB). Needs Java 17 and Maven, and no Docker.
Exit 0: byte-identical; 1: different; 3: Java, Maven or jars are missing.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from beam_jobs.runners.config import RunnerConfig
from beam_jobs.runners.job_server import free_port, start, tail

sys.path.insert(0, str(Path(__file__).parent))  # a test loads this by its path
from flink_session import jobs, session

__all__ = ["Unavailable", "cluster", "compare", "jars", "jobs", "pool", "project", "session", "start"]
ROOT = Path(__file__).parents[1]
POM = ROOT / "infra" / "flink-job-server" / "pom.xml"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
SLOTS = 2
PIPELINE = """
name: flights
source: {format: parquet, path: "data/{span}.parquet", parquet: {range_rows: 4096}}
label: arr_delay > 15
columns:
  dep_delay: [{clip: {min: -30, max: 300}}, standardize]
  distance: [log, standardize]
  carrier: vocabulary
  origin: vocabulary
split: {key: [carrier, day]}
model: {hidden: [16, 8], embedding: 4}
training: {steps: 40, batch_size: 128}
gate: {thresholds: {auc: {min: 0.1}}}
"""


class Unavailable(Exception):
    """Java, Maven or the job server's parts cannot be had here."""


def jars() -> Path:
    """The folder of the job server's jars, fetched if need be.

    Raises:
        Unavailable: there is no Java or no Maven, or Maven cannot get the jars.
    """
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            raise Unavailable(f"there is no {tool} on the PATH; Flink needs Java 17 and Maven")
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headway"
    folder = root / f"flink-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"
    if folder.is_dir():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as scratch:
        part = Path(scratch) / "jars"
        command = ["mvn", "-B", "-ntp", "-C", "-f", str(POM), _COPY, "-DincludeScope=runtime"]
        done = subprocess.run([*command, f"-DoutputDirectory={part}"], capture_output=True, text=True)
        if done.returncode:
            said = [line for line in done.stdout.splitlines() if line.startswith("[ERROR]")]
            raise Unavailable(f"Maven cannot get the job server: {said[0] if said else done.stderr[-300:]}")
        with contextlib.suppress(OSError):  # another process was first
            part.rename(folder)
    return folder


@contextlib.contextmanager
def pool() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A worker pool, as one runs beside every task manager: its address and its process."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="headway-pool-") as scratch:
        path = Path(scratch) / "log"
        with path.open("wb") as log:
            command = [sys.executable, "-m", "beam_jobs.runners.worker_pool", "--port", str(port)]
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            until = time.monotonic() + 60
            while "workers start" not in tail(path):
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"the worker pool does not come up:\n{tail(path)}")
                time.sleep(0.1)
            yield f"localhost:{port}", process
        except Exception as error:
            error.add_note(f"the worker pool's log ends with:\n{tail(path)}")
            raise
        finally:
            process.terminate()
            process.wait(30)


@contextlib.contextmanager
def cluster(workers: str = "pool", *, master: str = "[local]") -> Iterator[RunnerConfig]:
    """A job server with a Flink of two slots while the block runs; yields the runner that leads there.

    Args:
        workers: pool (processes of their own) or loopback (threads of the driver).
        master: the REST address of a Flink that runs, instead of a mini cluster.
    """
    options: dict[str, Any] = {"flink_master": master, "parallelism": SLOTS}
    own = RunnerConfig(name="flink", options=options | {"flink_job_server_jar": str(jars())})
    with contextlib.ExitStack() as stack:
        address, log = stack.enter_context(start(own))
        options["job_endpoint"] = address
        if workers == "pool":
            where, _ = stack.enter_context(pool())
            options |= {"environment_type": "EXTERNAL", "environment_config": where}
        try:
            yield RunnerConfig(name="flink", options=options)
        except Exception as error:
            error.add_note(f"the job server's log ends with:\n{log()}")
            raise


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
    """A pipeline over a file of flights, twice: pipeline.yaml runs here, flink.yaml over there with a store of its own."""
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "2013-01.parquet").symlink_to(data.resolve())
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
    """Ingest and predict of a project, here and on Flink: rows and files, seconds on Flink, whether they are the same."""
    here, there = folder / "pipeline.yaml", folder / "flink.yaml"
    headway("export", here)  # ingest, and a small model of its own
    (model,) = (folder / "store" / "stages" / "export").glob("*/saved_model")
    begun = time.monotonic()
    headway("ingest", there)
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
    default = ROOT / "examples/flights/data/2013-01.parquet"
    parser.add_argument("path", type=Path, nargs="?", default=default)
    parser.add_argument("--workers", choices=("pool", "loopback"), default="pool")
    parser.add_argument("--session", action="store_true", help="a Flink of its own instead of a mini cluster")
    parser.add_argument("--jars", action="store_true", help="fetch the job server's jars, and print their folder")
    args = parser.parse_args()
    try:
        if args.jars:
            print(jars())
            return 0
        if not args.path.exists():
            parser.error(f"{args.path} does not exist; run examples/flights/prepare.py first")
        with contextlib.ExitStack() as stack:
            scratch = stack.enter_context(tempfile.TemporaryDirectory())
            master = stack.enter_context(session(jars())) if args.session else "[local]"
            runner = stack.enter_context(cluster(args.workers, master=master))
            project(Path(scratch) / "flights", args.path, runner)
            found = compare(Path(scratch) / "flights")
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 3
    for job in ("ingest", "predict"):
        same = "byte-identical to" if found[job]["same"] else "DIFFERENT from"
        took = f"{found[job]['files']} files on Flink in {found[job]['seconds']:.1f} s"
        print(f"{job}: {found['rows']} rows, {took}: {same} the local runner's")
    return 0 if found["ingest"]["same"] and found["predict"]["same"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
