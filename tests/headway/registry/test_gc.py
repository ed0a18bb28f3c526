"""What may be thrown away, and what never."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from headway.errors import Locked
from headway.registry.gc import CHECKPOINT_SECONDS, alone, collect, not_collecting, remove
from headway.registry.registry import Registry
from headway.storage.locks import Lock
from headway.storage.store import Store


def output(store: Store, stage: str, fingerprint: str) -> None:
    with store.open(stage, fingerprint, {}) as staging:
        (staging.path / "data").write_bytes(b"x" * 100)
        staging.commit(result={})


def run(store: Store, name: str, *outputs: tuple[str, str], pipeline: str = "flights") -> None:
    stages = [{"stage": stage, "fingerprint": fingerprint} for stage, fingerprint in outputs]
    store.save_run({"run": name, "pipeline": pipeline, "stages": stages})


def fp(digit: str) -> str:
    return digit * 32


def gone(store: Store, keep_runs: int) -> list[str]:
    return sorted(str(item.path.relative_to(store.root)) for item in collect(store, keep_runs=keep_runs))


def test_outputs_of_kept_runs_stay(store):
    for digit in "abcd":
        output(store, "ingest", fp(digit))
    run(store, "1", ("ingest", fp("a")))
    run(store, "2", ("ingest", fp("b")))
    run(store, "3", ("ingest", fp("b")), ("ingest", fp("c")))
    assert gone(store, 3) == [f"stages/ingest/{fp('d')}"]
    assert gone(store, 2) == ["runs/1.json", f"stages/ingest/{fp('a')}", f"stages/ingest/{fp('d')}"]


def test_runs_are_counted_for_each_pipeline(store):
    run(store, "1", pipeline="taxi")
    run(store, "2")
    run(store, "3")
    assert gone(store, 1) == ["runs/2.json"]


@pytest.fixture
def champion(store, tmp_path) -> Registry:
    """Version 1, made by run 1 and served under 1; no other run is kept."""
    for stage, digit in (("train", "a"), ("export", "b"), ("train", "c")):
        output(store, stage, fp(digit))
    run(store, "1", ("train", fp("a")), ("export", fp("b")))
    run(store, "2", ("train", fp("c")))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "saved_model.pb").write_bytes(b"graph")
    registry = Registry(store, "flights")
    registry.publish(tmp_path / "model", {"run": "1", "train": fp("a"), "lineage": [{"export": fp("b")}]})
    registry.promote(1, reason="first")
    return registry


def test_what_a_version_points_at_stays_with_the_run_that_made_it(store, champion):
    assert gone(store, 1) == []
    assert gone(store, 0) == ["runs/2.json", f"stages/train/{fp('c')}"]
    remove(store, collect(store, keep_runs=0))
    assert champion.champion().number == 1 and list(champion.verify()) == []
    assert store.find("train", fp("a")) is not None and "1" in [run["run"] for run in store.runs()]


def test_versions_that_are_not_the_champion_stay_too(store, champion, tmp_path):
    champion.publish(tmp_path / "model", {"train": fp("c")})
    assert gone(store, 0) == ["runs/2.json"]


def test_of_the_serving_copies_the_newest_two_and_the_champions_stay(store, champion, tmp_path):
    for number in (2, 3, 4):
        champion.publish(tmp_path / "model", {})
        champion.promote(number, reason="")
    assert gone(store, 2) == ["serving/flights/1", "serving/flights/2"]
    (champion.serving / "99").mkdir()  # by hand
    (champion.serving / "100").mkdir()
    assert gone(store, 2) == [f"serving/flights/{n}" for n in (1, 2, 3)]


def test_a_hard_link_frees_nothing(store, champion, tmp_path):
    for number in (2, 3):
        champion.publish(tmp_path / "model", {})
        champion.promote(number, reason="")
    (copy,) = collect(store, keep_runs=2)
    assert copy.bytes == 0 and copy.why == "an older serving copy"


def test_checkpoints_of_a_training_that_did_not_end_stay_for_two_weeks(store):
    output(store, "train", fp("a"))
    run(store, "1", ("train", fp("a")))
    for digit in "abc":
        (store.checkpoints / fp(digit)).mkdir()
        (store.checkpoints / fp(digit) / "weights").write_text("w")
    old = time.time() - CHECKPOINT_SECONDS - 60
    os.utime(store.checkpoints / fp("c"), (old, old))
    os.utime(store.checkpoints / fp("c") / "weights", (old, old))
    os.utime(store.checkpoints / fp("b"), (old, old))  # but not what lies in it
    found = {item.path.name: item.why for item in collect(store, keep_runs=1)}
    assert found == {fp("a"): "its training is done", fp("c"): "no training went on from it for 14 days"}


RUNNER = """
import sys, time
from pathlib import Path
from headway.storage.locks import Lock
Lock(Path(sys.argv[1]), facts={"run": "theirs"}).acquire()
print("held", flush=True)
time.sleep(60)
"""


def test_nothing_is_collected_while_another_process_runs_a_pipeline(store):
    """Its outputs have no run yet that points at them."""
    output(store, "ingest", fp("a"))
    path = store.locks / "run-taxi.json"
    process = subprocess.Popen([sys.executable, "-c", RUNNER, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(Locked, match="run theirs"):
            collect(store, keep_runs=1)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    with Lock(store.locks / "run-flights.json").held():  # as the command itself does
        assert gone(store, 1) == [f"stages/ingest/{fp('a')}"]


def test_a_run_does_not_begin_while_somebody_collects(store):
    """Both ways round: who comes second sees who came first."""
    output(store, "ingest", fp("a"))
    waited = []
    with alone(store) as lock:
        with store.lock("run-taxi").held(), pytest.raises(Locked, match="command gc"):
            not_collecting(store, wait_seconds=0.0, on_wait=waited.append)
        assert len(waited) == 1 and "command gc" in waited[0]
        remove(store, collect(store, keep_runs=0), check=lock.check)
    not_collecting(store, wait_seconds=0.0, on_wait=waited.append)
    assert len(waited) == 1
    with Lock(store.locks / "run-taxi.json").held():  # ours, so `collect` alone would go on
        owner = store.lock("run-taxi").owner() | {"host": "elsewhere"}
        store.replace(store.locks / "run-taxi.json", json.dumps(owner))
        with pytest.raises(Locked), alone(store):
            raise AssertionError("unreachable")
        assert store.lock("gc").holder() is None


def test_removing_frees_the_bytes_that_were_announced(store):
    output(store, "ingest", fp("a"))
    run(store, "1")
    garbage = collect(store, keep_runs=0)
    assert remove(store, garbage) == sum(item.bytes for item in garbage) > 100
    assert list(store.all_outputs()) == [] and store.runs() == []
    assert collect(store, keep_runs=0) == []
    assert remove(store, garbage) > 0, "gone already: no error"
