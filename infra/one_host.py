"""PostgreSQL, a Prefect server on it, the watch and two workers on this machine, without Docker; and Flink if asked.

    python infra/one_host.py up [--workers 2] [--gpu] [--flink]     # from the folder with prefect.yaml; again: no harm
    python infra/one_host.py down [--remove]                # --remove: the database too

It is `make up` with a database for scheduled use: the same folder (.headway/prefect), the same password and the same
processes. It needs PostgreSQL's programs (apt-get install postgresql), and Java 17 and Maven for Flink.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from flows.orchestration import local_server
from flows.orchestration.processes import Daemon
from headway.errors import HeadwayError
from headway.redaction import protect

sys.path.insert(0, str(Path(__file__).parent))  # scripts, no package
from postgres import Postgres

_FLINK_SECONDS = 300.0  # Maven may fetch 150 MB first


def up(place: local_server.Place, workers: int, gpu: bool, flink: bool) -> list[str]:
    """Bring up what does not run yet; what a person should know of it.

    Raises:
        ConfigError: PostgreSQL is not on this machine, or what `local_server.start` refuses.
        HeadwayError: something did not come up; with the end of its log.
    """
    place.folder.mkdir(parents=True, exist_ok=True)
    place.folder.chmod(0o700)
    database = Postgres(place.folder)
    database.start()
    os.environ["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = database.url
    notes = local_server.start(place, workers, gpu)
    return notes + ([f"Flink's `runner:` stands in {_flink(place)}"] if flink else [])


def _flink(place: local_server.Place) -> Path:
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


def down(place: local_server.Place, remove: bool) -> list[str]:
    """Stop what `up` started; what was stopped."""
    stopped = local_server.stop(place)
    flink = Daemon(place.folder, "flink")
    if flink.pid() is not None:
        stopped.append("flink")
    flink.stop()
    database = Postgres(place.folder)
    if database.stop():
        stopped.append("postgres")
    if remove:
        database.remove()
    return stopped


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["up", "down"])
    parser.add_argument("--port", type=int, default=4200, help="of the Prefect server (default: 4200)")
    parser.add_argument("--workers", type=int, default=2, help="how many workers (default: 2)")
    parser.add_argument("--gpu", action="store_true", help="a worker for the work queue gpu besides")
    parser.add_argument("--flink", action="store_true", help="a local Flink too")
    parser.add_argument("--remove", action="store_true", help="with down: remove the database too")
    args = parser.parse_args()
    protect()
    os.umask(0o077)
    place = local_server.Place(Path.cwd(), args.port)
    try:
        if args.what == "up":
            environ = dict(os.environ)
            notes = up(place, args.workers, args.gpu, args.flink)
            command = f"{sys.executable} {os.path.relpath(__file__)} down"
            told = local_server.instructions(place, environ, local_server.retrains(), command)
            print("\n".join([told, *(f"note: {note}" for note in notes)]))
        else:
            print(f"stopped: {', '.join(down(place, args.remove)) or 'nothing, since nothing was running'}")
    except HeadwayError as error:
        print(f"headway: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
