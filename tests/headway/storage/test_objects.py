"""The six primitives, and what rests on them: the same on a disk, on S3 and on Cloud Storage."""

import itertools
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headway.errors import Overtaken, StoreError
from headway.registry.pointers import Event, Pointer
from headway.registry.registry import Registry
from headway.storage import filesystem
from headway.storage.bucket import Bucket
from headway.storage.objects import Folder
from headway.storage.store import Store, open_store


@pytest.fixture(params=["disk", "s3", "gs"])
def where(request, tmp_path, monkeypatch):
    """The name of a new, empty store of each kind."""
    if request.param == "disk":
        return str(tmp_path / "store")
    if request.param == "s3":
        return f"s3://{request.getfixturevalue('bucket_name')}/deep/store"
    return f"gs://{request.getfixturevalue('new_gs_bucket')(request.getfixturevalue('gs'))}/deep/store"


@pytest.fixture
def store(where, tmp_path) -> Store:
    made = open_store(where, tmp_path / "copy")
    made.create()
    return made


class TestPrimitives:
    @pytest.fixture
    def objects(self, store):
        return store.objects

    def test_what_was_put_is_looked_at_listed_and_deleted(self, objects):
        objects.write("runs/a.json", b"1")
        objects.write("runs/deep/b.json", b"22")
        assert objects.look("runs/a.json").data == b"1" == objects.read("runs/a.json")
        wanted = {"runs/a.json": 1, "runs/deep/b.json": 2}
        assert {key: found.bytes for key, found in objects.listing("runs").items()} == wanted
        objects.write("runs/a.json", b"3")
        assert objects.read("runs/a.json") == b"3" and objects.children("runs") == ["a.json", "deep"]
        objects.delete(["runs/a.json", "runs/never.json"])
        assert objects.look("runs/a.json") is None and [*objects.listing("runs")] == ["runs/deep/b.json"]

    def test_a_second_creation_is_refused_and_changes_nothing(self, objects):
        tag = objects.create("runs/a.json", b"1")
        assert tag == objects.look("runs/a.json").tag
        assert objects.create("runs/a.json", b"2") is None and objects.read("runs/a.json") == b"1"
        objects.delete(["runs/a.json"])
        assert objects.create("runs/a.json", b"2") is not None

    def test_a_stale_replacement_is_refused_and_changes_nothing(self, objects):
        first = objects.create("runs/a.json", b"1")
        second = objects.replace("runs/a.json", b"2", first)
        assert second not in (None, first) and objects.look("runs/a.json") == (b"2", second)
        assert objects.replace("runs/a.json", b"3", first) is None and objects.read("runs/a.json") == b"2"
        objects.delete(["runs/a.json"])
        assert objects.replace("runs/a.json", b"3", second) is None and objects.read("runs/a.json") is None

    def test_of_many_that_create_or_replace_one_succeeds(self, objects):
        def race(action):
            start = threading.Barrier(6)

            def one(n):
                start.wait()
                return action(b"%d" % n)

            with ThreadPoolExecutor(6) as threads:
                return [tag for tag in threads.map(one, range(6)) if tag is not None]

        (tag,) = race(lambda data: objects.create("runs/a.json", data))
        for _ in range(5):
            (tag,) = race(lambda data, tag=tag: objects.replace("runs/a.json", b"next " + tag.encode() + data, tag))
        assert objects.look("runs/a.json").tag == tag


class Client:
    """The client of a bucket, of which a test changes the puts."""

    def __init__(self, client):
        self.client = client

    def __getattr__(self, name):
        return getattr(self.client, name)


def test_a_put_whose_answer_was_lost_is_found_to_be_ours(bucket_name, monkeypatch):
    """The client tries again by itself, and is refused because of what it put."""
    bucket = Bucket(f"s3://{bucket_name}/store")

    class Twice(Client):
        def put(self, *args, **options):
            self.client.put(*args, **options)
            return self.client.put(*args, **options)

    monkeypatch.setattr(bucket, "_client", Twice(bucket._client))
    tag = bucket.create("a", b"1")
    assert tag is not None and bucket.replace("a", b"2", tag) == bucket.look("a").tag


def test_a_server_that_ignores_conditions_is_refused_with_the_fix(bucket_name, tmp_path, monkeypatch):
    class Forgetful(Client):
        def put(self, *args, mode, **options):
            return self.client.put(*args, **options)

    store = open_store(f"s3://{bucket_name}/store", tmp_path / "copy")
    monkeypatch.setattr(store.objects, "_client", Forgetful(store.objects._client))
    refused = r"ignores conditions of a put .If-None-Match, If-Match.*\n  fix: use one that"
    with pytest.raises(StoreError, match=refused):
        store.create()
    assert not (tmp_path / "copy").exists()


def test_the_keys_of_a_profile_are_those_of_both_clients(tmp_path, monkeypatch):
    (tmp_path / "credentials").write_text("[team]\naws_access_key_id = a%b\naws_secret_access_key = c\n[other]\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "team")
    assert filesystem._profile() == {"aws_access_key_id": "a%b", "aws_secret_access_key": "c"}
    for name in ("other", "none"):
        monkeypatch.setenv("AWS_PROFILE", name)
        assert filesystem._profile() == {}


def test_a_pointer_that_moved_since_its_history_was_read_is_not_moved(store):
    def event(version):
        return Event(time="2026", kind="promote", version=version, previous=None, reason="")

    pointer = Pointer(store, store.root / "models" / "flights", "champion")
    looked = pointer.history()
    pointer.move(looked, event(1))
    with pytest.raises(Overtaken, match="moved by another process"):
        pointer.move(looked, event(2))
    assert [e.version for e in pointer.history()] == [1]


WORKER = """
import random, sys, time
from pathlib import Path
from headway.errors import Overtaken
from headway.registry.pointers import Event, Pointer
from headway.registry.registry import Registry
from headway.storage.store import open_store
where, copy, me, commits = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
store = open_store(where, copy)
store.create()
found = []
for n in range(commits):
    fingerprint = f"{n // 10:032x}"      # ten commits of each output by each process
    with store.open("ingest", fingerprint, {"stage": "ingest"}) as staging:
        (staging.path / "a").write_text(f"{me} {n}")
        (staging.path / "b").write_text(f"{me} {n}")
        staging.commit(result={})
pointer = Pointer(store, store.root / "models" / "flights", "champion")
for n in range(commits):
    while True:                          # without the model's lock: the primitives alone
        events = pointer.history()
        try:
            pointer.move(events, Event(time="", kind="promote", version=me * commits + n, previous=None, reason=""))
        except Overtaken:
            time.sleep(random.uniform(0, 0.05))
            continue
        break
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("where", "each"),
    [
        ("disk", 30),
        ("s3", 10),
        pytest.param("disk", 250, marks=pytest.mark.soak),
        pytest.param("s3", 250, marks=pytest.mark.soak),
    ],
    indirect=["where"],
)
@pytest.mark.timeout(900)
def test_commits_and_promotions_from_four_processes_lose_and_double_nothing(where, each, store, tmp_path):
    commands = [[sys.executable, "-c", WORKER, where, str(tmp_path / f"copy{n}"), str(n), str(each)] for n in range(4)]
    workers = [subprocess.Popen(command) for command in commands]
    assert [worker.wait() for worker in workers] == [0] * 4
    store.refresh()
    assert [*store.verify()] == [] and len([*store.all_outputs()]) == each / 10
    for _, folder in store.all_outputs():
        local = store.local(folder)
        assert (local / "a").read_text() == (local / "b").read_text(), "of one process"
        if store.objects.remote:
            key = folder.relative_to(store.root).as_posix()
            assert len(store.objects.listing(key)) == 3, "and nothing is left of the others"
    versions = [event.version for event in Pointer(store, store.root / "models" / "flights", "champion").history()]
    assert sorted(versions) == [*range(4 * each)], "each promotion is there once"
    assert not list(store.staging.iterdir())


PROMOTER = """
import random, sys, time
from pathlib import Path
from headway.errors import Locked
from headway.registry.registry import Registry
from headway.storage.store import open_store
where, copy, me, times = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
registry = Registry(open_store(where, copy), "flights")
made = 0
while made < times:
    try:
        event = registry.promote(random.randint(1, 8), reason=f"{me} {made}")
    except Locked:
        time.sleep(random.uniform(0, 0.05))
    else:
        made += event.reason == f"{me} {made}"       # else it is the champion already
"""


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("where", ["disk", "s3"], indirect=True)
def test_a_thousand_promotions_from_four_processes_are_one_history_and_each_is_served(where, store, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "saved_model.pb").write_bytes(b"x" * 1000)
    registry = Registry(store, "flights")
    for _ in range(8):
        registry.publish(tmp_path / "model", {})
    commands = [[sys.executable, "-c", PROMOTER, where, str(tmp_path / f"copy{n}"), str(n), "250"] for n in range(4)]
    workers = [subprocess.Popen(command) for command in commands]
    assert [worker.wait() for worker in workers] == [0] * 4
    store.refresh()
    events = registry.history()
    assert sorted(event.reason for event in events) == sorted(f"{n} {i}" for n in range(4) for i in range(250))
    assert all(before.version == event.previous for before, event in itertools.pairwise(events))
    assert [event.serving for event in events] == [*range(1, 1001)]
    assert {*store.children(registry.serving)} == {str(number) for number in range(1, 1001)}


def test_all_of_a_folder_is_on_the_disk_before_it_is_published_and_its_name_after(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("headway.storage.objects.sync_path", synced.append)
    aside = tmp_path / "aside"
    (aside / "a" / "b").mkdir(parents=True)
    (aside / "a" / "file").write_text("")
    Folder(tmp_path).publish(aside, "stages/x/y", lambda key: False)
    *before, after = synced
    assert sorted(before) == [aside, aside / "a", aside / "a" / "b", aside / "a" / "file"]
    assert after == tmp_path / "stages" / "x"
