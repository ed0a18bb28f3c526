"""What may be thrown away, and what never."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from headway.errors import Locked, StoreError
from headway.registry.gc import CHECKPOINT_SECONDS, collect, removal_lock, remove, run_lease
from headway.registry.leases import leased_version, overlap
from headway.registry.registry import Registry
from headway.storage.store import Store
from tests.run_files import save_run


def output(store: Store, stage: str, fingerprint: str) -> None:
    with store.open(stage, fingerprint, {}) as staging:
        (staging.path / "data").write_bytes(b"x" * 100)
        staging.commit(result={})


def run(store: Store, name: str, *outputs: tuple[str, str], pipeline: str = "flights") -> None:
    stages = [{"stage": stage, "fingerprint": fingerprint} for stage, fingerprint in outputs]
    save_run(store, {"run": name, "pipeline": pipeline, "stages": stages})


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
    with removal_lock(store) as remover:
        remove(remover, collect(store, keep_runs=0))
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


def test_what_ends_while_garbage_is_looked_for_is_none(store, monkeypatch):
    children = store.children
    monkeypatch.setattr(store, "children", lambda at: ["gone"] if at == store.checkpoints else children(at))
    assert collect(store, keep_runs=1) == []
    assert store.size(store.runs_folder / "gone.json") == 0


HOLDER = """
import sys, time
from pathlib import Path
from headway.registry import gc, leases
from headway.registry.registry import Registry
from headway.storage.store import Store
store = Store(Path(sys.argv[1]))
what = {
    "run": lambda: gc.run_lease(store, "taxi", "theirs"),
    "gc": lambda: gc.removal_lock(store),
    "reader": lambda: leases.leased_version(Registry(store, "flights"), "2", "predict"),
}[sys.argv[2]]
with what():
    print("held", flush=True)
    time.sleep(60)
"""


@contextlib.contextmanager
def another_process(store, what):
    """Holds something until it is killed; yields the process."""
    arguments = [sys.executable, "-c", HOLDER, str(store.root), what]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_nothing_is_collected_while_another_process_runs_a_pipeline(store):
    """Its outputs have no run yet that points at them."""
    output(store, "ingest", fp("a"))
    with another_process(store, "run") as process:
        with pytest.raises(Locked, match="run theirs") as error, removal_lock(store):
            raise AssertionError("unreachable")
        assert "uses" not in str(error.value) and store.lock("gc").owner() is None
        process.send_signal(signal.SIGSTOP)
        owner = next(store.locks.glob("use-*.json"))
        owner.write_text(json.dumps(json.loads(owner.read_text()) | {"expires": time.time() - 999}))
        with pytest.raises(Locked, match="run theirs"), removal_lock(store):
            raise AssertionError("a process that stands still lives")
    with removal_lock(store) as remover:  # it was killed
        assert len(remove(remover, collect(store, keep_runs=1))) == 1
    assert list(store.locks.glob("*use-*")) == [], "of the dead nothing stays, nor a guard"


def test_a_run_does_not_begin_while_another_process_collects(store):
    waited = []
    with another_process(store, "gc") as process:
        began = run_lease(store, "taxi", "mine", wait_seconds=0.3, on_wait=waited.append)
        with pytest.raises(Locked, match="command clean") as error, began:
            raise AssertionError("unreachable")
        assert "headway clean has ended" in error.value.fix and len(waited) == 1
        threading.Timer(0.5, process.kill).start()
        began = run_lease(store, "taxi", "mine", wait_seconds=30)
        with began, pytest.raises(Locked, match="run mine"), removal_lock(store):
            raise AssertionError("unreachable")


def test_a_reader_does_not_wait_for_a_collection_of_other_things(store, three):
    with removal_lock(store), leased_version(three, "2", "predict") as version:
        assert version.number == 2


@pytest.fixture
def five(registry, saved_model):
    """Five versions: 4 is the champion, 1 is `stable`; the others were never promoted."""
    for _ in range(5):
        registry.publish(saved_model, {})
    registry.promote(4, reason="")
    registry.set_alias("stable", 1)
    return registry


def test_old_versions_go_when_asked_and_never_one_that_a_pointer_names(store, five):
    def old(keep):
        return [item.path.name for item in collect(store, keep_runs=1, keep_versions=keep)]

    assert old(None) == old(5) == [] and old(2) == old(0)[:2] == ["2", "3"] and old(0) == ["2", "3", "5"]
    five.remove_alias("stable")
    five.promote(5, reason="")
    assert old(0) == ["1", "2", "3"], "the champions before stay: a rollback goes back to them"
    with removal_lock(store) as remover:
        removed = remove(remover, collect(store, keep_runs=1, keep_versions=0), keep_versions=0)
    assert [item.path.name for item in removed] == ["1", "2", "3"] and [v.number for v in five.versions()] == [4, 5]
    assert list(five.verify()) == [] and five.rollback().version == 4
    assert five.publish(five.version(4).saved_model, {}).number == 6


def test_a_pointer_that_moves_between_the_plan_and_the_removal_is_heeded(store, five):
    with removal_lock(store) as remover:
        planned = collect(store, keep_runs=1, keep_versions=0)
        five.promote(3, reason="meanwhile")
        five.set_alias("shadow", 2)
        removed = remove(remover, planned, keep_versions=0)
    assert [item.path.name for item in planned] == ["2", "3", "5"] and [item.path.name for item in removed] == ["5"]


def test_what_another_process_reads_is_left_until_it_ends_or_dies(store, five):
    def collected():
        with removal_lock(store) as remover:
            removed = remove(remover, collect(store, keep_runs=1, keep_versions=0), keep_versions=0)
            return [item.path.name for item in removed]

    with another_process(store, "reader"):
        assert collected() == ["3", "5"]
    assert collected() == ["2"]


def test_a_reader_that_comes_while_its_version_is_removed_waits_and_is_told(store, five, monkeypatch):
    """The remover was first: it looked at the leases before there was one."""
    answers = []

    def late():
        try:
            with leased_version(five, "5", "predict"):
                answers.append("read")
        except StoreError as error:
            answers.append(error.problem)

    thread = threading.Thread(target=late)
    discard = Store.discard

    def slow(self, path):
        thread.start()
        time.sleep(0.5)
        assert answers == [], "it waits"
        discard(self, path)

    with removal_lock(store) as remover:
        garbage = [item for item in collect(store, keep_runs=1, keep_versions=0) if item.path.name == "5"]
        monkeypatch.setattr(Store, "discard", slow)
        assert remove(remover, garbage, keep_versions=0) == garbage
    thread.join(timeout=30)
    assert answers == ["version 5 does not exist"]


def test_a_reader_that_follows_a_pointer_reads_what_it_moved_to(store, five, monkeypatch):
    """The version that it looked up is gone by the time that it is held."""
    number = Registry.number
    looks = iter([2])
    five.set_alias("shadow", 2)

    def stale(self, name):
        found = next(looks, None)
        if found is None:
            return number(self, name)
        self.set_alias("shadow", 3)
        self.store.discard(self.folder / "2")
        return found

    monkeypatch.setattr(Registry, "number", stale)
    with leased_version(five, "shadow", "predict") as version:
        assert version.number == 3


def test_who_may_not_write_may_read(store, five, monkeypatch):
    def refuse(*_, **__):
        raise StoreError("cannot be written: permission denied", where="locks")

    monkeypatch.setattr("headway.registry.leases.lease", refuse)
    notes = []
    with leased_version(five, "champion", "predict", note=notes.append) as version:
        assert version.number == 4
    wanted = ["headway clean does not know that version 4 is being read: locks: cannot be written: permission denied"]
    assert notes == wanted


@pytest.mark.parametrize(
    ("some", "others", "meet"),
    [
        (["models/a/1"], ["models/a/1"], True),
        (["models/a/1"], ["models/a"], True),
        (["models/a"], ["models/a/1"], True),
        (["models/a/1"], ["models/a/11", "models/b/1", "stages"], False),
        ([], ["stages"], False),
    ],
)
def test_paths_overlap_part_by_part(some, others, meet):
    assert overlap(some, others) is meet


def test_a_removal_that_is_cut_off_leaves_nothing_that_looks_damaged(store, five, monkeypatch):
    output(store, "ingest", fp("a"))
    monkeypatch.setattr("headway.storage.store.remove", lambda path: None)
    for path in (five.folder / "5", store.output("ingest", fp("a"))):
        store.discard(path)
    assert [v.number for v in five.versions()] == [1, 2, 3, 4] and list(store.all_outputs()) == []
    assert list(five.verify()) == [] == list(store.verify())


def test_removing_frees_the_bytes_that_were_announced(store):
    output(store, "ingest", fp("a"))
    run(store, "1")
    with removal_lock(store) as remover:
        garbage = collect(store, keep_runs=0)
        assert remove(remover, garbage) == garbage and sum(item.bytes for item in garbage) > 100
        assert list(store.all_outputs()) == [] and not list(store.runs())
        assert collect(store, keep_runs=0) == []
        assert remove(remover, garbage) == garbage, "gone already: no error"
