"""The store: what is committed is whole, what is not whole does not exist."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headway.errors import DataError, StoreError
from headway.storage import manifest as manifests
from headway.storage.manifest import Counts
from headway.storage.process_identity import host_name
from headway.storage.store import Store
from tests.run_files import save_run

FP = "0123456789abcdef" * 2
KEY = {"stage": "ingest", "span": "2013-01", "config": {"rows": 4096}}


def commit(store: Store, fingerprint: str = FP, key=KEY, text: str = "abc", stage: str = "ingest"):
    with store.open(stage, fingerprint, key) as staging:
        (staging.path / "deep").mkdir()
        (staging.path / "deep" / "a").write_text(text)
        (staging.path / "b").write_text(text * 2)
        return staging.commit(
            result={"rows": (1, 2)}, counts=Counts(read=2, written=2, quarantined=0, filtered=0), seconds=1.23456
        )


def staged(store: Store) -> list[Path]:
    return list(store.staging.iterdir())


def test_what_is_committed_is_found(store):
    made = commit(store)
    found = store.find("ingest", FP)
    assert found == made
    assert found.result == {"rows": [1, 2]}, "a miss gives the same JSON as the hit after it"
    assert (found.key, found.seconds, [e.path for e in found.files]) == (KEY, 1.235, ["b", "deep/a"])
    assert (store.output("ingest", FP) / "deep" / "a").read_text() == "abc"
    assert store.check("ingest", FP) is None
    assert staged(store) == []


def test_others_cannot_look_into_a_new_store_and_one_that_is_there_keeps_its_mode(store, tmp_path):
    assert store.root.stat().st_mode & 0o007 == 0
    there = tmp_path / "there"
    there.mkdir()
    there.chmod(0o755)
    Store(there).create()
    assert there.stat().st_mode & 0o777 == 0o755


def test_what_was_never_made_is_not_found(store):
    assert store.find("ingest", FP) is None and store.check("ingest", FP) is None
    assert Store(store.root / "nowhere").find("ingest", FP) is None
    assert list(Store(store.root / "nowhere").verify()) == []


@pytest.mark.parametrize("error", [DataError("bad row"), KeyboardInterrupt(), RuntimeError()])
def test_a_stage_that_fails_leaves_nothing(store, error):
    with pytest.raises(type(error)), store.open("ingest", FP, KEY) as staging:
        (staging.path / "half").write_text("x")
        raise error
    assert staged(store) == [] and store.find("ingest", FP) is None


def test_a_stage_that_does_not_commit_leaves_nothing(store):
    with store.open("ingest", FP, KEY) as staging:
        (staging.path / "x").write_text("x")
    assert staged(store) == [] and not store.output("ingest", FP).exists()


def damage_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text("{")


def foreign_manifest(folder: Path) -> None:
    value = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(value | {"fingerprint": "ff"}))


DAMAGES = [
    (lambda folder: (folder / "b").unlink(), "b is gone"),
    (lambda folder: (folder / "b").write_text("abc"), "b has 3 bytes instead of 6"),
    (lambda folder: (folder / "manifest.json").unlink(), "its manifest is gone or damaged"),
    (damage_manifest, "its manifest is gone or damaged"),
    (foreign_manifest, "its manifest is that of ingest/ff"),
    (lambda folder: shutil.rmtree(folder / "deep"), "deep/a is gone"),
    (lambda folder: (shutil.rmtree(folder), folder.write_text("a file")), "its manifest is gone or damaged"),
]


@pytest.mark.parametrize("damage, why", DAMAGES)
def test_a_damaged_output_is_not_found_says_why_and_is_replaced(store, damage, why):
    commit(store)
    damage(store.output("ingest", FP))
    assert store.find("ingest", FP) is None
    assert store.check("ingest", FP) == why
    commit(store)
    assert store.find("ingest", FP) is not None
    assert (store.output("ingest", FP) / "b").read_text() == "abcabc"
    assert staged(store) == []


def test_an_output_that_somebody_else_made_meanwhile_is_kept(store):
    with store.open("ingest", FP, KEY) as staging:
        (staging.path / "b").write_text("late")
        first = commit(store, text="first")
        late = staging.commit(result={})
    assert late == first
    assert (store.output("ingest", FP) / "b").read_text() == "firstfirst"
    assert staged(store) == []


def test_a_good_output_that_was_put_in_place_under_our_hands_is_not_lost(store):
    """Both saw the damaged one; the other was faster."""
    commit(store)
    with store.open("ingest", FP, KEY):
        store.objects._put_aside(store.output("ingest", FP), lambda key: key != f"stages/ingest/{FP}")
    assert store.find("ingest", FP) is not None
    assert staged(store) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from headway.storage.store import Store
with Store(Path(sys.argv[1])).open("ingest", "ff", {}) as staging:
    (staging.path / "half").write_text("x")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_a_torn_folder_that_is_swept(store):
    assert subprocess.run([sys.executable, "-c", KILLED, str(store.root)]).returncode == -signal.SIGKILL
    (torn,) = staged(store)
    assert store.find("ingest", "ff") is None
    with store.open("ingest", FP, KEY) as staging:
        assert store.sweep() == [torn]
        assert staged(store) == [staging.path], "what this process is writing stays"
    assert store.sweep() == []


def test_the_registrys_torn_folders_are_swept(store):
    torn = [store.root / part / "flights" / f".aside@{host_name()}@0.0@00" for part in ("models", "serving")]
    for folder in torn:
        folder.mkdir(parents=True)
    assert store.sweep() == torn


def test_a_full_disk_is_a_store_error_that_leaves_nothing(store, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StoreError, match="no space left on device") as error, store.open("ingest", FP, KEY) as staging:
        (staging.path / "x").write_text("x")
        monkeypatch.setattr(os, "fsync", full)
        staging.commit(result={})
    assert error.value.where == str(store.root) and "headway clean" in error.value.fix
    assert staged(store) == [] and store.find("ingest", FP) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_store_without_rights_is_a_store_error(tmp_path):
    (tmp_path / "store").mkdir(mode=0o500)
    with pytest.raises(StoreError, match="permission denied") as error:
        Store(tmp_path / "store").create()
    assert "right to write" in error.value.fix


def test_a_store_that_is_a_file_is_a_store_error(tmp_path):
    (tmp_path / "store").write_text("")
    for root in (tmp_path / "store", tmp_path / "store" / "deeper"):
        with pytest.raises(StoreError, match="a file is in the way") as error:
            Store(root).create()
        assert str(root) in error.value.where


def test_nearest_is_the_output_whose_key_has_most_in_common(store):
    commit(store, "a" * 32, {"span": "1", "config": {"x": 1, "y": 1}})
    commit(store, "b" * 32, {"span": "2", "config": {"x": 1, "y": 2}})
    commit(store, "c" * 32, {"span": "2", "config": {"x": 9, "y": 9}})
    near = store.nearest("ingest", {"span": "2", "config": {"x": 1, "y": 3}})
    assert near.fingerprint == "b" * 32
    assert store.nearest("train", {}) is None and store.nearest("ingest", {}, but=("span",)) is None
    assert [m.fingerprint[0] for m in store.manifests("ingest")] == ["c", "b", "a"], "newest first"
    assert store.nearest("ingest", {}).fingerprint == "c" * 32, "the newest of equals"


def test_manifests_that_change_are_read_again(store):
    commit(store)
    assert len(store.manifests("ingest")) == 1
    damage_manifest(store.output("ingest", FP))
    assert store.manifests("ingest") == []


def test_verify_names_every_file_that_is_not_as_written(store):
    commit(store)
    commit(store, "f" * 32, stage="train")
    assert list(store.verify()) == []
    folder = store.output("ingest", FP)
    (folder / "b").write_text("abcabX")
    (folder / "deep" / "a").unlink()
    foreign_manifest(store.output("train", "f" * 32))
    (store.runs_folder / "broken.json").write_text("{")
    problems = {str(path.relative_to(store.root)): problem for path, problem in store.verify()}
    assert problems.pop(f"stages/ingest/{FP}/b").endswith("its bytes changed")
    assert problems == {
        f"stages/ingest/{FP}/deep/a": "is gone",
        f"stages/train/{'f' * 32}/manifest.json": "is that of train/ff",
        "runs/broken.json": "is not a run's JSON",
    }
    assert store.find("ingest", "f" * 32) is None


def test_runs_are_kept_newest_first(store):
    for name in ("20130102-a", "20130101-b"):
        save_run(store, {"run": name, "pipeline": "p", "stages": []})
    save_run(store, {"run": "20130101-b", "pipeline": "p", "stages": [1]})
    (store.runs_folder / "99.json").write_text("[]")
    assert [run["run"] for run in store.runs()] == ["20130102-a", "20130101-b"]
    assert list(store.runs())[1]["stages"] == [1]
    assert list(Store(store.root / "nowhere").runs()) == []


def test_an_output_of_another_format_is_not_replaced(store):
    commit(store)
    path = store.output("ingest", FP) / manifests.NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2}))
    with pytest.raises(StoreError, match="in format 2"):
        commit(store)
    assert json.loads(path.read_text())["format"] == 2
