"""Slow clients, and more connections than may be, against a real server."""

import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
import time

import pytest

from tfcore.serving import server
from tfcore.serving.server import bind_socket, make_server

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
    one = make_server(app, most)
    with bind_socket("127.0.0.1", 0) as listener:
        listener.listen()
        thread = threading.Thread(target=lambda: asyncio.run(one.serve(sockets=[listener])))
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            one.should_exit = True
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
    monkeypatch.setattr(server, "GRACE_SECONDS", 0.5)


@pytest.mark.parametrize("sent", [b"", b"POST / HT", REQUEST[:-2], REQUEST + b"0000" + REQUEST[:-2]])
def test_a_client_that_begins_no_request_in_time_is_cut(impatient, sent):
    with served() as address:
        assert everything(asked(address, sent)).count(b"HTTP/1.1 200 ") == sent.count(b"0000")


def test_one_that_trickles_its_head_is_cut_too(impatient):
    with served() as address, asked(address, REQUEST[:-2]) as taken, contextlib.suppress(OSError):
        while True:
            taken.sendall(b"X: y\r\n")
            time.sleep(0.05)


@pytest.mark.parametrize("more", [b"", REQUEST + b"0032"])
def test_a_client_that_does_not_take_its_answer_is_cut(impatient, monkeypatch, more):
    monkeypatch.setattr(server, "GRACE_BYTES", 32 << 20)
    with served() as address:
        taken = socket.socket()
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        taken.connect(address)
        taken.sendall(REQUEST + b"0032" + more)
        time.sleep(3)
        assert len(everything(taken)) < 32 << 20


def test_a_client_has_time_for_its_body_and_for_a_large_answer(impatient):
    with served() as address, asked(address, REQUEST.replace(b": 4", b": %d" % (4 << 20))) as taken:
        for _ in range(4):
            taken.sendall(b"0032" * (1 << 18))
            time.sleep(0.4)
        answer = b""
        while len(answer) < 32 << 20:
            answer += taken.recv(8 << 20)
            time.sleep(0.05)
    assert answer.startswith(b"HTTP/1.1 200 ")


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


def test_there_are_half_as_many_connections_as_open_files():
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300))\n"
        "from tfcore.serving.server import make_server\n"
        "print(make_server(None, 30).config.limit_concurrency, make_server(None).config.limit_concurrency)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "30 50\n"
