"""Reaches a cluster by a Beam job server: one that runs already, or one that the driver starts for the block.

    with reach(RunnerConfig(name="flink", options={"flink_job_server_jar": "jars/"})) as (runner, log):
        runner.options["job_endpoint"]        # localhost:43211
        log()                                 # the last lines it wrote

Beam would download a job server of its own version, which not every repository has, would start it only in a process's
main thread, and would wait minutes for an endpoint that is not there. Here the jar is named (a file, or a folder of jars
as Maven leaves them), the server starts from any thread and ends with the driver, whatever becomes of that.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from beam_jobs.runners.config import RunnerConfig
from headway.errors import ConfigError, HeadwayError
from headway.process import Scratch

_REACH_SECONDS = 30.0
_START_SECONDS = 90.0
OPENS = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in (
        *(f"java.{name}" for name in ("lang", "lang.invoke", "util", "util.concurrent", "nio", "time", "net", "io")),
        "sun.nio.ch",
    )
]
"""What Flink and Spark reach into under Java 17."""

Log = Callable[[], str]


_MASTERS = {"flink": ("flink_master", "[auto]"), "spark": ("spark_master_url", "local[4]")}
"""By runner: the option that names its master, which the job server takes as well, and the master without it."""


@contextlib.contextmanager
def reach(runner: RunnerConfig) -> Iterator[tuple[RunnerConfig, Log]]:
    """The runner with a job server that answers, and that server's output; any other runner unchanged.

    Raises:
        ConfigError: no endpoint is named and no jar, or nothing answers there.
        HeadwayError: the job server does not start.
    """
    options = runner.options
    endpoint = options.get("job_endpoint")
    uber = options.get(f"{runner.name}_submit_uber_jar")
    if runner.name not in ("portable", *_MASTERS) or endpoint == "embed" or uber:
        yield runner, str
    elif endpoint:
        answers(str(endpoint))
        yield runner, str
    elif runner.name == "portable":
        problem = "the portable runner needs the address of a job server"
        raise ConfigError(problem, where="runner.options", fix="give job_endpoint, such as localhost:8099")
    else:
        with start(runner) as (address, log):
            yield runner.model_copy(update={"options": options | {"job_endpoint": address}}), log


def answers(endpoint: str) -> None:
    """Raise a ConfigError unless a gRPC server answers at `host:port`, within 30 s."""
    where, fix = "runner.options.job_endpoint", "start the job server, or name where it listens: host:port"
    host, _, port = endpoint.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"{endpoint!r} is not an address", where=where, fix="host:port, such as localhost:8099")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(f"no job server answers at {endpoint}: {error}", where=where, fix=fix) from None
    import grpc

    with grpc.insecure_channel(endpoint) as channel:
        try:
            grpc.channel_ready_future(channel).result(_REACH_SECONDS)
        except grpc.FutureTimeoutError:
            problem = f"what answers at {endpoint} is not a job server: it does not speak gRPC"
            raise ConfigError(problem, where=where, fix=fix) from None


@contextlib.contextmanager
def start(runner: RunnerConfig) -> Iterator[tuple[str, Log]]:
    """Start a job server of the runner's kind for the block; yields its address, and its log's last lines."""
    name, options = runner.name, runner.options
    master, default = _MASTERS[name]
    classpath = _classpath(name, options.get(f"{name}_job_server_jar"))
    java = str(options.get("job_server_java_launcher", "java"))
    if shutil.which(java) is None:
        fix = "install Java 17, or name it in job_server_java_launcher"
        raise ConfigError(f"there is no {java} on the PATH", where="runner.options", fix=fix)
    port, artifacts = (int(options.get(name) or free_port()) for name in ("job_port", "artifact_port"))
    with Scratch("job-server") as scratch:
        path = Path(scratch) / "log"
        command = [java, f"-Djava.io.tmpdir={scratch}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        command += [*OPENS, *options.get("job_server_jvm_properties", ()), "-cp", classpath]
        command += [f"org.apache.beam.runners.{name}.{name.title()}JobServerDriver"]
        command += [f"--{master.replace('_', '-')}", str(options.get(master, default))]
        command += ["--job-host", "localhost", "--job-port", str(port), "--artifact-port", str(artifacts)]
        command += ["--expansion-port", str(options.get("expansion_port", 0))]
        command += ["--artifacts-dir", str(options.get("artifacts_dir") or f"{scratch}/staged")]
        with path.open("wb") as log:
            tied = [sys.executable, "-m", "beam_jobs.runners.job_server", *command]
            # a session of its own: a Ctrl-C is for the driver, which cancels the job before it ends the server
            process = subprocess.Popen(tied, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)
        try:
            _wait(process, port, path)
            yield f"localhost:{port}", lambda: tail(path)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


def _classpath(name: str, jar: object) -> str:
    option = f"{name}_job_server_jar"
    if not jar:
        fix = f"give job_endpoint (one that runs), or {option} (a jar, or a folder of jars); see docs/runners.md"
        raise ConfigError(f"the {name} runner needs a job server", where="runner.options", fix=fix)
    path = Path(str(jar)).expanduser()
    if path.is_file():
        return str(path)
    if path.is_dir() and next(path.glob("*.jar"), None):
        return str(path / "*")
    problem = f"{str(jar)!r} is neither a jar nor a folder of jars"
    raise ConfigError(problem, where=f"runner.options.{option}", fix="see docs/runners.md")


def free_port() -> int:
    """A free port of this machine."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return int(listener.getsockname()[1])


def tail(path: Path, characters: int = 2000) -> str:
    """The end of a log."""
    return path.read_text(errors="replace")[-characters:].strip() if path.exists() else ""


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("localhost", port), 1):
            return
        time.sleep(0.1)
    ended = f"it ended with {process.returncode}" if process.poll() is not None else f"{_START_SECONDS:.0f} s passed"
    fix = "see its log above, and runner.options in docs/runners.md"
    raise HeadwayError(f"the job server did not start: {ended}\n{tail(log)}", where="runner", fix=fix)


def main(command: list[str]) -> int:
    """Run a command that ends when this process's stdin closes, as it does when its parent ends."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def tied() -> None:
        os.read(0, 1)  # nothing is ever written there
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()

    threading.Thread(target=tied, daemon=True).start()
    return child.wait()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
