"""Slow clients, and more connections than may be, against a real server."""

import asyncio
import contextlib
import resource
import socket
import subprocess
import sys
import threading
import time

import pytest

from tfcore.serving import connections
from tfcore.serving.server import bound, make_server

REQUEST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n"


async def app(scope, receive, send):
    """Answers with as many bytes as the body's number of MiB says."""
    if scope["type"] != "http":
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body, more = body + message["body"], message["more_body"]
    length = str(int(body[:4]) << 20).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    await send({"type": "http.response.body", "body": b"x" * (int(body[:4]) << 20)})


@contextlib.contextmanager
def served(most=100):
    """The address of a server of so many connections."""
    server = make_server(app, most)
    with bound("127.0.0.1", 0) as listener:
        listener.listen()
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            server.should_exit = True
            thread.join(40)


def asked(address, data):
    taken = socket.create_connection(address, timeout=20)
    taken.sendall(data)
    return taken


def everything(taken):
    found = b""
    with taken, contextlib.suppress(ConnectionResetError):
        while piece := taken.recv(1 << 20):
            found += piece
    return found


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(connections, "GRACE_SECONDS", 0.5)


@pytest.mark.parametrize("sent", [b"", b"POST / HT", REQUEST[:-2], REQUEST, REQUEST + b"0"])
def test_an_unfinished_request_is_cut(impatient, sent):
    with served() as address:
        answer = everything(asked(address, sent))
    assert answer.startswith(b"HTTP/1.1 408 ") and b"did not arrive in time" in answer


def test_one_that_trickles_is_cut_too(impatient):
    with served() as address, asked(address, REQUEST.replace(b": 4", b": 9999")) as taken, contextlib.suppress(OSError):
        while True:
            taken.sendall(b"0")
            time.sleep(0.05)


def test_a_client_that_does_not_take_its_answer_is_cut(impatient):
    with served() as address:
        taken = socket.socket()
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        taken.connect(address)
        taken.sendall(REQUEST + b"0032")
        time.sleep(4)
        assert len(everything(taken)) < 32 << 20


def test_a_client_that_is_fast_enough_is_answered_however_long_it_takes(impatient):
    size = 8 << 20
    with served() as address, asked(address, REQUEST.replace(b": 4", b": %d" % size)) as taken:
        for _ in range(8):
            taken.sendall(b"0" * (1 << 20))
            time.sleep(0.4)
        assert taken.recv(100).startswith(b"HTTP/1.1 200 ")


def test_connections_without_a_request_make_room_and_the_others_stay():
    with served(most=16) as address, contextlib.ExitStack() as stack:
        stays = stack.enter_context(asked(address, REQUEST + b"0000"))
        assert stays.recv(1000).startswith(b"HTTP/1.1 200 ")
        halves = [stack.enter_context(asked(address, b"POST / HT")) for _ in range(40)]
        for _ in range(5):
            with asked(address, REQUEST + b"0000") as taken:
                assert taken.recv(1000).startswith(b"HTTP/1.1 200 ")
        stays.sendall(REQUEST + b"0000")
        assert stays.recv(1000).startswith(b"HTTP/1.1 200 ")
        is_open = 0
        for half in halves:
            half.setblocking(False)
            try:
                half.recv(1)
            except BlockingIOError:
                is_open += 1
            except ConnectionResetError:
                continue
        assert 0 < is_open < 16


def test_there_are_a_third_as_many_connections_as_open_files():
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300))\n"
        "from tfcore.serving.connections import affordable\n"
        "print(affordable(50), affordable(1000), resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "50 100 (300, 300)\n"
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 300
