"""A PostgreSQL of its own for a Prefect server on this machine, from the distribution's package (apt install postgresql).

    database = Postgres(folder)
    database.start()         # makes it the first time; again: no harm
    database.url             # for PREFECT_SERVER_DATABASE_CONNECTION_URL
    database.stop()
    database.remove()        # with all that is in it

It listens on 127.0.0.1 alone, with a password: the path of a socket may have 107 bytes only. PostgreSQL refuses to run as root,
so root runs it as the user postgres, with its data below that user's home.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pwd
import random
import secrets
import shutil
import socket
import subprocess
from pathlib import Path

from headway.errors import ConfigError, HeadwayError

_USER = "postgres"
_NAME = "prefect"
_VERSIONS = Path("/usr/lib/postgresql")  # where Debian and Ubuntu keep programs that are not on the PATH


class Postgres:
    """The database whose facts (port, password) stand in `folder`/postgres.json, which only its owner may read."""

    def __init__(self, folder: Path):
        self.file = folder / "postgres.json"
        self._root = os.geteuid() == 0
        digest = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
        try:
            home = Path(pwd.getpwnam(_USER).pw_dir) if self._root else folder
        except KeyError:
            raise _missing(f"there is no user {_USER}") from None
        self.data = home / (f"headway-{digest}" if self._root else "postgres")

    @property
    def url(self) -> str:
        facts = json.loads(self.file.read_text())
        return f"postgresql+asyncpg://{_NAME}:{facts['password']}@127.0.0.1:{facts['port']}/{_NAME}"

    def start(self) -> None:
        """Bring it up, and make it if there is none.

        Raises:
            ConfigError: PostgreSQL's programs are not on this machine.
            HeadwayError: it does not come up; with the end of what it printed.
        """
        if not self.file.exists():
            self._create()
        if self.running():
            return
        port = json.loads(self.file.read_text())["port"]
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories="
        self._run("pg_ctl", "-w", "-D", self.data, "-l", self.data / "server.log", "-o", options, "start")

    def _create(self) -> None:
        self.remove()
        port = lasting_port()
        password = secrets.token_urlsafe(24)
        methods = ["--auth-local=reject", "--auth-host=scram-sha-256"]
        self._run("initdb", "-D", self.data, "-E", "UTF8", "--no-instructions", "-U", _NAME, *methods)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        # a single-user server makes the database before anybody can connect
        made = f"ALTER USER {_NAME} PASSWORD '{password}'\nCREATE DATABASE {_NAME}\n"
        self._run("postgres", "--single", "-D", self.data, "template1", text=made)
        extension = "CREATE EXTENSION IF NOT EXISTS pg_trgm\n"  # Prefect searches its tables with it
        self._run("postgres", "--single", "-D", self.data, _NAME, text=extension)
        aside = self.file.with_name(f".{self.file.name}")
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
            json.dump({"port": port, "password": password}, out)
        aside.replace(self.file)

    def running(self) -> bool:
        return self.data.exists() and self._call("pg_ctl", "-D", self.data, "status").returncode == 0

    def stop(self) -> bool:
        """Stop it; whether it ran."""
        if not self.running():
            return False
        self._run("pg_ctl", "-w", "-m", "fast", "-D", self.data, "stop")
        return True

    def remove(self) -> None:
        """Stop it, and remove its data."""
        self.stop()
        shutil.rmtree(self.data, ignore_errors=True)
        self.file.unlink(missing_ok=True)

    def _run(self, program: str, *arguments: object, text: str = "") -> None:
        done = self._call(program, *arguments, text=text)
        if done.returncode:
            log = self.data / "server.log"
            with contextlib.suppress(OSError):
                done.stderr += log.read_text(errors="replace")
            last = "".join(f"\n  | {line}" for line in (done.stdout + done.stderr).splitlines()[-15:])
            raise HeadwayError(f"{program} ended with {done.returncode}:{last}", where=str(self.data))

    def _call(self, program: str, *arguments: object, text: str = "") -> subprocess.CompletedProcess[str]:
        command = ["runuser", "-u", _USER, "--"] if self._root else []
        command += [str(_program(program)), *map(str, arguments)]
        # pg_ctl's server keeps what it is given as stdout: a pipe would never end
        scratch = subprocess.PIPE if "start" not in arguments else subprocess.DEVNULL
        here = "/"  # the user postgres may not see this folder
        return subprocess.run(command, input=text, stdout=scratch, stderr=scratch, text=True, cwd=here, check=False)


def lasting_port() -> int:
    """A free port below those that the kernel gives to connections, one of which could have it when its server comes back."""
    for port in random.SystemRandom().sample(range(15000, 32000), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise HeadwayError("none of a hundred ports from 15000 to 32000 is free", where="127.0.0.1")


def _program(name: str) -> Path:
    if installed := sorted(_VERSIONS.glob(f"*/bin/{name}"), key=lambda path: float(path.parts[-3])):
        return installed[-1]
    if path := shutil.which(name):
        return Path(path)
    raise _missing(f"there is no {name}")


def _missing(problem: str) -> ConfigError:
    return ConfigError(problem, where="PostgreSQL", fix="apt-get install postgresql")
