"""kill -9 of `headway run` after each step that it does: the next run goes on, and ends as one that was never killed."""

import json
import re
import signal
import subprocess
import sys
import time

import pytest

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]
RAN = re.compile(r"  \w.*?\s{2,}[\d.]+ m?s  ")
"""A line about a step that ran, as a terminal shows it."""
DELAYS = (0.0, 0.05, 0.1, 0.15, 0.2)
"""Seconds from that line to the kill, in turn: some steps are over by then, so that the kills are fewer than the steps."""


def _killed_until_done(project):
    """Run again and again, each run killed after one more step than was there, some time into the next; (kills, exit code)."""
    for kills in range(40):
        command = [sys.executable, "-P", "-m", "flows.cli", "run", str(project)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            for line in process.stderr:
                if RAN.match(line):
                    time.sleep(DELAYS[kills % len(DELAYS)])
                    process.kill()
        if process.returncode != -signal.SIGKILL:
            return kills, process.returncode
    raise AssertionError("no run came to its end")


def test_a_run_killed_after_every_step_promotes_what_one_that_lived_does(project, headway, tmp_path, monthly):
    lived = tmp_path / "lived"
    lived.mkdir()
    (lived / "pipeline.yaml").write_text((project / "pipeline.yaml").read_text())
    (lived / "data").symlink_to(monthly)
    record = json.loads(headway("run", lived, "--json", check=0).stdout)

    kills, code = _killed_until_done(project)
    assert code == 0 and kills >= len(DELAYS)
    runs = json.loads(headway("runs", project, "--json", check=0).stdout)
    assert runs[0]["state"] in ("promoted", "already champion") and runs[0]["metrics"] == record["metrics"]
    (listed,) = json.loads(headway("models", project, "--json", check=0).stdout).values()
    assert listed["champion"] == 1 and [event["version"] for event in listed["history"]] == [1]
    assert "every byte is as written" in headway("verify", project, check=0).stdout


def test_runs_killed_in_a_store_with_a_champion_lose_none_of_what_was_there(project, headway):
    headway("run", project, "--until", "2013-03", check=0)
    (before,) = json.loads(headway("models", project, "--json", check=0).stdout).values()
    kills, code = _killed_until_done(project)
    assert code in (0, 4) and kills >= len(DELAYS)
    (after,) = json.loads(headway("models", project, "--json", check=0).stdout).values()
    assert all(version in after["versions"] for version in before["versions"])
    assert after["history"][: len(before["history"])] == before["history"]
    assert "every byte is as written" in headway("verify", project, check=0).stdout
    steps = json.loads(headway("plan", project, "--json", check=0).stdout)["steps"]
    assert all(step["cached"] for step in steps)
