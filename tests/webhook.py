"""An address of this machine that hears what is posted to it.

with Webhook() as hook:
    hook.url
    hook.told                   # (path, body) of each request so far
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Webhook:
    """See the module."""

    def __init__(self) -> None:
        self.told = told = list[tuple[str, str]]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                told.append((self.path, self.rfile.read(int(self.headers["content-length"])).decode()))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Webhook:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
