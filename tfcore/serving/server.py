"""Runs the application on a port until it is asked to end, with bounds on its connections, which uvicorn lacks.

with bind_socket("127.0.0.1", 8501) as listener:      # fails before a model is loaded
    ...
    run(app, listener)                          # returns after Ctrl-C or SIGTERM, once requests under way are answered
"""

import asyncio
import resource
import signal
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from headway.errors import ConfigError

CONNECTIONS = 500
"""The most open connections; fewer where the process may not have twice as many files open."""
BACKLOG = 256
"""The most connections that wait to be accepted: as many may come in a second in which the server's thread is busy."""
GRACE_SECONDS, GRACE_BYTES = 10.0, 640 << 10
"""The seconds that a client may take to begin a request, and again for each GRACE_BYTES bytes of a body or an answer."""


def bind_socket(host: str, port: int) -> socket.socket:
    """Returns a socket bound to the address, which does not listen yet. ConfigError: the address cannot be used."""
    try:
        if port > 65_535:  # which getaddrinfo would take for another
            raise OverflowError("a port is at most 65535")
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        fix = "--host and --port name another (port 0: any that is free), or end the process that has it"
        raise ConfigError(f"cannot be served on: {reason}", where=f"{host}:{port}", fix=fix) from None
    return listener


def address(listener: socket.socket) -> str:
    """Returns the server's URL, http://host:port."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class BoundedProtocol(H11Protocol):
    """A connection. If a new one is the `limit_concurrency`th, the oldest without any request yet is cut, if need be itself."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer = self.loop.call_later(GRACE_SECONDS, self._cut)
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            waiting = [other for other in self.connections if isinstance(other, BoundedProtocol) and other._is_waiting]
            first = min(waiting, key=lambda other: (other.cycle is not None, other._timer.when()))
            self.connections.discard(first)
            first.transport.abort()

    @property
    def _is_waiting(self) -> bool:
        """Whether the server waits for the client to begin a request."""
        return self.cycle is None or self.cycle.response_complete

    def on_response_complete(self) -> None:
        """Gives the client GRACE_SECONDS to take the answer and begin its next request, and again for each GRACE_BYTES taken."""
        self._timer.cancel()
        self._timer = self.loop.call_later(GRACE_SECONDS, self._cut, self.transport.get_write_buffer_size())
        super().on_response_complete()

    def _cut(self, unsent: int = 0) -> None:
        left = self.transport.get_write_buffer_size()
        if left and left <= unsent - GRACE_BYTES:
            self._timer = self.loop.call_later(GRACE_SECONDS, self._cut, left)
        elif left or self._is_waiting:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)


def make_server(app: Any, connections: int = CONNECTIONS) -> uvicorn.Server:
    """Returns a server of the application. Setting the server's `should_exit` ends it."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="critical",  # what goes wrong is answered, and said by the application
        access_log=False,
        lifespan="on",
        http=BoundedProtocol,
        ws="none",
        backlog=BACKLOG,
        limit_concurrency=connections if files == resource.RLIM_INFINITY else min(connections, files // 2),
        timeout_graceful_shutdown=30,  # seconds for requests under way
    )
    return uvicorn.Server(config)


def run(app: Any, listener: socket.socket) -> None:
    """Serves the application until SIGINT or SIGTERM."""
    server = make_server(app)
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # uvicorn raises them again after its end, for whoever had them before
        signal.signal(number, server.handle_exit)
    server.run(sockets=[listener])
