"""`headway serve`, typed as a user types it, in a process of its own."""

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest


def ask(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=20) as answer:
        return json.loads(answer.read())


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_champion_is_served_until_a_signal_asks_for_the_end(served, number):
    command = [
        sys.executable,
        "-P",
        "-m",
        "flows.cli",
        "serve",
        str(served),
        "--port",
        "0",
        "--json",
        "--log-rate",
        "1",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            lines = []
            while not lines or lines[-1] != "}\n":
                lines.append(process.stdout.readline())
                assert lines[-1], process.stderr.read()
            started = json.loads("".join(lines))
            assert started["version"] == 1 and ask(started["url"])["model_version_status"][0]["version"] == "1"
            row = {"hour": 7, "carrier": "UA"}
            asked = {"signature_name": "serving_nullable", "instances": [row]}
            assert 0 < ask(f"{started['url']}:predict", asked)["predictions"][0]["probability"] < 1
            began = time.monotonic()
            process.send_signal(number)
            _, errors = process.communicate(timeout=20)
            assert process.returncode == 0 and time.monotonic() - began < 5
            assert "Traceback" not in errors and "ended; 1 request answered by 1 call of the model" in errors, errors
        finally:
            process.kill()
    (log,) = (served / "store" / "requests").rglob("*.jsonl")
    assert json.loads(log.read_text())["instances"] == [row]


def test_a_port_in_use_and_options_that_cannot_be_are_told_before_anything_is_loaded(served_once, typed):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = typed("serve", served_once, "--port", port, check=2)
    assert done.stderr == (
        f"headway serve: 127.0.0.1:{port}: the port is in use\n"
        "  fix: --port names another (0: any that is free), or end the other process\n"
    )
    for options, words in (
        (["--log-rate", "2"], "--log-rate: 2 is not a share from 0 to 1"),
        (["--max-batch", "0"], "--max-batch: 0 is not a number of 1 or more"),
        (["--host", "no.such.host.invalid"], "no.such.host.invalid:8501: is not an address"),
        (["--port", "70000"], "--port: 70000 is not a port"),
    ):
        assert words in typed("serve", served_once, *options, check=2).stderr


def test_without_a_store_or_a_champion_there_is_nothing_to_serve(served, typed):
    assert "there is no store yet" in typed("serve", served, "--set", "store=other", check=5).stderr
    done = typed("serve", served, "--port", "0", "--set", "name=nothing", check=5)
    assert "there is no champion yet" in done.stderr and "headway run promotes one" in done.stderr
    done = typed("serve", served, "--port", "0", "--version", "9", check=5)
    assert "version 9 does not exist or is damaged" in done.stderr
