"""A backup that is taken while somebody writes is whole: every pointer in it names a version that is there."""

import threading
from pathlib import Path

import pytest

from headway.errors import ConfigError, StoreError
from headway.monitor import Monitor
from headway.registry import backup
from headway.registry.backup import back_up
from headway.registry.registry import Registry
from headway.storage.store import Store


def _output(store, name, data=b"rows"):
    with store.open("ingest", name, {"of": name}) as staging:
        (staging.path / "part").write_bytes(data)
        staging.commit(result={})


def _whole(root):
    copy = Store(root)
    assert not [*copy.verify()]
    assert not [problem for name in ("flights",) for problem in Registry(copy, name).verify()]
    return copy


def test_a_copy_is_a_store_and_a_second_call_copies_what_is_new(store, three, tmp_path):
    _output(store, "a" * 16)
    store.save_run({"run": "20260101-000000-0000", "pipeline": "flights", "state": "promoted", "stages": []})
    (store.root / "watch").mkdir()
    (store.root / "watch" / "flights.json").write_text("{}")
    done = back_up(store, tmp_path / "copy")
    assert (done.copied, done.there) == (4, 0) and done.bytes
    copy = _whole(tmp_path / "copy")
    assert Registry(copy, "flights").champion().number == 3 and Registry(copy, "flights").history() == three.history()
    assert [run["run"] for run in copy.runs()] == ["20260101-000000-0000"] and (
        copy.root / "watch" / "flights.json"
    ).exists()
    assert (copy.root / "serving" / "flights").is_dir() and not [*(copy.root / "locks").glob("[!.]*")]
    _output(store, "b" * 16)
    three.rollback(reason="worse")
    done = back_up(store, tmp_path / "copy")
    assert (done.copied, done.there) == (1, 4)
    assert Registry(_whole(tmp_path / "copy"), "flights").champion().number == 2


def test_a_damaged_or_half_written_folder_of_the_copy_is_copied_anew_and_one_of_the_store_is_left_out(
    store, three, tmp_path
):
    _output(store, "a" * 16)
    back_up(store, tmp_path / "copy")
    (tmp_path / "copy" / "stages" / "ingest" / ("a" * 16) / "part").unlink()
    (store.root / "models" / "flights" / "4").mkdir()  # a version that is being written
    assert back_up(store, tmp_path / "copy").copied == 1
    assert not (_whole(tmp_path / "copy").root / "models" / "flights" / "4").exists()


def test_a_backup_while_versions_are_promoted_is_whole(store, three, saved_model, tmp_path):
    stop = threading.Event()

    def promote():
        number = 3
        while not stop.is_set() and number < 40:
            number = three.publish(saved_model, {"export": f"x{number}"}).number
            three.promote(number, reason="newer")
            _output(store, f"{number:016d}")

    thread = threading.Thread(target=promote)
    thread.start()
    try:
        for k in range(8):
            folder = tmp_path / (f"copy-{k}" if k % 2 else "copy")
            back_up(store, folder)
            champion = Registry(_whole(folder), "flights").champion()
            assert champion is not None and champion.number >= 3
    finally:
        stop.set()
        thread.join()


def test_a_backup_that_is_cut_off_leaves_the_copy_as_it_was(store, three, saved_model, tmp_path, monkeypatch):
    back_up(store, tmp_path / "copy")
    three.promote(three.publish(saved_model, {"export": "new"}).number, reason="newer")

    def cut_off(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(backup, "replace_text", cut_off)
        back_up(store, tmp_path / "copy")
    assert Registry(_whole(tmp_path / "copy"), "flights").champion().number == 3
    back_up(store, tmp_path / "copy")
    assert Registry(_whole(tmp_path / "copy"), "flights").champion().number == 4


def test_logs_reports_and_requests_are_copied_without_being_held_in_memory(store, three, tmp_path, monkeypatch):
    day = store.root / "requests" / "flights" / "2026-01-01"
    day.mkdir(parents=True)
    (day / "1.jsonl").write_text("{}\n")
    (store.runs_folder / "1.log").write_text("one\n")
    read = []
    there = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path.suffix) or there(path))
    back_up(store, tmp_path / "copy")
    assert (tmp_path / "copy/requests/flights/2026-01-01/1.jsonl").read_text() == "{}\n"
    assert ".json" in read and not {".jsonl", ".log"} & {*read}
    (store.runs_folder / "1.log").write_text("one\ntwo\n")
    assert back_up(store, tmp_path / "copy").bytes == len("one\ntwo\n"), "nothing else is new"
    assert (tmp_path / "copy/runs/1.log").read_text() == "one\ntwo\n"


def test_a_file_that_goes_while_it_is_copied_is_left_out(store, three, tmp_path, monkeypatch):
    gone = [store.root / "watch" / name for name in ("a.json", "b.log")]
    there = backup._files
    monkeypatch.setattr(backup, "_files", lambda store: [*there(store), *gone])
    back_up(store, tmp_path / "copy")
    assert not (tmp_path / "copy" / "watch").exists() or not [*(tmp_path / "copy" / "watch").iterdir()]


def test_a_copy_in_the_store_itself_and_a_bucket_are_refused(store, tmp_path):
    for folder in (store.root / "copy", store.root, tmp_path):
        with pytest.raises(ConfigError, match="would lie in each other"):
            back_up(store, folder)
    bucket = Store(tmp_path / "bucket")
    bucket.objects.remote = True
    with pytest.raises(ConfigError, match="is a bucket"):
        back_up(bucket, tmp_path / "copy")


def test_a_file_and_a_folder_of_other_things_are_refused(store, tmp_path):
    other = tmp_path / "photos"
    other.mkdir()
    back_up(store, other)  # an empty one is welcome, and one that has a copy
    back_up(store, other)
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "letter.txt").write_text("mine")
    with pytest.raises(ConfigError, match="neither empty nor a copy of a store"):
        back_up(store, documents)
    with pytest.raises(ConfigError, match="is a file"):
        back_up(store, documents / "letter.txt")
    assert [path.name for path in documents.iterdir()] == ["letter.txt"]


def test_a_store_that_cannot_be_written_is_copied_and_that_clean_does_not_know_is_said(
    store, three, tmp_path, monkeypatch
):
    def refuse(*_, **__):
        raise StoreError("cannot be written: read-only file system", where="locks")

    monkeypatch.setattr("headway.registry.leases.lease", refuse)
    monitor, said = Monitor(), []
    monitor.warn = said.append
    assert back_up(store, tmp_path / "copy", monitor).copied == 3
    _whole(tmp_path / "copy")
    assert said == [
        "headway clean does not know that this store is being read: locks: cannot be written: read-only file system"
    ]
