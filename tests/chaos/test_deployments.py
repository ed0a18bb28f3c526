"""A deployment whose code or pipeline is gone, and a worker of another version of Headway, on a real server and worker."""

import json
import re
import shutil
import subprocess
import sys
import time

import pytest

from tests.chaos.host import ROOT
from tests.chaos.training import Training

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(900)]
STARTS = "-P -m flows.launcher prefect.engine"


def _start(host, deployment, **variables):
    """A flow run with job variables of its own; its id."""
    id = host.ask(f"/deployments/name/{deployment}")["id"]
    body = {"state": {"type": "SCHEDULED"}, "job_variables": variables}
    return host.ask(f"/deployments/{id}/create_flow_run", body)["id"]


def test_code_or_a_pipeline_that_is_gone_is_said_and_the_next_run_goes_on(host, deployed, row, tmp_path):
    pipeline = deployed("gone")
    bare = tmp_path / "bare"  # a Python without Headway
    bare.mkdir()
    lost = {
        "the worker's environment has no Headway": (f"{sys.executable} -I -S {STARTS}", "exited with status code"),
        "the worker's Python is gone": (f"{bare}/python {STARTS}", "there is no program"),
    }
    for fault, (command, words) in lost.items():
        began = time.monotonic()
        ended = host.ended(_start(host, "retrain/gone", command=command))
        assert ended["state"]["type"] == "CRASHED" and words in (ended["state"]["message"] or ""), ended["state"]
        row(
            fault,
            f"Crashed: {words}",
            time.monotonic() - began,
            "nothing was done",
        )

    training = Training(host, pipeline)
    away = pipeline.folder.with_name("renamed")
    began = time.monotonic()
    pipeline.folder.rename(away)
    ended = host.ended(training.run)
    seconds = time.monotonic() - began
    assert ended["state"]["type"] == "FAILED", ended["state"]
    assert re.search(rf"{pipeline.folder}|no such file", ended["state"]["message"], re.IGNORECASE), ended["state"]
    row(
        "the pipeline's folder is renamed, in training",
        "Failed: no such file",
        seconds,
        "the steps since its checkpoint",
    )

    began = time.monotonic()
    ended = host.ended(host.start("retrain/gone"))
    seconds = time.monotonic() - began
    message = ended["state"]["message"]
    assert ended["state"]["type"] == "FAILED" and "no such file" in message and str(pipeline.folder) in message
    assert "headway deploy" in message, "what to type where it has moved for good"
    row("the pipeline's folder is gone before the run", "Failed: no such file", seconds, "nothing was done")

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


def test_a_worker_of_an_older_headway_says_so_and_changes_nothing(host, deployed, newer, row):
    pipeline = deployed("versions")
    pipeline.fast()
    new = {"env": {"PYTHONPATH": str(newer)}}
    ended = host.ended(host.start("retrain/versions"), 180)
    assert ended["name"].endswith("promoted 1"), ended["state"]

    # the newer one goes on where the older one was
    ended = host.ended(_start(host, "retrain/versions", **new), 180)
    assert "is the champion already" in ended["state"]["message"], ended["state"]
    assert all(stage["cached"] for stage in pipeline.runs()[-1]["stages"])
    month = pipeline.land()
    ended = host.ended(_start(host, "retrain/versions", **new), 180)
    assert ended["name"] == f"versions 2024-01 to {month}: promoted 2", ended["state"]
    manifests = (pipeline.store / "stages").glob("*/*/manifest.json")
    assert {json.loads(path.read_text())["format"] for path in manifests} == {1, 2}, "outputs of both"

    def written():
        return {
            p: p.stat().st_mtime_ns
            for part in ("stages", "models", "serving")
            for p in (pipeline.store / part).rglob("*")
        }

    before = written()
    began = time.monotonic()
    ended = host.ended(host.start("retrain/versions"))
    seconds = time.monotonic() - began
    message = ended["state"]["message"]
    assert ended["state"]["type"] == "FAILED" and "was written by Headway" in message and "in format 2" in message
    assert "fix: update Headway on this machine" in message
    changed = {str(p) for p, time in written().items() if before.get(p) != time and ".staging" not in str(p)}
    assert not changed and before.keys() <= written().keys()
    ended = host.ended(_start(host, "retrain/versions", **new), 180)
    assert "is the champion already" in ended["state"]["message"], ended["state"]
    verify = [sys.executable, "-P", "-m", "flows.cli", "verify", str(pipeline.folder)]
    done = subprocess.run(verify, env=host.env | new["env"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    outputs = [stage["fingerprint"] for run in pipeline.runs() for stage in run["stages"] if not stage["cached"]]
    assert len(outputs) == len(set(outputs)), "nothing was done twice"
    row(
        "a worker of an older Headway than the store's",
        "Failed: was written by Headway ...",
        seconds,
        "nothing was done",
    )
