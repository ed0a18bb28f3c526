"""A bad connection to the S3 endpoint."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest

from headway import files


class Proxy:
    """A TCP proxy before the endpoint; it cuts a connection after `limit` bytes from the client, `cuts` times."""

    def __init__(self, url: str):
        host, port = url.removeprefix("http://").split(":")
        self.target = (host, int(port))
        self.limit: int | None = None
        self.cuts = 0
        self.cut = 0
        self.requests = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self.target)
            threading.Thread(target=self._pump, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, False), daemon=True).start()

    def _pump(self, source, target, up):
        seen = 0
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                seen += len(data)
                self.requests += up * data.count(b" HTTP/1.1\r\n")
                if up and self.limit is not None and seen > self.limit and self.cut < self.cuts:
                    self.cut += 1
                    break
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._listener.close()


@pytest.fixture
def proxy(s3, monkeypatch):
    made = Proxy(s3)
    monkeypatch.setenv("AWS_ENDPOINT_URL", made.url)
    files._filesystem.cache_clear()
    yield made
    made.close()
    files._filesystem.cache_clear()
