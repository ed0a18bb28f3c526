"""Bounds on connections, which uvicorn lacks: how long a client may take, and which connection goes when there are too many.

A client has 10 seconds for the head of a request. In each 10 seconds it then sends 640 KiB of the body, or the rest of it, and
takes as much of the answer. One that is slower is answered 408, where it can be, and cut. When there are as many connections as
may be, those make room that never sent a whole request, the oldest first; then those that wait between requests. What is being
answered stays.
"""

import asyncio
import json
import resource
from collections.abc import Iterable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

GRACE_SECONDS = 10.0
GRACE_BYTES = 640 << 10
FILES_PER_CONNECTION = 3
"""Open files of the process for each connection: as many may be taken at once before one can be refused."""
_REASON = json.dumps({"error": "the request did not arrive in time; send it faster, or in parts"}).encode()
_LATE = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_REASON), _REASON)
)


def affordable(connections: int) -> int:
    """As many of these connections as the process may have open files for, after its limit was raised where it may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_PER_CONNECTION * connections
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return min(connections, soft // FILES_PER_CONNECTION)
    return connections


class BoundedProtocol(H11Protocol):
    """One connection. `limit_concurrency` of uvicorn's config is the number of connections that may be."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.requests = 0
        """Whole requests so far."""
        self.since = self.loop.time()
        """When the client began, or last was far enough, to send a head, to send a body or to take an answer."""
        self._phase: object = None
        self._received = self._left = 0

    @property
    def is_unfinished(self) -> bool:
        """Whether the server waits for the client, and not the client for the server."""
        answering = self.cycle is not None and not self.cycle.response_complete
        return not answering or self.conn.their_state is h11.SEND_BODY

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            others = (other for other in self.connections if isinstance(other, BoundedProtocol) and other is not self)
            for other in _to_go(others, 1 + self.limit_concurrency // 8):
                self.connections.discard(other)
                other.transport.abort()

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        super().data_received(data)

    def on_response_complete(self) -> None:
        self.requests += 1
        super().on_response_complete()

    def check(self, now: float) -> None:
        """Cut the connection if its client takes too long; to be called every second or so."""
        unsent = self.transport.get_write_buffer_size()
        if not unsent and not self.is_unfinished:
            self._phase = None
            return
        phase = ("answer", self.requests) if unsent else (self.cycle, self.conn.their_state)
        if phase == self._phase and now - self.since <= GRACE_SECONDS:
            return
        done = self._left - unsent if unsent else self._received if self.conn.their_state is h11.SEND_BODY else 0
        if phase != self._phase or done >= GRACE_BYTES:
            self._phase, self.since, self._received, self._left = phase, now, 0, unsent
            return
        if unsent or (self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete):
            self.transport.abort()
        else:
            self.transport.write(_LATE)
            self.transport.close()


def _to_go(connections: Iterable[BoundedProtocol], most: int) -> list[BoundedProtocol]:
    """Those that make room: some that never sent a whole request, or else one that waits for its next."""
    unfinished = sorted((c for c in connections if c.is_unfinished), key=lambda c: (c.requests > 0, c.since))
    return [c for c in unfinished[:most] if not c.requests] or unfinished[:1]
