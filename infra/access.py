"""Access control of the Prefect server that `make up` starts: a password, and requests from its own pages only.

    auth = auth_string(folder / "auth")      # "headway:...", made once; or the one that the environment names
    server_settings(auth, "http://127.0.0.1:4200", 4200)

A server without a password runs any command for any user of the machine, and for any page that a browser on it shows: a
flow run's job variables hold its command.
"""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import Mapping
from pathlib import Path

from headway.errors import ConfigError

CLIENT = "PREFECT_API_AUTH_STRING"
SERVER = "PREFECT_SERVER_API_AUTH_STRING"
VACUUM = "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED"
NAME = "auth"
"""The file with the password, beside the server's log."""


def auth_string(file: Path, environ: Mapping[str, str] = os.environ) -> str:
    """Return the server's "user:password": the environment's, else the file's, which is made if there is none.

    Raises:
        ConfigError: the environment names two different ones, or one that is not user:password.
    """
    server, client = environ.get(SERVER), environ.get(CLIENT)
    if server and client and server != client:
        raise ConfigError(
            f"{SERVER} and {CLIENT} differ", where="environment", fix=f"set both to the same value, or unset {CLIENT}"
        )
    if login := server or client:
        if ":" not in login:
            where = SERVER if server else CLIENT
            raise ConfigError("is not user:password", where=where, fix=f"export {SERVER}=user:password")
        return login
    try:
        file.chmod(0o600)
        if login := file.read_text().strip():
            return login
        file.unlink()
    except FileNotFoundError:
        pass
    auth = f"headway:{secrets.token_urlsafe(24)}"
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(auth + "\n")
    return auth


def server_settings(auth: str, address: str, port: int, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables for the server. Other origins than its own address only where the environment names them."""
    own = f"{address},http://localhost:{port}"
    return {
        SERVER: auth,
        "PREFECT_SERVER_API_CSRF_PROTECTION_ENABLED": "true",
        # an hour is the default: a worker whose clock is an hour ahead would take every token for expired
        "PREFECT_SERVER_API_CSRF_TOKEN_EXPIRATION": "P1D",
        "PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS": environ.get("PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS") or own,
        # Prefect deletes old events by itself, and old runs where it is told to: those that ended 90 days ago
        VACUUM: environ.get(VACUUM) or "events,flow_runs",
        # leases of concurrency slots in memory would be lost in a restart of the server
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": environ.get("PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE")
        or "prefect.server.concurrency.lease_storage.filesystem",
    }


def shell_prefix(file: Path, environ: Mapping[str, str]) -> str:
    """Return the assignment that gives a `prefect` command the password; "" if the shell has it already."""
    if environ.get(CLIENT):
        return ""
    if environ.get(SERVER):
        return f'{CLIENT}="${SERVER}" '
    return f'{CLIENT}="$(cat {shlex.quote(str(file))})" '


def login_hint(file: Path, environ: Mapping[str, str]) -> str:
    """Return where a person finds the user and password that the UI asks for."""
    if variable := next((name for name in (SERVER, CLIENT) if environ.get(name)), None):
        return f"${variable}"
    return f"the line in {file}"
