"""Ingests a span of Parquet files on a local Flink cluster and compares every byte with the local runner's.

    python infra/flink.py                          # a month of flights, after examples/flights/prepare.py
    python infra/flink.py --workers loopback       # workers as threads of the driver instead of processes of their own

Flink is a mini cluster inside Beam's job server, put together by Maven from flink-job-server/pom.xml; Maven checks the
files' checksums, and they are kept in the user's cache folder (150 MB). Needs Java 17 and Maven, and no Docker.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from beam_jobs.ingest import ingest
from beam_jobs.request import IngestRequest
from beam_jobs.runner import RunnerConfig
from headway.label import LabelConfig
from headway.monitor import Monitor
from headway.schema import Column
from headway.sources.base import SourceConfig, files, spans
from headway.splits import SplitConfig

POM = Path(__file__).parent / "flink-job-server" / "pom.xml"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_DRIVER = "org.apache.beam.runners.flink.FlinkJobServerDriver"
# what Flink 1.19 reaches into under Java 17
_OPEN = ("lang", "util", "util.concurrent", "nio", "time", "net")


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
        command = [
            "mvn",
            "-B",
            "-ntp",
            "-C",
            "-f",
            str(POM),
            _COPY,
            "-DincludeScope=runtime",
            f"-DoutputDirectory={part}",
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            said = [line for line in done.stdout.splitlines() if line.startswith("[ERROR]")]
            raise Unavailable(f"Maven cannot get the job server: {said[0] if said else done.stderr[-300:]}")
        with contextlib.suppress(OSError):  # another process was first
            part.rename(folder)
    return folder


@contextlib.contextmanager
def cluster(workers: str = "pool") -> Iterator[RunnerConfig]:
    """A Flink with two slots while the block runs; yields the runner that leads there.

    Args:
        workers: pool (processes of their own) or loopback (threads of this process).
    """
    classpath = jars()
    port, artifacts, pool = _free_port(), _free_port(), _free_port()
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="headway-flink-") as scratch, (Path(scratch) / "log").open("wb") as log:
        try:
            opens = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPEN]
            java = ["java", "-Xmx1g", f"-Djava.io.tmpdir={scratch}", *opens, "-cp", f"{classpath}/*", _DRIVER]
            java += ["--flink-master", "[local]", "--job-host", "localhost", "--job-port", str(port)]
            java += ["--artifact-port", str(artifacts), "--expansion-port", "0", "--artifacts-dir", f"{scratch}/staged"]
            started.append(subprocess.Popen(java, stdout=log, stderr=log))
            _wait(started[-1], port, Path(log.name))
            options: dict[str, Any] = {"job_endpoint": f"localhost:{port}", "parallelism": 2}
            if workers == "loopback":
                options |= {"environment_type": "LOOPBACK"}
            else:
                command = [sys.executable, "-m", "beam_jobs.worker_pool", "--port", str(pool)]
                started.append(subprocess.Popen(command, stdout=log, stderr=log))
                _wait(started[-1], pool, Path(log.name))
                options |= {"environment_type": "EXTERNAL", "environment_config": f"localhost:{pool}"}
            yield RunnerConfig(name="portable", options=options)
        finally:
            for process in reversed(started):
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        return int(taken.getsockname()[1])


def _wait(process: subprocess.Popen[bytes], port: int, log: Path, seconds: float = 90) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("localhost", port), 1):
            return
        if process.poll() is not None:
            break
        time.sleep(0.2)
    raise RuntimeError(f"{process.args!r} does not answer:\n{log.read_text(errors='replace')[-2000:]}")


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of each file."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def request(path: Path) -> IngestRequest:
    """Ingest of a file of flights, in several ranges."""
    source = SourceConfig.model_validate({"format": "parquet", "path": str(path), "parquet": {"range_rows": 4096}})
    numbers = tuple(Column(name=name, type="float32", nullable=True) for name in ("dep_delay", "distance", "arr_delay"))
    read = (Column(name="carrier", type="bytes", nullable=True, encoding="dictionary"), *numbers)
    span = spans(source)[0]
    return IngestRequest(
        span=span,
        files=files(source, span),
        source=source,
        read=read,
        stored=("carrier", "dep_delay", "distance"),
        label=LabelConfig(expression="arr_delay > 15"),
        split=SplitConfig(key=()),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).parents[1] / "examples/flights/data/2013-01.parquet"
    parser.add_argument("path", type=Path, nargs="?", default=default)
    parser.add_argument("--workers", choices=("pool", "loopback"), default="pool")
    args = parser.parse_args()
    if not args.path.exists():
        parser.error(f"{args.path} does not exist; run examples/flights/prepare.py first")
    try:
        with tempfile.TemporaryDirectory() as scratch, cluster(args.workers) as runner:
            outs = {name: Path(scratch) / name for name in ("local", "flink")}
            for out in outs.values():
                out.mkdir()
            local = ingest(request(args.path), outs["local"], Monitor())
            begun = time.monotonic()
            flink = ingest(request(args.path), outs["flink"], Monitor(), runner=runner)
            took = time.monotonic() - begun
            same = local == flink and digests(outs["local"]) == digests(outs["flink"])
            print(
                f"{flink['counts']['read']} rows, {len(digests(outs['flink']))} files on Flink in {took:.1f} s: "
                f"{'byte-identical to' if same else 'DIFFERENT from'} the local runner's"
            )
            return 0 if same else 1
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 3


if __name__ == "__main__":
    raise SystemExit(main())
