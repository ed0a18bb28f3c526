"""A disk that fills up, and one that becomes read-only, while a run of a real server and worker writes to it."""

import contextlib
import subprocess
import time

import pytest

from flows.records import runs_of
from headway.storage.store import Store
from tests.chaos.training import Training

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(900)]
SIZE = 24 << 20
"""Bytes of the disk: enough for a run."""


def _mount(*arguments):
    return subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True, check=False)


@pytest.fixture
def disk(tmp_path):
    """A folder that is a disk of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = _mount("-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", folder)
    if done.returncode:
        pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        while folder.is_mount():  # a read-only view may still lie over it
            subprocess.run(["umount", "--lazy", folder], check=True)


def _make_read_only(folder):
    """Lay a read-only view of a folder over itself; files that are open for writing would keep the disk from becoming so."""
    for options in (("--bind", folder), ("-o", "remount,bind,ro")):
        done = _mount(*options, folder)
        assert done.returncode == 0, done.stderr


def _filled(file):
    """Take all the room that is left."""
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as out:
        while True:
            out.write(bytes(4096))


def test_a_disk_that_is_full_or_read_only_ends_the_run_and_the_next_ones_go_on(host, deployed, disk, row):
    pipeline = deployed("disks", extra=f"store: {disk}\n")
    pipeline.store = disk

    training = Training(host, pipeline)
    _filled(disk / "filler")
    began = time.monotonic()
    ended = host.ended(training.run)
    seconds = time.monotonic() - began
    assert "make room" in ended["state"]["message"] and ended["name"].endswith(": failed")
    (disk / "filler").unlink()
    assert pipeline.problems() == [] and pipeline.champion() is None
    assert "running" not in {run["state"] for run in pipeline.runs()} or _listed(pipeline) == ["killed"]
    row("the store's disk is full", ended, seconds, training.repeats())

    training = Training(host, pipeline)
    _make_read_only(disk)
    began = time.monotonic()
    ended = host.ended(training.run)
    row("the store becomes read-only", ended, time.monotonic() - began, training.repeats())
    began = time.monotonic()
    ended = host.ended(host.start("retrain/disks"))
    row("the store is read-only", ended, time.monotonic() - began, "nothing was done")
    assert "name a store on a disk that can be written" in ended["state"]["message"]
    assert pipeline.problems() == [] and pipeline.champion() is None  # who may only read still can
    subprocess.run(["umount", "--lazy", disk], check=True)
    assert "running" not in _listed(pipeline)

    pipeline.fast()
    ended = host.ended(host.start("retrain/disks"), 240)
    assert ended["name"] == "disks 2024-01 to 2024-02: promoted 1", ended["state"]
    pipeline.check(host)


def _listed(pipeline):
    """The states of the runs as `headway runs` says them, the newest first."""
    return [run.state for run in runs_of(Store(pipeline.store))]
