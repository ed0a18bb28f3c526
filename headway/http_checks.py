"""Whether a page of another site caused an HTTP request: what every server of Headway's asks before it answers.

    foreign_host(headers, ("127.0.0.1", "localhost"))      # a name that resolves to this machine is a rebinding
    of_another_site("POST", headers)                        # Sec-Fetch-Site and Origin, which a page cannot forge

Programs such as curl send neither Origin nor Sec-Fetch-Site, and are not refused.
"""

import ipaddress
from collections.abc import Collection
from typing import Protocol
from urllib.parse import urlsplit


class Headers(Protocol):
    """The headers of a request; names in any case."""

    def get(self, key: str, default: str) -> str: ...

    def getlist(self, key: str) -> list[str]: ...


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


def foreign_host(headers: Headers, names: Collection[str], *, addresses: bool = False) -> bool:
    """Whether the Host header, without its port, is none of these names.

    Args:
        addresses: whether any IP address is right too.
    """
    hosts = headers.getlist("host")
    host = host_of(hosts[0]) if len(hosts) == 1 else None
    return host is None or not (host in names or (addresses and is_address(host)))


def of_another_site(
    method: str, headers: Headers, *, schemes: Collection[str] = ("http",), names: Collection[str] = ()
) -> bool:
    """Whether a page of another site caused the request; a link that a person follows is none.

    Args:
        schemes: of the server's own pages; a proxy may speak https to them.
        names: hosts whose pages may ask besides those of the Host header.
    """
    origin = headers.get("origin", "")
    if origin:
        scheme, _, host = origin.partition("://")
        if scheme not in schemes or (host != headers.get("host", "") and host_of(host) not in names):
            return True
    site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode", "")
    return site not in ("none", "same-origin") and not (method in ("GET", "HEAD") and mode == "navigate")
