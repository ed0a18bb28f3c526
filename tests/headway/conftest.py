"""A store, a SavedModel to publish, and a bad connection to the S3 endpoint."""

import contextlib
import socket
import threading
from pathlib import Path

import pytest

from headway.storage import filesystem
from headway.storage.store import Store


@pytest.fixture
def store(tmp_path) -> Store:
    made = Store(tmp_path / "store")
    made.create()
    return made


@pytest.fixture
def saved_model(tmp_path) -> Path:
    folder = tmp_path / "exported"
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"graph")
    (folder / "variables" / "variables.index").write_bytes(b"weights")
    return folder


class Proxy:
    """A TCP proxy before the endpoint: it cuts a connection after `limit` bytes from the client, `cuts` times."""

    def __init__(self, url: str):
        host, port = url.removeprefix("http://").split(":")
        self.target = (host, int(port))
        self.limit: int | None = None
        self.cuts = 0
        self.cut = 0
        self.requests = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

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
        # closing alone does not wake a thread that waits in accept
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)
        assert not self._thread.is_alive()


@pytest.fixture
def impatient(monkeypatch):
    """Buckets that cannot be reached are given up sooner, after as many tries of ours."""
    monkeypatch.setattr(filesystem, "TRIES", 2)
    monkeypatch.setattr(filesystem, "_GCS_RETRY_SECONDS", 0.1)
    filesystem._filesystem.cache_clear()
    yield
    filesystem._filesystem.cache_clear()


@pytest.fixture
def proxy(s3, monkeypatch):
    """Of S3 alone: pyarrow's reader of Cloud Storage holds the interpreter's lock while it waits, so that a proxy in
    this process would never answer it."""
    made = Proxy(s3)
    monkeypatch.setenv("AWS_ENDPOINT_URL", made.url)
    filesystem._filesystem.cache_clear()
    yield made
    made.close()
    filesystem._filesystem.cache_clear()
