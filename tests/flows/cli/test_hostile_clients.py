"""`headway serve` under bench/hostile.py, in its short form: no timing bound, only who is answered how."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
