"""A Flink on this machine for Headway's jobs, without Docker: job manager, task manager, job server and worker pool.

    python infra/flink.py                          # until Ctrl-C; prints the `runner:` to write into pipeline.yaml
    python infra/flink.py --jars                   # only fetch the job server's jars, and print their folder
    python infra/flink.py --jars spark             # those of a job server with Spark in it

Maven puts Flink and Beam's job server together from flink-job-server/pom.xml. It checks the files' checksums, and they are
kept in the user's cache folder (150 MB; of Spark 300 MB). Needs Java 17 and Maven.
Exit 3: Java, Maven or jars are missing.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from beam_jobs.runners.config import RunnerConfig

sys.path.insert(0, str(Path(__file__).parent))  # a test loads this by its path
from flink_session import jobs, session
from java_process import free_port, job_server, tail

__all__ = ["Unavailable", "cluster", "jars", "job_server", "jobs", "pool", "served", "session"]
ROOT = Path(__file__).parents[1]
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
SLOTS = 2


class Unavailable(Exception):
    """Java, Maven or the job server's parts cannot be had here."""


def jars(name: str = "flink") -> Path:
    """The folder of the jars of the flink or spark job server, fetched if need be.

    Raises:
        Unavailable: there is no Java or no Maven, or Maven cannot get the jars.
    """
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            raise Unavailable(f"there is no {tool} on the PATH; {name.title()} needs Java 17 and Maven")
    pom = ROOT / "infra" / f"{name}-job-server" / "pom.xml"
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headway"
    folder = root / f"{name}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if folder.is_dir():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as scratch:
        part = Path(scratch) / "jars"
        command = ["mvn", "-B", "-ntp", "-C", "-f", str(pom), _COPY, "-DincludeScope=runtime"]
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
    with served("flink", {"flink_master": master, "parallelism": SLOTS}, workers) as runner:
        yield runner


@contextlib.contextmanager
def served(name: str, options: dict[str, Any], workers: str = "pool") -> Iterator[RunnerConfig]:
    """A job server of flink or spark while the block runs; yields the runner that leads there. `workers`: as of `cluster`."""
    with contextlib.ExitStack() as stack:
        address, log = stack.enter_context(job_server(name, options, jars(name)))
        options = options | {"job_endpoint": address}
        if workers == "pool":
            where, _ = stack.enter_context(pool())
            options |= {"environment_type": "EXTERNAL", "environment_config": where}
        try:
            yield RunnerConfig(name=name, options=options)
        except Exception as error:
            error.add_note(f"the job server's log ends with:\n{tail(log)}")
            raise


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--jars",
        nargs="?",
        const="flink",
        choices=("flink", "spark"),
        help="fetch the job server's jars, and print their folder",
    )
    args = parser.parse_args()
    try:
        if args.jars:
            print(jars(args.jars))
            return 0
        # SIGTERM ends it as Ctrl-C does, so that no Java is left behind
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt), session(jars(), SLOTS) as rest, cluster(master=rest) as runner:
            print(f"# Flink is up: http://{rest}")
            print(
                yaml.safe_dump({"runner": runner.model_dump(exclude={"workers"})}, sort_keys=False), end="", flush=True
            )
            signal.pause()
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
