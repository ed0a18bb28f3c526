"""Which process owns what, and whether it lives."""

import os
import subprocess
import sys
import time

import pytest

from headway.storage import process_identity
from tests.waiting import until


@pytest.fixture
def dead() -> int:
    """The pid of a process that has ended and was waited for."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_this_process_lives_and_an_ended_one_does_not(dead):
    assert process_identity.is_alive(os.getpid())
    assert not process_identity.is_alive(dead)
    assert process_identity.is_alive(1)  # somebody else's, mostly
    assert not any(process_identity.is_alive(pid) for pid in (0, -1, 2**40))


def test_a_pid_that_was_used_again_is_another_process():
    began = process_identity.start_time(os.getpid())
    assert process_identity.is_alive(os.getpid(), began)
    if began:
        assert not process_identity.is_alive(os.getpid(), str(int(began) - 1))


@pytest.mark.skipif(not process_identity.start_time(os.getpid()), reason="needs /proc")
def test_a_killed_child_that_nobody_waited_for_is_dead():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert process_identity.is_alive(process.pid)
        process.kill()
        until(lambda: not process_identity.is_alive(process.pid))
        os.kill(process.pid, 0)  # still there, as a zombie
    finally:
        process.kill()
        process.wait()


def test_a_mark_belongs_to_its_writer(tmp_path, dead):
    ours = tmp_path / process_identity.temporary_name("ingest-ff")
    ours.mkdir()
    assert ours.name.startswith("ingest-ff@")
    assert not process_identity.is_abandoned(ours)
    assert ours.name != process_identity.temporary_name("ingest-ff")
    assert process_identity.is_abandoned(tmp_path / f"ingest-ff@{process_identity.host_name()}@{dead}.1@00")
    assert process_identity.is_abandoned(tmp_path / f"ingest-ff@{process_identity.host_name()}@{dead}@00")
    assert process_identity.is_abandoned(tmp_path / f"ingest-ff@{process_identity.host_name()}@what@00")


def test_another_hosts_folder_is_abandoned_after_a_day_without_a_change(tmp_path):
    folder = tmp_path / "ingest-ff@elsewhere@1.2@00"
    (folder / "deep").mkdir(parents=True)
    shard = folder / "deep" / "shard"
    shard.write_text("")
    assert not process_identity.is_abandoned(folder)
    old = time.time() - 25 * 3600
    for path in (folder, folder / "deep"):
        os.utime(path, (old, old))
    assert not process_identity.is_abandoned(folder)  # a shard in it still grows
    os.utime(shard, (old, old))
    assert process_identity.is_abandoned(folder)


def test_containers_that_share_a_hosts_name_are_other_places(monkeypatch):
    plain = process_identity.host_name()
    monkeypatch.setattr(process_identity, "_namespace", lambda: "+4026532000")
    assert process_identity.host_name() != plain


def test_a_folder_of_another_machine_of_this_host_name_is_left_alone(tmp_path):
    folder = tmp_path / f"ingest-ff@{process_identity.host_name()}@{2**22 + 1}.1.otherone@00"
    folder.mkdir()
    assert not process_identity.is_abandoned(folder)


def test_the_name_of_a_process_says_whether_it_lives_where_its_pid_means_something(dead):
    ours, place = process_identity.process_name(os.getpid()), process_identity.host_name()
    assert ours.startswith(f"{place}@{os.getpid()}.")
    assert process_identity.is_alive_by_name(ours)
    assert process_identity.is_alive_by_name(f"{place}@{dead}.1") is False
    for unknown in ("", str(os.getpid()), f"elsewhere@{os.getpid()}.1", f"{place}@{os.getpid()}.1.otherone"):
        assert process_identity.is_alive_by_name(unknown) is None, unknown
