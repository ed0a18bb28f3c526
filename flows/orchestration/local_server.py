"""Implements `make up` and `make down`: a Prefect server, a worker and the deployments of prefect.yaml on this machine.

    # from the folder that holds prefect.yaml; again: no harm
    python -P -m flows.orchestration.local_server start [--port 4200]
    python -P -m flows.orchestration.local_server stop

Everything lands in .headway/prefect beside prefect.yaml, which only its owner may read: Prefect's home with its database,
pid files, logs, the password (`flows.orchestration.access`). The server listens on 127.0.0.1 only.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import httpx

from flows.config.production import DATA_QUEUE, GPU_QUEUE
from flows.orchestration import access
from flows.orchestration.processes import FOLDER_VARIABLE, Daemon, Processes, end
from headway.errors import ConfigError, HeadwayError
from headway.messages import counted
from headway.redaction import protect, redact

POOL, GPU_WORKER = "headway", "worker-gpu"
OTHER_QUEUES = [DATA_QUEUE, "default"]
"""What workers poll beside one of the queue gpu; Prefect puts runs of deployments that name no queue into default."""
PORT_VARIABLE = "HEADWAY_PREFECT_PORT"
_PYTHON = (sys.executable, "-P", "-m")
_FOREIGN = ("PREFECT_API_KEY", "PREFECT_PROFILE", "PREFECT_PROFILES_PATH")
"""Settings of some other server that a shell may carry."""
_WORKER_UMASK = 0o027
"""Of flow runs too: a group may read a store, such as TensorFlow Serving's user."""
_SAVE_SECONDS = 75.0
"""How long a worker gets to let its flow runs save."""


class Place:
    """The folder of prefect.yaml, and the port of its server."""

    def __init__(self, root: Path, port: int):
        self.root, self.port = root, port
        self.address = f"http://127.0.0.1:{port}"
        self.folder = root / ".headway" / "prefect"
        self.auth = self.folder / access.NAME
        self.processes = Processes(self.folder / "flow-runs")

    def workers(self, least: int = 0, gpu: bool = False) -> list[Daemon]:
        """Return the workers that were ever started here, and as many more as make up `least`; the queue gpu's last."""
        logs = {path.stem for path in self.folder.glob("worker*.log")}
        count = max(least, len(logs - {GPU_WORKER}))
        names = ["worker" if k == 0 else f"worker-{k + 1}" for k in range(count)]
        return [Daemon(self.folder, name) for name in [*names, *([GPU_WORKER] if gpu or GPU_WORKER in logs else [])]]

    def environment(self, auth: str) -> dict[str, str]:
        """Return the environment of the server, worker, watch and deploy; a database named in the shell's is kept."""
        env = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
        local = ",".join(filter(None, [env.get("NO_PROXY") or env.get("no_proxy"), "127.0.0.1,localhost"]))
        return env | {
            "PREFECT_HOME": str(self.folder / "home"),
            "PREFECT_API_URL": f"{self.address}/api",
            access.CLIENT: auth,
            FOLDER_VARIABLE: str(self.processes.folder),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "DO_NOT_TRACK": "1",
            "NO_PROXY": local,
            "no_proxy": local,
            "PWD": str(self.root),  # prefect.yaml's {{ $PWD }}
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)]),
        }


def start(place: Place, workers: int = 1, gpu: bool = False) -> list[str]:
    """Bring up what does not run yet.

    Args:
        workers: how many workers; those that run already are counted.
        gpu: one worker more, which polls the work queue gpu, and leaves the others to the rest.

    Returns:
        What a person should know of it.

    Raises:
        ConfigError: no prefect.yaml here, another program has the port, or a server with another password.
        HeadwayError: the server or the worker died, or the deployments were refused; with the end of its log.
    """
    if not (place.root / "prefect.yaml").is_file():
        raise ConfigError("there is no prefect.yaml here", where=str(place.root), fix="start it from Headway's folder")
    place.folder.mkdir(parents=True, exist_ok=True)
    place.folder.chmod(0o700)
    auth = access.auth_string(place.auth)
    server, watch = Daemon(place.folder, "server"), Daemon(place.folder, "watch")
    env = place.environment(auth)
    _server(place, server, env, auth)
    os.environ.update(env)  # Prefect reads its settings when it is imported
    from flows.orchestration import deployments

    deployments.create_pool(POOL)
    notes = deployments.reconcile(place.root / "prefect.yaml", place.folder, lambda: _deploy(place, env))
    if watch.pid() is None:
        watch.start([*_PYTHON, "flows.orchestration.watch", "--pool", POOL], env=env, cwd=place.folder)
    every = place.workers(workers, gpu)
    gpu = any(worker.name == GPU_WORKER for worker in every)
    missing = [worker for worker in every if worker.pid() is None]
    if len(missing) == len(every) and (orphans := place.processes.pids()):
        runs = counted(len(orphans), "flow run")
        notes.append(f"{runs} of a worker that died: left alone (process {', '.join(map(str, orphans.values()))})")
    for worker in missing:
        command = [*_PYTHON, "flows.orchestration.worker", "--pool", POOL, *_queues(worker.name, gpu)]
        worker.start(command, env=env, cwd=place.folder, umask=_WORKER_UMASK)
    for worker in missing:
        _wait(worker, lambda: deployments.pool_online(POOL), 60, "worker")
    return notes


def _queues(worker: str, gpu: bool) -> list[str]:
    """The options of a worker: all queues, unless one of them has a worker of its own."""
    if not gpu:
        return []
    queues = [GPU_QUEUE] if worker == GPU_WORKER else OTHER_QUEUES
    return [word for queue in queues for word in ("--queue", queue)]


def _server(place: Place, server: Daemon, env: dict[str, str], auth: str) -> None:
    if server.pid() is not None:
        if not _healthy(place):
            _wait(server, lambda: _healthy(place), 30, f"server (started before, maybe not on port {place.port})")
        access.check(place.address, auth, place.auth)
        return
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", place.port))
        except OSError:
            raise ConfigError(
                f"port {place.port} is taken by another program",
                where="Prefect server",
                fix=f"end that program, or choose a port: {PORT_VARIABLE}=4300 make up",
            ) from None
    command = [*_PYTHON, "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(place.port)]
    server.start(command, env=env | access.server_settings(auth, place.address, place.port), cwd=place.folder)
    _wait(server, lambda: _healthy(place), 120, "server")


def _healthy(place: Place) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"{place.address}/api/health", timeout=2, trust_env=False).status_code == 200
    return False


def _wait(daemon: Daemon, ready: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        if daemon.pid() is None:
            raise HeadwayError(f"the Prefect {what} ended at once:{daemon.last_words()}", where=str(daemon.log))
        if time.monotonic() > deadline:
            raise HeadwayError(
                f"the Prefect {what} was not ready after {seconds:.0f} s:{daemon.last_words()}",
                where=str(daemon.log),
                fix="stop it (make down), then start it again",
            )
        time.sleep(0.2)


def _deploy(place: Place, env: dict[str, str]) -> None:
    deploy = ("prefect", "--no-prompt", "deploy", "--all", "--prefect-file", "prefect.yaml")
    command = [*_PYTHON, "flows.launcher", *deploy]
    done = subprocess.run(command, env=env, cwd=place.root, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "".join(f"\n  | {line}" for line in redact(done.stdout + done.stderr).splitlines()[-15:])
        raise HeadwayError(f"the deployments were refused:{last}", where=str(place.root / "prefect.yaml"))


def stop(place: Place) -> list[str]:
    """Stop only the processes that `start` started: flow runs first, so that they can save and report the stop.

    Returns:
        What was stopped.
    """
    runs = place.processes.pids()
    daemons = [*place.workers(), *(Daemon(place.folder, name) for name in ("watch", "server"))]
    stopped = [counted(len(runs), "flow run")] if runs else []
    stopped += [daemon.name for daemon in daemons if daemon.pid() is not None]
    # a worker waits for its flow runs; those of a worker that died are asked here
    end([*runs.values(), *filter(None, (worker.pid() for worker in place.workers()))], _SAVE_SECONDS)
    for daemon in daemons:
        daemon.stop()
    return stopped


def instructions(place: Place, environ: Mapping[str, str], retrains: Sequence[str], down: str = "make down") -> str:
    """Return the addresses and commands that a person needs after `start`, in a shell with this environment.

    Args:
        retrains: the deployments of the flow retrain on the server.
    """
    auth = Path(os.path.relpath(place.auth, place.root))
    prefix = f"PREFECT_API_URL={place.address}/api {access.shell_prefix(auth, environ)}"
    if retrains:
        what = "retrain now:"
        name = retrains[0].replace("'", "'\\''")
        command = f"{prefix}{_program(place, 'prefect')} deployment run '{name}' --watch"
        more = f"\n                (or {', '.join(retrains[1:])})" if retrains[1:] else ""
    else:
        what, command, more = "deploy one:", f"{prefix}{_program(place, 'headway')} deploy PIPELINE", ""
    return (
        f"Prefect is up: {place.address}\n  log in with:  {access.login_hint(auth, environ)}\n  {what:<12}  {command}{more}\n"
        f"  logs:         {place.folder}\n  stop:         {down}"
    )


def _program(place: Place, name: str) -> str:
    """A program of this Python, as a shell in the folder of prefect.yaml calls it."""
    program = Path(sys.executable).with_name(name)
    return shlex.quote(os.path.relpath(program, place.root) if program.is_relative_to(place.root) else str(program))


def retrains() -> list[str]:
    """The deployments of the flow retrain on the server that `start` brought up, the oldest first."""
    from flows.orchestration import deployments

    return deployments.of_flow("retrain")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m flows.orchestration.local_server", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("what", choices=["start", "stop"])
    parser.add_argument("--gpu", action="store_true", help="a worker for the work queue gpu besides")
    parser.add_argument("--port", type=int, help=f"of the server (default: ${PORT_VARIABLE}, or 4200)")
    options = parser.parse_args(arguments)
    protect()
    os.umask(0o077)
    try:
        port = options.port or _port(os.environ.get(PORT_VARIABLE) or "4200")
        place = Place(Path.cwd(), port)
        if options.what == "start":
            environ = dict(os.environ)
            notes = start(place, gpu=options.gpu)
            print("\n".join([instructions(place, environ, retrains()), *(f"note: {note}" for note in notes)]))
        else:
            print(f"stopped: {', '.join(stop(place)) or 'nothing, since nothing was running'}")
    except HeadwayError as error:
        print(f"headway: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _port(text: str) -> int:
    if text.isdecimal() and 0 < int(text) < 65536:
        return int(text)
    raise ConfigError(
        f"{text!r} is not a port", where=PORT_VARIABLE, fix=f"a number from 1 to 65535: {PORT_VARIABLE}=4300"
    )


if __name__ == "__main__":
    sys.exit(main())
