"""`headway serve` under clients that mean it no good, and beside them one that does.

    python bench/hostile.py                       # a minute and a half
    python bench/hostile.py --seconds 10 --rate 0.5

A server on loopback first answers the good client alone, then for --seconds while a third process sends what ATTACKS lists, at
the rates that stand there (times --rate). The good client asks for one row every 20 ms, in turn over a connection that stays
open and over a new one. Printed are its latencies, the server's peak memory against that of the quiet server plus the body
limit, and how each attack was answered. It all ends by itself; sockets, requests and bytes are bounded by the rates.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import http.client
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import child, header, promote, serving

MIB = 1 << 20
BODY_MIB = 32
"""The limit of `headway serve`."""
GOAL_P99, GOAL_MEMORY = 0.25, 1.2
_LONGEST = 120.0
"""How long the oldest half request is waited for, in seconds."""
ROW = {"hour": 7, "carrier": "UA", "tags": ["war", "noir"]}
GOOD = json.dumps({"signature_name": "serving_nullable", "instances": [ROW]}).encode()
NULLABLE = b'{"signature_name": "serving_nullable", "instances": ['


@dataclass(frozen=True)
class Attack:
    """One kind of request."""

    rate: float
    """Per second."""
    body: Callable[[], bytes] = lambda: GOOD
    right: tuple[str, ...] = ("400",)
    """The answers that are right; 503 besides, where other large bodies are under way."""
    headers: str = ""
    host: str = "localhost"
    send: str = "whole"
    """whole, or half: the beginning of a head or of a body, then nothing; leave: all of it, and not waiting for the answer;
    deaf: all of it, and not taking the answer."""


def lists() -> bytes:
    """234 KB of rows, of which one has a list of 40,000 values."""
    long = json.dumps(ROW | {"tags": ["a"] * 40_000}).encode()
    return NULLABLE + long + b', {"hour":7}' * 3000 + b"]}"


def large() -> bytes:
    """Return a request of as many rows as one may have, all of them right."""
    return json.dumps({"signature_name": "serving_nullable", "instances": [ROW] * 16_384}).encode()


ATTACKS = {
    "30 MiB of {},{},...": Attack(1, lambda: b'{"instances": [' + b"{}," * (10 * MIB) + b"{}]}", ("413",)),
    "30 MiB of right rows": Attack(1, lambda: NULLABLE + b'{"hour":7},' * (2_800_000) + b'{"hour":7}]}', ("413",)),
    "lists, padded to 40,000 values": Attack(5, lists, ("413",)),
    "16,384 right rows": Attack(1, large, ("200",)),
    "15 million numbers in a list": Attack(
        0.5, lambda: b'{"inputs": {"hour": [' + b"1," * (15 * MIB) + b"1]}}", ("413",)
    ),
    "a million keys in an object": Attack(
        0.5, lambda: NULLABLE + b"{" + b",".join(b'"k%d":1' % i for i in range(1_000_000)) + b"}]}", ("413",)
    ),
    "a text of 28 MiB": Attack(
        0.5, lambda: NULLABLE + b'{"hour":7,"carrier":"' + b"x" * (28 * MIB) + b'"}]}', ("413",)
    ),
    "a text of 15 MiB": Attack(
        0.5, lambda: NULLABLE + b'{"hour":7,"carrier":"' + b"x" * (15 * MIB) + b'"}]}', ("200",)
    ),
    "a text of 20 MiB, one letter an emoji": Attack(
        0.5, lambda: NULLABLE + b'{"hour":7,"carrier":"' + b"x" * (20 * MIB) + "\N{FIRE}".encode() + b'"}]}', ("413",)
    ),
    "100,000 brackets": Attack(10, lambda: b"[" * 100_000),
    "objects, 100,000 deep": Attack(10, lambda: b'{"instances": [' + b'{"a":' * 100_000),
    "a number of 100,000 digits": Attack(10, lambda: b'{"instances": [{"hour":' + b"9" * 100_000 + b"}]}"),
    "1e400": Attack(10, lambda: b'{"instances": [{"hour":1e400}]}'),
    "a key twice": Attack(10, lambda: NULLABLE + b'{"hour":7,"hour":8}]}'),
    "40 MiB": Attack(0.5, lambda: b" " * (40 * MIB), ("413",)),
    "a foreign Host": Attack(20, right=("421",), host="evil.example"),
    "a foreign Origin": Attack(20, right=("403",), headers="Origin: http://evil.example\r\n"),
    "a page's fetch": Attack(20, right=("403",), headers="Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n"),
    "half a head": Attack(50, right=("408", "cut", "open still"), send="half head"),
    "half a body": Attack(25, right=("408", "cut", "open still"), send="half"),
    "leaves at once": Attack(20, right=("left",), send="leave"),
    "takes no answer": Attack(2, large, ("200", "cut", "open still"), send="deaf"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=40.0, help="of the attacks")
    parser.add_argument("--rate", type=float, default=1.0, help="times the rates that the table names")
    parser.add_argument("--pipeline", type=Path, help="serve this one, with the columns hour, carrier and tags")
    parser.add_argument("--only", default="", metavar="WORDS", help="the attacks whose names have these words")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--child", choices=["model", "attack"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child == "model":
        promote(arguments.folder, save_model)
    elif arguments.child == "attack":
        print(json.dumps(attack(arguments.url, arguments.seconds, arguments.rate, arguments.only)))
    else:
        if not arguments.json:
            header("hostile")
        folder = Path(tempfile.mkdtemp(prefix="headway-bench-"))
        try:
            if arguments.pipeline is None:
                child(__file__, "--child", "model", "--folder", str(folder))
            found = figures(arguments, arguments.pipeline or folder)
        finally:
            shutil.rmtree(folder)
        print(json.dumps(found, indent=1)) if arguments.json else show(found)


def figures(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The good client's latencies and the server's peak memory, quiet and under attack, and the answers to each attack."""
    with serving(folder) as (pid, url, said):
        quiet = good_client(url, lambda passed: passed >= min(10.0, arguments.seconds))
        before = peak_mib(pid)
        options = ["--child", "attack", "--url", url, "--seconds", str(arguments.seconds)]
        options += ["--rate", str(arguments.rate), "--only", arguments.only]
        with subprocess.Popen([sys.executable, __file__, *options], stdout=subprocess.PIPE, text=True) as other:
            attacked = good_client(url, lambda passed: other.poll() is not None)
            answers = json.loads(other.communicate()[0])
        after = peak_mib(pid)
    return {
        "quiet": quiet,
        "attacked": attacked,
        "quiet_mib": before,
        "peak_mib": after,
        "memory": after / (before + BODY_MIB),
        "attacks": answers,
        "wrong": {
            name: sorted(odd)
            for name, (_, found) in answers.items()
            if (odd := found.keys() - {*ATTACKS[name].right, "503"})
        },
        "said": said,
    }


def good_client(url: str, ended: Callable[[float], bool]) -> dict[str, float]:
    """p50, p99 and the longest of its requests, in seconds, and how many were answered otherwise than by 200."""
    address, path = _parts(url)
    stays = http.client.HTTPConnection(*address, timeout=20)
    seconds, failed = list[float](), 0
    begin = time.monotonic()
    for number in itertools.count():
        if number >= 10 and ended(time.monotonic() - begin):
            break
        began = time.perf_counter()
        connection = stays if number % 2 else http.client.HTTPConnection(*address, timeout=20)
        try:
            connection.request("POST", f"{path}:predict", GOOD)
            answer = connection.getresponse()
            answer.read()
            failed += answer.status != 200
        except (OSError, http.client.HTTPException):
            failed += 1
            connection.close()
        seconds.append(time.perf_counter() - began)
        if connection is not stays:
            connection.close()
        time.sleep(0.02)
    p50, p99 = (float(np.percentile(seconds, q)) for q in (50, 99))
    figures = {"requests": len(seconds), "failed": failed, "p50": p50, "p99": p99, "longest": max(seconds)}
    return figures | {"load": os.getloadavg()[0]}


def show(found: dict[str, Any]) -> None:
    for name in ("quiet", "attacked"):
        one = found[name]
        print(
            f"good client, {name:8s}  {one['requests']:5d} requests, {one['failed']} not answered by 200;"
            f"  p50 {1e3 * one['p50']:6.1f} ms  p99 {1e3 * one['p99']:6.1f} ms  longest {1e3 * one['longest']:6.1f} ms"
            f"  load of the machine {one['load']:.1f}"
        )
    for name, (rate, answers) in found["attacks"].items():
        print(f"{name:40s} {rate:5.1f}/s  {', '.join(f'{kind}: {n}' for kind, n in sorted(answers.items()))}")
    print(f"answers that are not right: {found['wrong'] or 'none'}")
    print(f"lines on the server's terminal: {len(found['said'])}")
    print(f"p99 {found['attacked']['p99']:.3f} s (goal {GOAL_P99} s)")
    print(
        f"peak memory {found['peak_mib']:.0f} MiB, quiet {found['quiet_mib']:.0f} MiB: {found['memory']:.2f} times the quiet"
        f" server plus {BODY_MIB} MiB (goal {GOAL_MEMORY})"
    )


def peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


# --- in a process of its own


def attack(url: str, seconds: float, rate: float, only: str) -> dict[str, Any]:
    """(rate, {answer: how many}) of each attack; an answer is a status, cut, or nothing."""
    address, path = _parts(url)
    chosen = {name: one for name, one in ATTACKS.items() if only in name}
    found = {name: (one.rate * rate, collections.Counter[str]()) for name, one in chosen.items()}
    end = time.monotonic() + seconds
    threads = [
        threading.Thread(target=_attack, args=(one, address, path, end, *found[name])) for name, one in chosen.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _attack(
    one: Attack, address: tuple[str, int], path: str, end: float, rate: float, answers: collections.Counter[str]
) -> None:
    """Send one attack at its rate, at least once; sockets that are held open stay open to the end."""
    head, body = _request(one, path)
    held: list[socket.socket] = []
    for at in _times(rate, end):
        time.sleep(max(0.0, at - time.monotonic()))
        try:
            taken = socket.create_connection(address, timeout=20)
            if one.send == "half head":
                taken.sendall(head[: len(head) // 2])
                held.append(taken)
            elif one.send == "half":
                taken.sendall(head + body[: len(body) // 2])
                held.append(taken)
            elif one.send == "deaf":
                taken.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                taken.sendall(head + body)
                held.append(taken)
            else:
                with taken:
                    answers[_whole(taken, head, body, waits=one.send == "whole")] += 1
        except OSError as error:
            answers[type(error).__name__] += 1
    time.sleep(max(0.0, end - time.monotonic()))
    for number, taken in enumerate(held):
        with taken:
            oldest = number == 0 and one.send != "deaf"  # it is cut, however late on a busy machine
            answers[_state(taken, _LONGEST if oldest else 0.0)] += 1


def _times(rate: float, end: float) -> Iterator[float]:
    at = time.monotonic()
    yield at
    while (at := at + 1 / rate) < end:
        yield at


def _request(one: Attack, path: str) -> tuple[bytes, bytes]:
    body = one.body()
    head = f"POST {path}:predict HTTP/1.1\r\nHost: {one.host}\r\n{one.headers}Content-Length: {len(body)}\r\n\r\n"
    return head.encode(), body


def _whole(taken: socket.socket, head: bytes, body: bytes, *, waits: bool) -> str:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may have answered before it had all of it
        taken.sendall(head + body)
    if not waits:
        return "left"
    return _status(taken)


def _status(taken: socket.socket) -> str:
    try:
        answer = taken.recv(1 << 16)
    except ConnectionResetError:
        return "cut"
    except TimeoutError:
        return "no answer"
    return answer[9:12].decode() if answer.startswith(b"HTTP/1.1 ") else "cut"


def _state(taken: socket.socket, seconds: float) -> str:
    """Return what became of a connection that was held: answered and cut, cut, or open still after so many seconds."""
    taken.settimeout(seconds)
    try:
        state = _status(taken)
    except BlockingIOError:
        return "open still"
    return "open still" if state == "no answer" else state


def _parts(url: str) -> tuple[tuple[str, int], str]:
    place, _, path = url.removeprefix("http://").partition("/")
    host, _, port = place.rpartition(":")
    return (host, int(port)), f"/{path}"


def save_model(path: Path) -> None:
    """Save an untrained network of the usual size over a number, a text and a list."""
    import tensorflow as tf

    from headway.schema.columns import Column
    from tfcore.export.saved_model import save

    class Transform(tf.Module):
        def __call__(self, raw: dict[str, Any]) -> dict[str, Any]:
            texts = tf.strings.to_hash_bucket_fast(raw["carrier"].values, 100)
            values = (raw["hour"].values, texts, raw["tags"].lengths)
            return {"numeric": tf.stack([tf.cast(value, tf.float32) for value in values], -1)}

        def named(self, raw: dict[str, Any]) -> dict[str, Any]:
            return self(raw)

    tf.random.set_seed(1)
    weights = [tf.Variable(tf.random.normal(pair, stddev=0.3)) for pair in itertools.pairwise([3, 256, 128, 1])]

    def predict(inputs: dict[str, Any]) -> dict[str, Any]:
        hidden = inputs["numeric"]
        for weight in weights[:-1]:
            hidden = tf.nn.relu(hidden @ weight)
        logit = (hidden @ weights[-1])[:, 0]
        return {"probability": tf.sigmoid(logit), "logit": logit}

    columns = (
        Column(name="hour", type="int64", nullable=False),
        Column(name="carrier", type="bytes", nullable=True),
        Column(name="tags", type="bytes", nullable=True, shape=(None,)),
    )
    save(path, transform=Transform(), predict=predict, variables=weights, columns=columns, task="binary")


if __name__ == "__main__":
    main()
