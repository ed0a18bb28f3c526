"""Runs the application on a port until it is asked to end.

with bound("127.0.0.1", 8501) as listener:      # fails before a model is loaded
    ...
    run(app, listener)                          # returns after Ctrl-C or SIGTERM, once requests under way are answered
"""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

from headway.errors import ConfigError
from tfcore.serving.connections import BoundedProtocol, affordable

CONNECTIONS = 1000
BACKLOG = 2048
"""Connections that may wait to be taken."""
TICKS = 10
"""Tenths of a second between two looks for slow clients."""
END_SECONDS = 30
"""How long requests under way may take after the server was asked to end."""


def bound(host: str, port: int) -> socket.socket:
    """Return a socket bound to this address; it accepts no connections until it is served.

    Raises:
        ConfigError: the port is in use, not allowed or none; or there is no such host.
    """
    where = f"{host}:{port}"
    if port > 65_535:
        raise ConfigError(
            f"{port} is not a port", where="--port", fix="name one from 1 to 65535, or 0: any that is free"
        )
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, number)
    except (OSError, OverflowError, UnicodeError) as error:
        raise ConfigError(f"is not an address: {error}", where=where, fix="--host and --port name another") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.set_inheritable(False)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            fix = "--port names another (0: any that is free), or end the other process"
            raise ConfigError("the port is in use", where=where, fix=fix) from None
        reason = os.strerror(error.errno or 0).lower()
        raise ConfigError(f"cannot be served on: {reason}", where=where, fix="--host and --port name another") from None
    return listener


def address(listener: socket.socket) -> str:
    """Return the server's http://host:port."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    """A server that cuts slow clients, and does not raise Ctrl-C again after it ended, as uvicorn would."""

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS == 0:
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                if isinstance(connection, BoundedProtocol):
                    connection.check(now)
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        with super().capture_signals():
            try:
                yield
            finally:
                self._captured_signals.clear()


def make_server(app: Any, connections: int = CONNECTIONS) -> uvicorn.Server:
    """A server of the application; `should_exit` ends it.

    Args:
        connections: that may be open; fewer where the process may not have as many files open.
    """
    most = affordable(connections)
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="critical",  # what goes wrong is answered, and said by the application
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        http=BoundedProtocol,
        ws="none",
        backlog=min(BACKLOG, most),  # as many are taken at once
        limit_concurrency=most,
        timeout_graceful_shutdown=END_SECONDS,
    )
    return _Server(config)


def run(app: Any, listener: socket.socket) -> None:
    """Serve until a signal asks for the end."""
    make_server(app).run(sockets=[listener])
