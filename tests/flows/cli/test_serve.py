"""`headway serve`, typed as a user types it, in a process of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.serving import serving


def ask(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=20) as answer:
        return json.loads(answer.read())


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_champion_is_served_until_a_signal_asks_for_the_end(served, fork_server, number):
    with serving(served, start=fork_server.start) as server:
        assert server.version == 1 and ask(server.url)["model_version_status"][0]["version"] == "1"
        row = {"hour": 7, "carrier": "UA"}
        asked = {"signature_name": "serving_nullable", "instances": [row]}
        assert 0 < ask(f"{server.url}:predict", asked)["predictions"][0]["probability"] < 1
        began = time.monotonic()
        os.kill(server.process.pid, number)
        assert server.process.wait(20) == 0 and time.monotonic() - began < 5
        errors = server.process.stderr.read().decode()
        assert "Traceback" not in errors and "ended; 1 request answered" in errors, errors


def test_a_port_in_use_and_options_that_cannot_be_are_told_before_anything_is_loaded(served_once, typed):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = typed("serve", served_once, "--port", port, check=2)
    assert done.stderr == (
        f"headway serve: 127.0.0.1:{port}: cannot be served on: Address already in use\n"
        "  fix: --host and --port name another (port 0: any that is free), or end the process that has it\n"
    )
    for options, words in (
        (["--max-request-mib", "x"], "--max-request-mib: 'x' is not a number of 0 or more"),
        (["--host", "no.such.host.invalid"], "no.such.host.invalid:8501: cannot be served on: "),
        (["--port", "70000"], "127.0.0.1:70000: cannot be served on: "),
    ):
        assert words in typed("serve", served_once, *options, check=2).stderr


def test_without_a_store_or_a_champion_there_is_nothing_to_serve(served, typed):
    assert "there is no store yet" in typed("serve", served, "--set", "store=other", check=5).stderr
    done = typed("serve", served, "--port", "0", "--set", "name=nothing", check=5)
    assert "there is no champion yet" in done.stderr and "headway run promotes one" in done.stderr
    done = typed("serve", served, "--port", "0", "--version", "9", check=5)
    assert "version 9 does not exist" in done.stderr


BENCH = Path(__file__).parents[3] / "bench" / "hostile.py"


@pytest.mark.long
def test_hostile_clients_are_refused_or_cut_and_a_good_one_is_answered_meanwhile(served):
    command = [sys.executable, BENCH, "--pipeline", served, "--seconds", "4", "--rate", "0.1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["wrong"] == {}
    for name in ("quiet", "attacked"):
        assert found[name]["requests"] > 10 and found[name]["failed"] == 0, found[name]
    for name in ("half a head", "half a body"):
        assert set(found["attacks"][name][1]) & {"408", "cut"}, "the oldest are cut by now"
    assert all(" loading " in line or " ended; " in line for line in found["said"]), found["said"]
