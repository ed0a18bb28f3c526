"""Files fetched while they are being read: in order, checked, and an error names the object."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headway.errors import Cancelled, StoreError
from headway.storage.prefetch import RemoteFiles, Stager
from headway.storage.store import Store
from tests.waiting import until

FP = "0123456789abcdef" * 2
SIZE = 1000


def ingest(store: Store, shards: int) -> None:
    with store.open("ingest", FP, {"stage": "ingest"}) as staging:
        for number in range(shards):
            (staging.path / f"{number:02d}").write_bytes(bytes([number]) * SIZE)
        staging.commit(result={})


def request(store: Store, names: list[str]) -> list[Path]:
    return [store.output("ingest", FP) / name for name in names]


def remote(store: Store, shards: int) -> tuple[RemoteFiles, list[str]]:
    names = [f"{number:02d}" for number in range(shards)]
    found = store.localize(request(store, names), later=True)
    assert found is not None
    return found, [str(store.output("ingest", FP) / name) for name in names]


def here(store: Store) -> set[str]:
    folder = store.output("ingest", FP)
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def test_only_the_shards_that_are_asked_for_come_and_nothing_before_they_are(machine):
    ingest(machine("a"), 6)
    b = machine("b")
    found = b.localize(request(b, ["01", "03"]), later=True)
    assert here(b) == set()
    with Stager(found) as stager:
        path = b.output("ingest", FP) / "03"
        assert stager.ensure(str(path)) == str(path)
        assert path.read_bytes() == b"\x03" * SIZE and here(b) == {"03"}
        assert stager.ensure("/elsewhere/05") == "/elsewhere/05", "no file of the store"
    assert b.localize(request(b, ["01", "03"])) is None
    assert here(b) == {"01", "03"}
    assert machine("c").localize([Path("/elsewhere")], later=True) is None


def test_a_local_store_has_nothing_to_fetch(tmp_path):
    store = Store(tmp_path)
    store.create()
    ingest(store, 2)
    assert store.localize(request(store, ["00"]), later=True) is None


def test_what_comes_next_is_fetched_ahead_in_order(machine):
    ingest(machine("a"), 8)
    b = machine("b")
    found, paths = remote(b, 8)
    order = [5, 2, 7, 0, 1, 3, 4, 6]
    with Stager(found, gets=1) as stager:
        stager.ahead(paths[i] for i in order)
        for i in order:
            stager.ensure(paths[i])
            # one get at a time: what comes earlier in the order is here
            assert {f"{j:02d}" for j in order[: order.index(i) + 1]} <= here(b)
        until(lambda: len(here(b)) == 8)
        assert stager.fetched == 8 and stager.fetched_bytes == 8 * SIZE


def test_a_file_that_is_here_is_used_when_its_bytes_are_right_and_fetched_again_when_not(machine):
    ingest(machine("a"), 3)
    b = machine("b")
    found, paths = remote(b, 3)
    with Stager(found) as stager:
        for path in paths:
            stager.ensure(path)
    (b.output("ingest", FP) / "01").write_bytes(b"\x07" * SIZE)
    (b.output("ingest", FP) / "02").write_bytes(b"short")
    with Stager(found) as stager:
        for number, path in enumerate(paths):
            stager.ensure(path)
            assert (b.output("ingest", FP) / f"{number:02d}").read_bytes() == bytes([number]) * SIZE
        assert stager.fetched == 2
        (b.output("ingest", FP) / "00").unlink()
        stager.ensure(paths[0])
        assert stager.fetched == 3, "the working copy may be deleted while it is used"


def test_a_damaged_or_missing_object_is_named_and_the_others_come(machine):
    a = machine("a")
    ingest(a, 4)
    b = machine("b")
    found, paths = remote(b, 4)
    damaged, gone = (next(n for n in a.objects.listing("stages") if n.endswith(f"/{i:02d}")) for i in (1, 2))
    a.objects.write(damaged, b"\x09" * SIZE)
    a.objects.delete([gone])
    with Stager(found, gets=1) as stager:
        stager.ahead(paths)
        stager.ensure(paths[0])
        with pytest.raises(StoreError, match=r"/store/stages/ingest/.*/01: has crc32c .*its bytes changed") as error:
            stager.ensure(paths[1])
        assert stager.error is error.value
        with pytest.raises(StoreError, match=r"/02: is gone"):
            stager.ensure(paths[2])
        stager.ensure(paths[3])
    assert here(b) == {"00", "03"} and not list(b.staging.iterdir())


def test_a_reader_that_waits_hears_a_stop(machine, monkeypatch):
    ingest(machine("a"), 1)
    b = machine("b")
    found, paths = remote(b, 1)
    stop, slow = threading.Event(), threading.Event()
    with Stager(found, cancelled=stop.is_set) as stager:
        get = stager._bucket.get
        monkeypatch.setattr(stager._bucket, "get", lambda *args: (slow.wait(60), get(*args)))
        thread = threading.Timer(0.1, stop.set)
        thread.start()
        with pytest.raises(Cancelled):
            stager.ensure(paths[0])
        slow.set()


def test_several_readers_of_one_file_get_it_once(machine):
    ingest(machine("a"), 1)
    b = machine("b")
    found, paths = remote(b, 1)
    with Stager(found) as stager, ThreadPoolExecutor(8) as readers:
        assert [*readers.map(stager.ensure, paths * 8)] == paths * 8 and stager.fetched == 1
