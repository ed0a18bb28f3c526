"""Refuses what a web page caused, before a request is read, and ends the connection of one that is refused early.

    app.add_middleware(Guard, hosts=("flights.example",))

A page that a person has open can send requests to any address that the browser reaches. Its name in the Host header is
foreign where it was resolved to this machine (421); Origin and Sec-Fetch-Site say that it is another site (403). Programs send
neither, and reach the server by localhost, by any IP address, by this machine's own name and by the names that are given.
"""

import ipaddress
import json
import socket
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response

ANY = "*"
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Guard:
    """ASGI middleware.

    Args:
        hosts: names that are right in the Host header besides those that always are; "*": all names.
    """

    def __init__(self, app: Callable[[Message, Receive, Send], Awaitable[None]], *, hosts: Collection[str] = ()):
        self._app = app
        self._given = frozenset(name.lower() for name in hosts)
        self._names = self._given | {"localhost", socket.gethostname().lower()}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        is_whole = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers

        async def received() -> Message:
            nonlocal is_whole
            message = await receive()
            is_whole = is_whole or (message["type"] == "http.request" and not message.get("more_body", False))
            return message

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start" and not is_whole:
                # else the server would read the rest of the body, however long it is, to no end
                MutableHeaders(scope=message)["Connection"] = "close"
            await send(message)

        refused = self.refusal(scope["method"], headers)
        app = self._app
        if refused is not None:
            app = Response(json.dumps({"error": refused[1]}), refused[0], media_type="application/json")
        await app(scope, received, sent)

    def refusal(self, method: str, headers: Headers) -> tuple[int, str] | None:
        """(status, why) of a request that is not answered; None of one that may be."""
        hosts = headers.getlist("host")  # none: of a program that speaks HTTP/1.0
        if hosts and ANY not in self._names and foreign_host(headers, self._names):
            return 421, f"{hosts[0]!r} is no name of this server; headway serve --allow-host gives it one"
        if of_another_site(method, headers, names=self._given):
            return 403, "a page of another site sent this request; ask through a server of that site"
        return None


def host_of(header: str) -> str | None:
    """The name in a Host header, in small letters and without its port; None where it is not one."""
    try:
        found = urlsplit(f"//{header}")
        _ = found.port
    except ValueError:
        return None
    plain = found.username is None and not (found.path or found.query or found.fragment)
    return found.hostname if plain else None


def is_address(host: str) -> bool:
    """Whether a host is an IP address, which no name server can point elsewhere."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def foreign_host(headers: Headers, names: Collection[str]) -> bool:
    """Whether the Host header, without its port, is none of these names and no IP address, which nobody can rebind."""
    hosts = headers.getlist("host")
    host = host_of(hosts[0]) if len(hosts) == 1 else None
    return host is None or not (host in names or is_address(host))


def of_another_site(method: str, headers: Headers, *, names: Collection[str] = ()) -> bool:
    """Whether a page of another site caused the request; a link that a person follows is none.

    Args:
        names: hosts whose pages may ask besides those of the Host header.
    """
    origin = headers.get("origin", "")
    if origin:
        scheme, _, host = origin.partition("://")  # a proxy may speak https to its pages
        if scheme not in ("http", "https") or (host != headers.get("host", "") and host_of(host) not in names):
            return True
    site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode", "")
    return site not in ("none", "same-origin") and not (method in ("GET", "HEAD") and mode == "navigate")
