"""Who may ask: what each request must have before a page is made for it, and the headers that each answer gets.

app.add_middleware(Guard, access=Access(token))

Three doors, each shut by itself: the Host header must be this machine's (a foreign name that resolves to 127.0.0.1 is a
rebinding), a request that another site caused is refused (Sec-Fetch-Site, Origin), and every page needs the session that only
the token of the printed address opens. What changes something needs, besides, a token of its own in its form.
"""

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse

from flows.tell.rendering.templating import script
from headway.http_checks import foreign_host, of_another_site

HOSTS = ("127.0.0.1", "localhost")
"""On any port: a tunnel may have another one at its near end."""
FORM_BYTES = 64 << 10
POLICY = (
    "default-src 'none'; style-src 'self'; style-src-attr 'unsafe-inline'; script-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Attributes alone may hold styles: the figures' shapes have their colours there."""
REPORT_POLICY = (
    f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src '{script()[1]}'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; sandbox allow-scripts"
)
"""Of a report, which is a file of the store: it can show itself and run Headway's own script, whoever wrote it."""
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer a browser would say "Origin: null" of our own forms
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Access:
    """The token of one process, and what is derived from it."""

    def __init__(self, token: str | None = None, *, port: int = 0):
        self.token = token or secrets.token_urlsafe(32)
        self.cookie = f"headway-ui-{port}"
        """Cookies know no ports: two dashboards must not sign each other out."""
        self.session = self._derived("session")

    def signs_in(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.token.encode())

    def is_session(self, headers: Headers) -> bool:
        # http.cookies gives up at the first odd cookie, and other servers of this machine set theirs for the same host
        found = cookie_parser(headers.get("cookie", "")).get(self.cookie, "")
        return hmac.compare_digest(found.encode(), self.session.encode())

    def form_token(self, *about: object) -> str:
        """The token of a form that changes just this."""
        return self._derived("form", *map(str, about))

    def is_form_token(self, given: str, *about: object) -> bool:
        return hmac.compare_digest(given.encode(), self.form_token(*about).encode())

    def _derived(self, *about: str) -> str:
        return hmac.new(self.token.encode(), "\0".join(about).encode(), hashlib.sha256).hexdigest()


class Guard:
    """ASGI middleware: refuses foreign hosts and other sites, and sets the headers of every answer."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refused = refusal(scope["method"], Headers(scope=scope))
        if refused is None:
            await self._app(scope, receive, with_headers)
        else:
            await PlainTextResponse(f"{refused[1]}\n", refused[0])(scope, receive, with_headers)


def refusal(method: str, headers: Headers) -> tuple[int, str] | None:
    """(status, why) of a request that is not answered; None of one that may be."""
    if foreign_host(headers, HOSTS):
        return 421, "headway ui answers to 127.0.0.1 and localhost alone: open the address that it printed"
    if method not in ("GET", "HEAD", "POST"):
        return 405, f"{method} is not something that headway ui does"
    elsewhere = of_another_site(method, headers)
    if method == "POST" and (elsewhere or "origin" not in headers):  # every browser says where a form was sent from
        return 403, "this form was sent from another site: open the dashboard itself, and send it from there"
    return (403, "another site asked for this") if elsewhere else None
