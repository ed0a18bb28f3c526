"""Locks: one holder at a time, however the one before went."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from headway.errors import Locked, StoreError
from headway.storage import locks, process_identity
from headway.storage.locks import Lock as AnyLock
from headway.storage.locks import describe
from headway.storage.objects import Folder
from headway.storage.process_identity import boot_id, host_name
from tests.waiting import until


def Lock(path, **options):
    return AnyLock(Folder(path.parent.parent), f"locks/{path.name}", **options)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "locks" / "run-flights.json"


def owned_by(path, *, pid: int, host: str | None = None, expires_in: float = 60.0, **facts) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    value = {"token": "theirs", "host": host or host_name(), "pid": pid, "since": "then", "renewed": "lately"}
    value |= {"boot": boot_id(), "lease": 0.6}
    path.write_text(json.dumps(value | {"expires": time.time() + expires_in} | facts))


HOLDER = """
import socket, sys, time
from pathlib import Path
from headway.storage.locks import Lock
from headway.storage.objects import Folder
path, lease, ahead = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
if ahead:
    real = time.time
    time.time = lambda: real() + float(ahead)
    socket.gethostname = lambda: "elsewhere"
Lock(Folder(path.parent.parent), f"locks/{path.name}", lease_seconds=lease, facts={"run": "theirs"}).acquire()
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def holder(path):
    """Starts a process that holds the lock, of another machine whose clock is so many seconds ahead; ends it afterwards."""
    processes = []

    def start(lease_seconds: float = 60.0, ahead: float | None = None):
        arguments = [sys.executable, "-c", HOLDER, str(path), str(lease_seconds), "" if ahead is None else str(ahead)]
        processes.append(subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True))
        assert processes[-1].stdout.readline() == "held\n"
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_lock_is_held_and_given_up(path):
    with Lock(path, facts={"run": "r1"}).held():
        value = json.loads(path.read_text())
        assert (value["run"], value["pid"], value["host"]) == ("r1", os.getpid(), host_name())
        assert Lock(path).owner()["run"] == "r1"
    assert not path.exists() and Lock(path).owner() is None


def test_it_is_given_up_after_an_error(path):
    with pytest.raises(RuntimeError), Lock(path).held():
        raise RuntimeError
    assert not path.exists()


def test_a_second_taker_hears_who_has_it(path, holder):
    process = holder()
    heard = []
    with pytest.raises(Locked) as error:
        Lock(path).acquire(wait_seconds=0.3, on_wait=heard.append)
    (who,) = heard
    assert f"process {process.pid} on {host_name()} (run theirs) since 20" in who
    assert who in str(error.value) and error.value.where == str(path) and error.value.exit_code == 6


def test_a_waiting_taker_gets_it_when_it_is_free(path):
    first, order = Lock(path), []
    first.acquire()

    def later():
        time.sleep(0.3)
        order.append("given up")
        first.release()

    thread = threading.Thread(target=later)
    thread.start()
    with Lock(path).held(wait_seconds=20):
        order.append("taken")
    thread.join()
    assert order == ["given up", "taken"]


def test_a_killed_holders_lock_is_taken_over_at_once(path, holder):
    process = holder()
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert path.exists()
    with Lock(path).held():  # without a wait
        pass


def test_a_holder_whose_pid_was_used_again_is_gone(path):
    owned_by(path, pid=os.getpid(), process_started="1")
    with Lock(path).held():
        pass


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"pid": "x", "expires": null}'])
def test_a_damaged_lock_file_is_nobodys(path, text):
    path.parent.mkdir()
    path.write_text(text)
    with Lock(path).held():
        assert json.loads(path.read_text())["pid"] == os.getpid()


def test_the_lease_is_renewed_while_it_is_held(path, holder):
    holder(lease_seconds=0.8)
    time.sleep(2.0)
    with pytest.raises(Locked):
        Lock(path).acquire()


def test_a_holder_that_stood_still_is_taken_over_and_finds_out(path):
    """As after a laptop's sleep: the old holder must not renew what is no longer its own."""
    old = Lock(path, lease_seconds=0.4)
    old.acquire()
    old.check()
    owned_by(path, pid=1, host="elsewhere", run="new")
    assert old._lost.wait(120)
    with pytest.raises(Locked, match="taken over by process 1 on elsewhere"):
        old.check()
    old.release()
    assert json.loads(path.read_text())["run"] == "new", "and it does not give up somebody else's lock"


def test_a_check_after_a_long_sleep_looks_before_the_thread_does(path, monkeypatch):
    lock = Lock(path)
    with lock.held():
        late = locks._steady() + 61
        monkeypatch.setattr(locks, "_steady", lambda: late)
        before = path.read_text()
        lock.check()  # nobody took it: it is renewed
        assert path.read_text() != before
        owned_by(path, pid=1, host="elsewhere")
        lock.check()  # its lease is new
        late += 61
        with pytest.raises(Locked, match="was taken over"):
            lock.check()


def test_a_stopped_process_loses_its_lock_and_does_not_take_it_back(path, holder):
    process = holder(lease_seconds=0.6)
    process.send_signal(signal.SIGSTOP)
    with Lock(path, facts={"run": "ours"}).held(wait_seconds=20):
        process.send_signal(signal.SIGCONT)
        time.sleep(1.0)
        assert Lock(path).owner()["run"] == "ours"


def test_a_beat_that_fails_is_tried_again(path, monkeypatch):
    real, failed = Folder.write, []

    def flaky(self, key, data):
        if len(failed) < 2 and threading.current_thread().name.startswith("lease-"):
            failed.append(1)
            raise StoreError("disk full")
        real(self, key, data)

    monkeypatch.setattr(Folder, "write", flaky)
    lock = Lock(path, lease_seconds=0.4)
    with lock.held():
        first = json.loads(path.read_text())["expires"]
        until(lambda: json.loads(path.read_text())["expires"] > first)
        assert len(failed) == 2
        lock.check()


COUNTER = """
import sys
from pathlib import Path
from headway.storage.locks import Lock
from headway.storage.objects import Folder
path, counter = Path(sys.argv[1]), Path(sys.argv[2])
for _ in range(15):
    with Lock(Folder(path.parent.parent), f"locks/{path.name}").held(wait_seconds=60):
        inside = counter.with_name("inside")
        inside.touch(exist_ok=False)      # raises when two are inside
        counter.write_text(str(int(counter.read_text()) + 1))
        inside.unlink()
"""


def test_no_two_processes_are_ever_inside(path, tmp_path):
    counter = tmp_path / "counter"
    counter.write_text("0")
    processes = [subprocess.Popen([sys.executable, "-c", COUNTER, str(path), str(counter)]) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert counter.read_text() == "45"


def test_threads_that_race_for_a_stale_lock(path):
    for _ in range(10):
        owned_by(path, pid=2**22 + 1, expires_in=-1)
        won = []

        def take(barrier, won=won):
            lock = Lock(path)
            barrier.wait()
            with contextlib.suppress(Locked):
                lock.acquire()
                won.append(lock)

        with ThreadPoolExecutor(6) as threads:
            [*threads.map(take, [threading.Barrier(6)] * 6)]
        assert len(won) == 1
        won[0].release()


def test_release_without_a_hold_does_nothing(path):
    Lock(path).release()
    assert not path.exists()


def test_describe_copes_with_little():
    assert describe({}) == "process ? on ? since ?, last heard of ?"


def test_two_machines_of_one_host_name_do_not_take_each_others_locks(path):
    """The other's pid means nothing here, where no process has it."""
    owned_by(path, pid=2**22 + 1, boot="another machine's", expires_in=60)
    with pytest.raises(Locked, match=f"on {host_name()}"):
        Lock(path).acquire()
    owned_by(path, pid=2**22 + 1, boot=process_identity.boot_id(), expires_in=60)
    with Lock(path).held():
        pass


@pytest.mark.parametrize("seconds", [61, 3600])
def test_a_clock_that_jumps_ahead_takes_no_lock_from_its_holder(path, monkeypatch, seconds):
    """The disk's clock is that of the holder's own host."""
    lock = Lock(path, lease_seconds=3)
    with lock.held():
        real = time.time
        monkeypatch.setattr("headway.storage.objects.disk_time", lambda folder: real() + seconds)
        lock.check()
        with pytest.raises(Locked):
            Lock(path).acquire()
        time.sleep(1)
        lock.check()
        with pytest.raises(Locked):
            Lock(path).acquire()
    assert not path.exists()


# --- machines whose clocks differ


@pytest.mark.parametrize("ahead", [-3600, 0, 3600])
def test_a_holder_whose_clock_is_an_hour_off_keeps_its_lock_and_no_longer_than_its_lease(path, holder, ahead):
    process = holder(1.5, ahead)
    assert json.loads(path.read_text())["host"].startswith("elsewhere")
    with pytest.raises(Locked, match="elsewhere"):
        Lock(path).acquire(wait_seconds=2.0)  # it is renewed
    process.kill()
    with Lock(path).held(wait_seconds=10):
        pass


@pytest.mark.parametrize("ahead", [-3600, 3600])
def test_a_taker_whose_clock_is_an_hour_off_takes_nobodys_lock(path, holder, monkeypatch, ahead):
    holder(ahead=0)
    real = time.time
    monkeypatch.setattr("time.time", lambda: real() + ahead)
    with pytest.raises(Locked, match="elsewhere"):
        Lock(path).acquire()
