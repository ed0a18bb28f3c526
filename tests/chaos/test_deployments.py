"""A deployment whose code or pipeline is gone, and a worker of another version of Headway, on a real server and worker."""

import re
import shutil
import sys
import time

import pytest

from flows.orchestration.deploy import COMMAND
from tests.chaos.training import Training
from tests.conftest import ROOT

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(900)]


def test_code_or_a_pipeline_that_is_gone_is_said_and_the_next_run_goes_on(host, deployed, row, tmp_path):
    pipeline = deployed("gone")
    bare = tmp_path / "bare"  # a Python without Headway
    bare.mkdir()
    lost = {
        "the worker's environment has no Headway": COMMAND.replace("python", f"{sys.executable} -I -S", 1),
        "the worker's Python is gone": COMMAND.replace("python", f"{bare}/python", 1),
    }
    for fault, command in lost.items():
        began = time.monotonic()
        ended = host.ended(host.start("retrain/gone", {"command": command}))
        row(fault, ended, time.monotonic() - began, "nothing was done")

    training = Training(host, pipeline)
    away = pipeline.folder.with_name("renamed")
    began = time.monotonic()
    pipeline.folder.rename(away)
    ended = host.ended(training.run)
    row("the pipeline's folder is renamed", ended, time.monotonic() - began, "the steps since its checkpoint")

    began = time.monotonic()
    ended = host.ended(host.start("retrain/gone"))
    row("the pipeline's folder is gone", ended, time.monotonic() - began, "nothing was done")
    message = ended["state"]["message"]
    assert str(pipeline.folder) in message
    assert "headway deploy" in message, "what to type where it has moved for good"

    shutil.rmtree(pipeline.folder, ignore_errors=True)  # what the run's end still wrote
    away.rename(pipeline.folder)
    assert pipeline.problems() == []
    pipeline.fast()
    ended = host.ended(host.start("retrain/gone"), 180)
    assert ended["name"] == "gone 2024-01 to 2024-02: promoted 1", ended["state"]
    pipeline.check(host)


@pytest.fixture
def newer(tmp_path):
    """A folder with a Headway whose manifests have the next format, to be put first on a worker's import path."""
    folder = tmp_path / "newer"
    for name in ("headway", "flows", "tfcore", "beam_jobs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "headway" / "storage" / "manifest.py"
    text, count = re.subn(r"(?m)^FORMAT = 1$", "FORMAT = 2", file.read_text())
    assert count == 1
    file.write_text(text)
    return folder


def test_a_worker_of_a_headway_of_another_format_says_so_and_changes_nothing(host, deployed, newer, row):
    pipeline = deployed("versions")
    pipeline.fast()
    ended = host.ended(host.start("retrain/versions"), 180)
    assert ended["name"].endswith("promoted 1"), ended["state"]
    month = pipeline.land()

    def written():
        return {
            p: p.stat().st_mtime_ns
            for part in ("stages", "models", "serving")
            for p in (pipeline.store / part).rglob("*")
        }

    before = written()
    began = time.monotonic()
    ended = host.ended(host.start("retrain/versions", {"env": {"PYTHONPATH": str(newer)}}))
    fault = "a worker of a Headway of another format than the store's"
    row(fault, ended, time.monotonic() - began, "nothing was done")
    message = ended["state"]["message"]
    assert "in format 1" in message and "reads format 2" in message
    assert "fix: use a Headway that reads this format" in message
    changed = {str(p) for p, time in written().items() if before.get(p) != time and ".staging" not in str(p)}
    assert not changed and before.keys() <= written().keys()

    ended = host.ended(host.start("retrain/versions"), 180)
    assert ended["name"] == f"versions 2024-01 to {month}: promoted 2", ended["state"]
    pipeline.check(host)
