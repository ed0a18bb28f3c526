"""A Prefect server, workers and deployments on this machine, without Docker; with PostgreSQL, and Flink if asked.

    python infra/one_host.py up [PIPELINE ...] [--workers 2] [--gpu] [--flink]      # again: no harm
    python infra/one_host.py up [PIPELINE ...] --sqlite --workers 1                 # `make up`
    python infra/one_host.py down [--remove]                # --remove: the database too

Everything lands in .headway/prefect in the working directory, which only its owner may read: Prefect's home with its database,
pid files, logs, the password (`access.py`). The server listens on 127.0.0.1 only. It needs PostgreSQL's programs (apt-get install
postgresql), and Java 17 and Maven for Flink.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import httpx

from flows.config.production import DATA_QUEUE, GPU_QUEUE
from headway.errors import ConfigError, HeadwayError
from headway.messages import counted
from headway.redaction import protect

sys.path.insert(0, str(Path(__file__).parent))  # scripts, no package
import access
from daemons import Daemon, end
from postgres import Postgres

_FLINK_SECONDS = 300.0  # Maven may fetch 150 MB first


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
    """The folder in which this is typed, and the port of its server."""

    def __init__(self, root: Path, port: int):
        self.root, self.port = root, port
        self.address = f"http://127.0.0.1:{port}"
        self.folder = root / ".headway" / "prefect"
        self.auth = self.folder / access.NAME

    def workers(self, least: int = 0, gpu: bool = False) -> list[Daemon]:
        """Return the workers that were ever started here, and as many more as make up `least`; the queue gpu's last."""
        logs = {path.stem for path in self.folder.glob("worker*.log")}
        count = max(least, len(logs - {GPU_WORKER}))
        names = ["worker" if k == 0 else f"worker-{k + 1}" for k in range(count)]
        return [Daemon(self.folder, name) for name in [*names, *([GPU_WORKER] if gpu or GPU_WORKER in logs else [])]]

    def environment(self, auth: str) -> dict[str, str]:
        """Return the environment of server and worker; a database named in the shell's is kept."""
        env = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
        local = ",".join(filter(None, [env.get("NO_PROXY") or env.get("no_proxy"), "127.0.0.1,localhost"]))
        return env | {
            "PREFECT_HOME": str(self.folder / "home"),
            "PREFECT_API_URL": f"{self.address}/api",
            access.CLIENT: auth,
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "DO_NOT_TRACK": "1",
            "NO_PROXY": local,
            "no_proxy": local,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)]),
        }


def up(
    place: Place,
    pipelines: Sequence[str] = (),
    *,
    postgres: bool,
    workers: int = 1,
    gpu: bool = False,
    flink: bool = False,
) -> list[str]:
    """Bring up what does not run yet, and deploy pipelines.

    Args:
        pipelines: pipeline.yaml files, or their folders.
        postgres: the server's database is a PostgreSQL of its own; False: SQLite, or what the environment names.
        workers: how many workers; those that run already are counted.
        gpu: one worker more, which polls the work queue gpu, and leaves the others to the rest.

    Returns:
        What a person should know of it.

    Raises:
        ConfigError: another program has the port, the server has another password, a pipeline is wrong, or PostgreSQL is
            not on this machine.
        HeadwayError: something did not come up; with the end of its log.
    """
    place.folder.mkdir(parents=True, exist_ok=True)
    place.folder.chmod(0o700)
    if postgres:
        database = Postgres(place.folder)
        database.start()
        os.environ["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = database.url
    auth = access.auth_string(place.auth)
    env = place.environment(auth)
    _server(place, env, auth)
    os.environ.update(env)  # Prefect reads its settings when it is imported
    from flows.config.pipeline import read_pipeline
    from flows.orchestration.deploy import create_pool, deploy
    from flows.orchestration.server import connected
    from flows.orchestration.worker import POLLS

    with connected() as (client, _):
        create_pool(client, POOL)
        notes = [change for pipeline in pipelines for change in deploy(client, read_pipeline(Path(pipeline)))]
    every = place.workers(workers, gpu)
    gpu = any(worker.name == GPU_WORKER for worker in every)
    missing = [worker for worker in every if worker.pid() is None]
    if len(missing) == len(every) and (orphans := _flow_runs(place)):
        runs = counted(len(orphans), "flow run")
        notes.append(f"{runs} of a worker that died: left alone (process {', '.join(map(str, orphans))})")
    for worker in missing:
        # all queues, unless one of them has a worker of its own
        queues = [] if not gpu else [GPU_QUEUE] if worker.name == GPU_WORKER else OTHER_QUEUES
        options = [word for queue in queues for word in ("--queue", queue)]
        command = [*_PYTHON, "flows.orchestration.worker", "--pool", POOL, *options]
        worker.start(command, env=env, cwd=place.folder, umask=_WORKER_UMASK)
    for worker in missing:
        _wait(worker, lambda worker=worker: POLLS in worker.said(), 120)
    return notes + ([f"Flink's `runner:` stands in {_flink(place)}"] if flink else [])


def _flow_runs(place: Place) -> list[int]:
    """The processes of the flow runs of this host that go on; none where the server does not say."""
    os.environ.update(place.environment(access.auth_string(place.auth)))
    from flows.orchestration.server import connected
    from flows.orchestration.worker import flow_runs_here

    with contextlib.suppress(HeadwayError, httpx.HTTPError), connected() as (client, _):
        return [pid for _, pid, lives in flow_runs_here(client, POOL) if lives]
    return []


def _server(place: Place, env: dict[str, str], auth: str) -> None:
    server = Daemon(place.folder, "server")
    if server.pid() is None:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", place.port))
            except OSError:
                problem = f"port {place.port} is taken by another program"
                fix = f"end that program, or choose a port: {PORT_VARIABLE}=4300 make up"
                raise ConfigError(problem, where="Prefect server", fix=fix) from None
        command = [*_PYTHON, "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(place.port)]
        server.start(command, env=env | access.server_settings(auth, place.address, place.port), cwd=place.folder)
    _wait(server, lambda: _healthy(place), 120)


def _healthy(place: Place) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"{place.address}/api/health", timeout=2, trust_env=False).status_code == 200
    return False


def _wait(daemon: Daemon, ready: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        if daemon.pid() is None:
            raise HeadwayError(f"the Prefect {daemon.name} ended at once:{daemon.last_words()}", where=str(daemon.log))
        if time.monotonic() > deadline:
            problem = f"the Prefect {daemon.name} was not ready after {seconds:.0f} s:{daemon.last_words()}"
            fix = (
                f"stop it (make down), then start it again; one that runs keeps its port, whatever {PORT_VARIABLE} says"
            )
            raise HeadwayError(problem, where=str(daemon.log), fix=fix)
        time.sleep(0.2)


def down(place: Place, *, remove: bool = False) -> list[str]:
    """Stop only the processes that `up` started: flow runs first, so that they can save and report the stop.

    Args:
        remove: the database of PostgreSQL too, with all that is in it.

    Returns:
        What was stopped.
    """
    daemons = [*place.workers(), *(Daemon(place.folder, name) for name in ("server", "flink"))]
    runs = _flow_runs(place) if Daemon(place.folder, "server").pid() is not None else []
    stopped = [counted(len(runs), "flow run")] if runs else []
    stopped += [daemon.name for daemon in daemons if daemon.pid() is not None]
    # a worker waits for its flow runs; those of a worker that died are asked here
    end([*runs, *filter(None, (worker.pid() for worker in place.workers()))], _SAVE_SECONDS)
    for daemon in daemons:
        daemon.stop()
    if (place.folder / "postgres.json").exists():
        database = Postgres(place.folder)
        stopped += ["postgres"] if database.stop() else []
        if remove:
            database.remove()
    return stopped


def instructions(place: Place, environ: Mapping[str, str], retrains: Sequence[str], down: str) -> str:
    """Return the addresses and commands that a person needs after `up`, in a shell with this environment.

    Args:
        retrains: the deployments of the flow retrain on the server.
    """
    auth = Path(os.path.relpath(place.auth, place.root))
    prefix = f"PREFECT_API_URL={place.address}/api {access.shell_prefix(auth, environ)}"
    what, command = "deploy one:", f"{prefix}{_program(place, 'headway')} deploy PIPELINE"
    if retrains:
        name = retrains[0].replace("'", "'\\''")
        what, command = "retrain now:", f"{prefix}{_program(place, 'prefect')} deployment run '{name}' --watch"
    if retrains[1:]:
        command += f"\n                (or {', '.join(retrains[1:])})"
    return (
        f"Prefect is up: {place.address}\n  log in with:  {access.login_hint(auth, environ)}\n  {what:<12}  {command}\n"
        f"  logs:         {place.folder}\n  stop:         {down}"
    )


def _program(place: Place, name: str) -> str:
    """A program of this Python, as a shell in the place's folder calls it."""
    program = Path(sys.executable).with_name(name)
    return shlex.quote(os.path.relpath(program, place.root) if program.is_relative_to(place.root) else str(program))


def retrains() -> list[str]:
    """The deployments of the flow retrain on the server that `up` brought up, the oldest first."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowFilter, FlowFilterName

    with get_client(sync_client=True) as client:
        found = client.read_deployments(flow_filter=FlowFilter(name=FlowFilterName(any_=["retrain"])), limit=200)
    return [f"retrain/{each.name}" for each in sorted(found, key=lambda each: str(each.created))]


def _flink(place: Place) -> Path:
    daemon = Daemon(place.folder, "flink")
    if daemon.pid() is None:
        daemon.log.unlink(missing_ok=True)
        command = [sys.executable, "-P", str(Path(__file__).with_name("flink.py"))]
        daemon.start(command, env=os.environ, cwd=place.folder)
    until = time.monotonic() + _FLINK_SECONDS
    while "runner:" not in daemon.log.read_text():
        if daemon.pid() is None or time.monotonic() > until:
            raise HeadwayError(f"Flink does not come up:{daemon.last_words()}", where=str(daemon.log))
        time.sleep(0.2)
    return daemon.log


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["up", "down"])
    parser.add_argument("pipelines", nargs="*", metavar="PIPELINE", help="to deploy: a pipeline.yaml, or its folder")
    parser.add_argument("--port", type=int, help=f"of the Prefect server (default: ${PORT_VARIABLE}, or 4200)")
    parser.add_argument("--workers", type=int, default=2, help="how many workers (default: 2)")
    parser.add_argument("--gpu", action="store_true", help="a worker for the work queue gpu besides")
    parser.add_argument("--flink", action="store_true", help="a local Flink too")
    parser.add_argument("--sqlite", action="store_true", help="no PostgreSQL of its own, as make up")
    parser.add_argument("--remove", action="store_true", help="with down: remove the database too")
    options = parser.parse_intermixed_args(arguments)
    protect()
    os.umask(0o077)
    try:
        place = Place(Path.cwd(), options.port or _port(os.environ.get(PORT_VARIABLE) or "4200"))
        if options.what == "up":
            environ = dict(os.environ)
            chosen = {"workers": options.workers, "gpu": options.gpu, "flink": options.flink}
            notes = up(place, options.pipelines, postgres=not options.sqlite, **chosen)
            stop = "make down" if options.sqlite else f"{sys.executable} {os.path.relpath(__file__)} down"
            told = instructions(place, environ, retrains(), stop)
            print("\n".join([told, *(f"note: {note}" for note in notes)]))
        else:
            print(f"stopped: {', '.join(down(place, remove=options.remove)) or 'nothing, since nothing was running'}")
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
    raise SystemExit(main())
