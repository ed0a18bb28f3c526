"""The store in a bucket: the same promises as on a disk, kept by endpoints of S3 and Cloud Storage, from several machines."""

import shutil
from pathlib import Path

import pytest

from headway.errors import Locked, StoreError
from headway.registry import gc, leases
from headway.registry.registry import Registry
from headway.storage.bucket import Bucket
from headway.storage.locks import Lock
from headway.storage.store import Store, default_cache, open_store
from tests.run_files import save_run

FP = "0123456789abcdef" * 2
KEY = {"stage": "ingest", "span": "2013-01"}


@pytest.fixture
def store(machine):
    return machine("a")


def commit(store: Store, fingerprint: str = FP, text: str = "abc", stage: str = "ingest"):
    with store.open(stage, fingerprint, KEY) as staging:
        (staging.path / "deep").mkdir()
        (staging.path / "deep" / "a").write_text(text)
        (staging.path / "b").write_text(text * 2)
        return staging.commit(result={"rows": (1, 2)}, seconds=1.0)


def objects(store: Store, below: str = "") -> list[str]:
    return sorted(store.objects.listing(below))


def test_names_choose_the_kind_of_store(tmp_path, monkeypatch, s3):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert type(open_store(tmp_path / "a")) is Store
    made = open_store("s3://team/headway/")
    assert isinstance(made, Store) and made.name == "s3://team/headway"
    assert made.root == default_cache("s3://team/headway") == tmp_path / "headway" / "s3" / "team" / "headway"


def test_what_one_machine_commits_another_finds_and_fetches(machine):
    a, b = machine("a"), machine("b")
    assert not b.exists() and b.find("ingest", FP) is None and b.check("ingest", FP) is None
    b.refresh()
    made = commit(a)
    assert b.find("ingest", FP) == made and b.exists()
    folder = b.output("ingest", FP)
    assert not folder.exists(), "looking fetches nothing"
    assert b.local(folder) == folder
    assert (folder / "deep" / "a").read_text() == "abc" and (folder / "b").read_text() == "abcabc"
    assert b.manifests("ingest") == [made] and b.nearest("ingest", KEY) == made
    assert [(stage, path.name) for stage, path in b.all_outputs()] == [("ingest", FP)]
    assert [*b.verify()] == []
    assert not list(b.staging.iterdir())


def test_a_working_copy_that_was_lost_or_harmed_is_fetched_again(store):
    commit(store)
    folder = store.output("ingest", FP)
    (folder / "b").write_text("x")
    assert (store.local(folder) / "b").read_text() == "abcabc"
    shutil.rmtree(store.root)
    store.create()
    assert (store.local(folder) / "deep" / "a").read_text() == "abc"


def test_without_its_manifest_an_output_does_not_exist(store):
    commit(store)
    store.objects.delete([f"stages/ingest/{FP}/manifest.json"])
    store.refresh()
    assert store.find("ingest", FP) is None and [*store.all_outputs()] == []
    store.objects.write(f"stages/ingest/{FP}/manifest.json", b"{}")
    store.refresh()
    assert store.find("ingest", FP) is None and "damaged" in store.check("ingest", FP)
    commit(store)
    assert store.find("ingest", FP) is not None


def test_an_object_of_another_size_or_gone_is_noticed_without_reading_it(store):
    commit(store)
    name = next(n for n in objects(store) if n.endswith("/b"))
    store.objects.write(name, b"short")
    store.refresh()
    assert store.check("ingest", FP) == "b has 5 bytes instead of 6"
    store.objects.delete([name])
    store.refresh()
    assert store.check("ingest", FP) == "b is gone"
    commit(store)
    assert store.check("ingest", FP) is None and [*store.verify()] == []


def test_an_object_with_other_bytes_is_noticed_when_fetched_and_by_verify(machine):
    a, b = machine("a"), machine("b")
    commit(a)
    name = next(n for n in objects(a) if n.endswith("/deep/a"))
    a.objects.write(name, b"abd")
    with pytest.raises(StoreError, match=r"/deep/a: has crc32c .*its bytes changed"):
        b.local(b.output("ingest", FP))
    assert not (b.output("ingest", FP) / "deep" / "a").exists() and not list(b.staging.iterdir())
    ((path, problem),) = b.verify()
    assert path.name == "a" and "crc32c" in problem


def test_a_machine_that_dies_before_the_manifest_leaves_orphans_that_are_swept_when_old(store, monkeypatch):
    create = store.objects.create

    def dies(key, data):
        raise KeyboardInterrupt

    monkeypatch.setattr(store.objects, "create", dies)
    with pytest.raises(KeyboardInterrupt):
        commit(store)
    monkeypatch.setattr(store.objects, "create", create)
    assert len(objects(store, "stages")) == 2 and store.find("ingest", FP) is None
    assert gc.collect(store, keep_runs=1) == [] == [*store.all_outputs()] == [*store.verify()]
    kept = commit(store)
    assert store.sweep() == [] and len(objects(store, "stages")) == 5, "it may still be going on"
    store.objects.orphan_seconds = -60
    assert len(store.sweep()) == 1 and len(objects(store, "stages")) == 3
    assert store.find("ingest", FP) == kept and [*store.verify()] == []


def test_a_rival_between_our_files_and_our_manifest_mixes_nothing(machine, monkeypatch):
    a, b = machine("a"), machine("b")
    create = a.objects.create

    def late(key, data):
        commit(b, text="bbb")
        return create(key, data)

    monkeypatch.setattr(a.objects, "create", late)
    assert commit(a, text="aaa") == b.find("ingest", FP), "it ends as done"
    last = machine("last")
    assert [*last.verify()] == [] and len(objects(last, "stages")) == 3, "and leaves nothing of its own"
    assert (last.local(last.output("ingest", FP)) / "b").read_text() == "bbbbbb"
    assert (a.local(a.output("ingest", FP)) / "b").read_text() == "bbbbbb"


def test_a_rival_between_our_listing_and_our_look_at_the_manifest_is_no_damage(machine, monkeypatch):
    a, b = machine("a"), machine("b")
    # their manifests differ in size: S3 tells the times of two in one second not apart
    read, rivals = a.objects.read, iter(["b" * 50, "c" * 5000])

    def late(key):
        if key.endswith("manifest.json") and (text := next(rivals, None)):
            b.discard(b.output("ingest", FP))
            commit(b, text=text)  # its files are not in the listing in which a found a manifest
        return read(key)

    monkeypatch.setattr(a.objects, "read", late)
    assert commit(a, text="aaa").fingerprint == FP
    assert next(rivals, None) is None and a.check("ingest", FP) is None
    assert (a.local(a.output("ingest", FP)) / "b").read_text() == "c" * 10_000


def test_what_was_listed_before_a_commit_is_forgotten_with_it(store, monkeypatch):
    listing, committed = store.objects.listing, []

    def slow(prefix=""):
        found = listing(prefix)
        if not committed:  # another thread commits while this one lists
            committed.append(True)
            commit(store)
        return found

    monkeypatch.setattr(store.objects, "listing", slow)
    store.find("ingest", FP)
    assert store.find("ingest", FP) is not None


def test_runs_are_seen_from_everywhere(machine):
    a, b = machine("a"), machine("b")
    save_run(a, {"run": "20260101", "pipeline": "p", "state": "running"})
    save_run(a, {"run": "20260102", "pipeline": "p", "state": "running"})
    save_run(a, {"run": "20260102", "pipeline": "p", "state": "done"})
    assert [run["run"] for run in b.runs()] == ["20260102", "20260101"]
    assert [run["state"] for run in b.runs()] == ["done", "running"]


# --- locks


def test_a_lock_held_elsewhere_is_refused_until_it_is_given_up(machine):
    a, b = machine("a").lock("run-p", {"run": "1"}), machine("b").lock("run-p")
    with a.held():
        with pytest.raises(Locked, match=r"held by process .* \(run 1\)"):
            b.acquire()
        assert b.owner()["run"] == "1"
        a.check()
    assert b.owner() is None
    with b.held():
        pass
    assert b.owner() is None


def test_a_holder_whose_claim_was_cleared_away_notices(store):
    lock = Lock(store.objects, "locks/run-p.json", lease_seconds=0.8)
    with lock.held():
        lock.check()
        store.objects.delete([lock.key])
        assert lock._lost.wait(120)
        with pytest.raises(Locked, match="taken over"):
            lock.check()
    assert objects(store, "locks") == [], "it gives up nothing that is not its own"


# --- the registry


def test_versions_and_the_champion_are_one_for_all_machines(machine, saved_model):
    a, b = Registry(machine("a"), "flights"), Registry(machine("b"), "flights")
    assert a.champion() is None and a.versions() == []
    assert a.publish(saved_model, {"run": "1"}).number == 1
    assert b.publish(saved_model, {"run": "2"}).number == 2
    a.promote(1, reason="first")
    event = b.promote(2, reason="better")
    assert (event.previous, event.serving) == (1, 2)
    assert a.champion().number == 2 and a.champion().facts == {"run": "2"}
    local = a.store.local(a.champion().path)
    assert (local / "saved_model" / "variables" / "variables.index").read_bytes() == b"weights"
    back = a.rollback(reason="worse")
    assert (back.version, back.serving) == (1, 3)
    assert [e.kind for e in b.history()] == ["promote", "promote", "rollback"]
    with pytest.raises(StoreError, match="was rolled back"):
        b.promote(2, reason="again")
    wanted = [f"serving/flights/{n}/saved_model.pb" for n in (1, 2, 3)]
    assert sorted(n for n in objects(a.store, "serving") if n.endswith("pb")) == wanted
    assert [*a.verify()] == [] == [*b.verify()]


def test_a_promotion_that_died_before_its_serving_copy_was_whole_is_repaired(machine, saved_model):
    a = Registry(machine("a"), "flights")
    a.publish(saved_model, {})
    a.promote(1, reason="first")
    a.store.objects.delete(["serving/flights/1/saved_model.pb"])
    b = Registry(machine("b"), "flights")
    assert any("not served" in problem for _, problem in b.verify())
    assert b.repair() and not b.repair()
    assert [*b.verify()] == []


# --- garbage and checkpoints


def test_what_another_machine_reads_or_runs_is_not_collected_from_the_bucket(machine, saved_model):
    a, b = machine("a"), machine("b")
    registry = Registry(a, "flights")
    for _ in range(1, 5):
        registry.publish(saved_model, {})
    registry.promote(4, reason="")
    registry.set_alias("stable", 1)
    with leases.leased_version(Registry(b, "flights"), "2", "predict") as version, gc.removal_lock(a) as remover:
        garbage = gc.collect(a, keep_runs=0, keep_versions=0)
        assert [item.path.name for item in garbage] == ["2", "3"]
        removed = gc.remove(remover, garbage, keep_versions=0)
        assert [item.path.name for item in removed] == ["3"]
        assert b.local(version.path) == version.path, "it is still whole"
        with pytest.raises(Locked, match="command clean"), gc.run_lease(b, "flights", "r", wait_seconds=0):
            raise AssertionError("unreachable")
    assert [v.number for v in Registry(machine("c"), "flights").versions()] == [1, 2, 4]
    with gc.run_lease(b, "flights", "r"), pytest.raises(Locked, match="run r"), gc.removal_lock(a):
        raise AssertionError("unreachable")
    assert objects(a, "locks") == [], "leases are taken back"
    with gc.removal_lock(a) as remover:
        assert len(gc.remove(remover, gc.collect(a, keep_runs=0, keep_versions=0), keep_versions=0)) == 1
    assert [*registry.verify()] == []


def test_a_training_that_fails_goes_on_elsewhere_from_its_newest_checkpoint(machine, monkeypatch):
    a, b = machine("a"), machine("b")
    with pytest.raises(RuntimeError), a.checkpointing(FP):
        for step in (50, 600, 700):
            folder = a.checkpoints / FP / str(step)
            (folder / "deep").mkdir(parents=True)
            (folder / "deep" / "variables").write_text(f"weights {step}")
            (folder / "checkpoint.json").write_text("{}")
        raise RuntimeError("killed")
    whole = b.objects.read

    def small(key: str) -> bytes | None:
        assert key.endswith(".json"), f"{key} was read whole into memory"
        return whole(key)

    monkeypatch.setattr(b.objects, "read", small)
    with b.checkpointing(FP):
        (newest,) = (b.checkpoints / FP).iterdir()
        assert newest.name == "700" and (newest / "deep" / "variables").read_text() == "weights 700"
    assert not list(b.staging.glob("*get-*"))
    b.discard(b.checkpoints / FP)
    assert objects(a, "checkpoints") == [] and not (b.checkpoints / FP).exists()


def test_a_request_fetches_the_outputs_and_versions_that_it_names(machine, saved_model):
    a, b = machine("a"), machine("b")
    commit(a)
    commit(a, FP[::-1])
    Registry(a, "flights").publish(saved_model, {})
    model = b.root / "models" / "flights" / "1" / "saved_model"
    b.localize([b.output("ingest", FP), model, Path("/etc")])
    assert (b.output("ingest", FP) / "b").exists() and (model / "saved_model.pb").exists()
    assert not b.output("ingest", FP[::-1]).exists(), "nothing asked for it"
    with pytest.raises(StoreError, match=r"stages/ingest/none: is gone"):
        b.localize([b.output("ingest", "none")])


def test_workers_write_an_output_to_its_place_and_the_commit_puts_the_manifest(store):
    fingerprint = "a" * 32
    with store.open("ingest", fingerprint, KEY) as staging:
        place = Bucket(staging.upload_folder)
        assert staging.upload_folder == place.url and place.url.startswith(f"{store.name}/stages/ingest/{fingerprint}/")
        place.write("a.tfrecord", b"rows")
        assert store.find("ingest", fingerprint) is None
        entry = {"path": "a.tfrecord", "bytes": 4, "crc32c": place.checksums(["a.tfrecord"])[0][1]}
        manifest = staging.commit(result={"rows": 1}, files=[entry])
    assert [file.path for file in manifest.files] == ["a.tfrecord"]
    folder = store.local(store.output("ingest", fingerprint))
    assert (folder / "a.tfrecord").read_bytes() == b"rows"
    assert store.url(folder / "a.tfrecord") == f"{place.url}/a.tfrecord" and store.url(folder) == place.url


def test_what_was_written_to_a_place_and_not_committed_is_removed(store):
    with pytest.raises(ValueError, match="half"), store.open("ingest", "b" * 32, KEY) as staging:
        Bucket(staging.upload_folder).write("a.tfrecord", b"rows")
        raise ValueError("half")
    assert not store.objects.listing("stages/ingest")
    entry = {"path": "gone", "bytes": 4, "crc32c": "00000000"}
    with (
        store.open("ingest", "b" * 32, KEY) as staging,
        pytest.raises(StoreError, match="missing or has the wrong size"),
    ):
        assert staging.upload_folder
        staging.commit(result={}, files=[entry])
