"""Machines whose clocks differ by an hour agree on leases: the store's clock tells them."""

import json
import subprocess
import sys
import time

import pytest

from headway.errors import Locked, StoreError
from headway.storage.locks import Lock as AnyLock
from headway.storage.objects import FRESH_SECONDS, Folder, Offset, disk_time

HOUR = 3600.0
HOLDER = """
import socket, sys, time
from pathlib import Path
real = time.time
time.time = lambda: real() + float(sys.argv[2])
socket.gethostname = lambda: "elsewhere"
from headway.storage.locks import Lock
from headway.storage.objects import Folder
path = Path(sys.argv[1])
Lock(Folder(path.parent.parent), f"locks/{path.name}", lease_seconds=float(sys.argv[3])).acquire()
print("held", flush=True)
time.sleep(60)
"""


def Lock(path):
    return AnyLock(Folder(path.parent.parent), f"locks/{path.name}")


@pytest.fixture
def holder(tmp_path):
    """holder(hours, lease) -> a process of another machine whose clock is so many hours ahead holds the lock."""
    processes = []

    def start(hours, lease=60.0):
        path = tmp_path / "locks" / "run-flights.json"
        command = [sys.executable, "-c", HOLDER, str(path), str(hours * HOUR), str(lease)]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert processes[-1].stdout.readline() == "held\n"
        return path, processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("hours", [-1, 0, 1])
def test_a_holder_whose_clock_is_an_hour_off_keeps_its_lock_and_no_longer_than_its_lease(holder, hours):
    path, process = holder(hours, lease=1.5)
    assert json.loads(path.read_text())["host"].startswith("elsewhere")
    with pytest.raises(Locked, match="elsewhere"):
        Lock(path).acquire(wait_seconds=2.0)  # it is renewed
    process.kill()
    with Lock(path).held(wait_seconds=10):
        pass


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_taker_whose_clock_is_an_hour_off_takes_nobodys_lock(holder, monkeypatch, hours):
    path, _ = holder(0)
    real = time.time
    monkeypatch.setattr("time.time", lambda: real() + hours * HOUR)
    with pytest.raises(Locked, match="elsewhere"):
        Lock(path).acquire()


def test_the_disks_clock_is_asked_and_ours_is_what_remains_where_it_cannot_be(tmp_path, monkeypatch):
    assert abs(disk_time(tmp_path) - time.time()) < 1
    real = time.time
    monkeypatch.setattr("time.time", lambda: real() + HOUR)
    assert abs(disk_time(tmp_path) - real()) < 1
    assert abs(disk_time(tmp_path / "nowhere") - real() - HOUR) < 1


def test_a_clock_that_is_costly_to_ask_is_asked_now_and_then_and_when_ours_was_set(monkeypatch):
    wall, steady, asked, away = [1000.0], [50.0], [], []

    def measure():
        asked.append(1)
        if away:
            raise StoreError("the bucket is away")
        return wall[0] + 600.0

    monkeypatch.setattr("headway.storage.objects.time.time", lambda: wall[0])
    monkeypatch.setattr("headway.storage.objects.time.monotonic", lambda: steady[0])
    clock = Offset(measure)
    assert clock.time() == 1600.0 == clock.time() and len(asked) == 1
    wall[0], steady[0] = 1100.0, 150.0
    assert clock.time() == 1700.0 and len(asked) == 1
    steady[0] += 1.0  # our clock was set an hour ahead, and the other was not
    wall[0] += HOUR
    away.append(True)
    assert clock.time() == wall[0] + 600.0 and len(asked) == 2, "what was measured last counts"
    assert clock.time() == wall[0] + 600.0 and len(asked) == 2, "a bucket that is away is not asked again at once"
    away.clear()
    steady[0] += FRESH_SECONDS
    wall[0] += FRESH_SECONDS
    assert clock.time() == wall[0] + 600.0 and len(asked) == 3


def test_a_second_more_or_less_is_no_difference():
    assert abs(Offset(lambda: time.time() - 1.5).time() - time.time()) < 0.5


@pytest.mark.parametrize("slept", [0.0, HOUR])
def test_a_slow_answer_or_a_sleep_while_it_is_awaited_is_no_difference(monkeypatch, slept):
    wall, steady = [1000.0], [50.0]

    def measure():
        there = wall[0]
        wall[0] += 30.0 + slept  # a machine that sleeps: its steady clock stands
        steady[0] += 30.0
        return there

    monkeypatch.setattr("headway.storage.objects.time.time", lambda: wall[0])
    monkeypatch.setattr("headway.storage.objects.time.monotonic", lambda: steady[0])
    assert Offset(measure).time() == wall[0], "a lock of a bucket would be half a minute off for five minutes"
