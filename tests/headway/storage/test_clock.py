"""The store's clock, by which machines whose clocks differ agree on leases (test_locks.py)."""

import time

import pytest

from headway.errors import StoreError
from headway.storage.objects import FRESH_SECONDS, CorrectedClock, disk_time

HOUR = 3600.0


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
    clock = CorrectedClock(measure)
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
    assert abs(CorrectedClock(lambda: time.time() - 1.5).time() - time.time()) < 0.5


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
    assert CorrectedClock(measure).time() == wall[0], "a lock of a bucket would be half a minute off for five minutes"
