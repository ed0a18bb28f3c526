"""The registry: numbers, the champion, what is served, and what a crash leaves."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headway.errors import StoreError
from headway.registry.leases import leased_version
from headway.registry.registry import Registry, Version, model_names


def served(registry: Registry) -> list[int]:
    return sorted(int(entry.name) for entry in registry.serving.iterdir() if not entry.name.startswith("."))


def hidden(registry: Registry) -> list[Path]:
    found = [*registry.folder.iterdir()]
    found += registry.serving.iterdir() if registry.serving.is_dir() else []
    return [entry for entry in found if entry.name.startswith(".")]


def test_an_empty_registry(registry, store):
    assert (registry.versions(), registry.history(), registry.champion(), registry.rolled_back()) == ([], [], None, {})
    assert registry.find("export", "e") is None and list(registry.verify()) == [] and model_names(store) == []
    assert registry.repair() is False
    with pytest.raises(StoreError, match="version 1 does not exist"):
        registry.promote(1, reason="")
    with pytest.raises(StoreError, match="no champion yet"):
        registry.rollback()


def test_a_published_version_is_whole_and_not_the_champion(registry, saved_model, store):
    version = registry.publish(saved_model, {"export": "e1", "spans": ["2013-01"]})
    assert (version.number, version.facts["spans"]) == (1, ["2013-01"])
    shutil.rmtree(saved_model)
    assert (version.saved_model / "variables" / "variables.index").read_bytes() == b"weights"
    assert json.loads((version.path / "version.json").read_text()) == version.facts
    assert registry.version(1) == version == registry.find("export", "e1")
    assert registry.champion() is None and not registry.serving.exists()
    assert model_names(store) == ["flights"] and list(registry.verify()) == [] and hidden(registry) == []


def test_a_promotion_points_serves_and_is_remembered(three):
    champion = three.champion()
    assert isinstance(champion, Version) and champion.number == 3
    assert served(three) == [1, 2, 3]
    assert (three.serving / "3" / "saved_model.pb").read_bytes() == b"graph", "saved_model.pb directly in <n>/"
    event = three.history()[-1]
    assert (event.kind, event.version, event.previous, event.serving) == ("promote", 3, 2, 3)
    assert (event.run, event.basis, event.reason) == ("run-3", "better", "better than 2")
    assert "@" in event.by and event.time.endswith("Z")
    pointer = json.loads((three.folder / "champion.json").read_text())
    assert (pointer["version"], pointer["serving"], len(pointer["history"])) == (3, 3, 3)
    assert list(three.verify()) == [] and hidden(three) == []


def test_a_rollback_goes_one_champion_back_and_is_served_under_a_higher_number(three):
    event = three.rollback(reason="too many complaints")
    assert (event.kind, event.version, event.previous, event.serving) == ("rollback", 2, 3, 4)
    assert three.champion().number == 2 and served(three) == [1, 2, 3, 4]
    assert list(three.rolled_back()) == [3] and "too many complaints" in three.rolled_back()[3]
    event = three.rollback()
    assert (event.version, event.serving) == (1, 5), "not to the one that was rolled back"
    with pytest.raises(StoreError, match="no champion before version 1 to go back to") as error:
        three.rollback()
    assert "champions before it: 2, 3" in error.value.fix


def test_a_rollback_to_a_version_by_name(three, saved_model):
    three.publish(saved_model, {})
    with pytest.raises(StoreError, match="version 3 is the champion already"):
        three.rollback(3)
    with pytest.raises(StoreError, match="version 4 never was the champion") as error:
        three.rollback(4)
    assert "headway promote" in error.value.fix
    with pytest.raises(StoreError, match="never was"):
        three.rollback(99)
    assert three.rollback(1).version == 1
    assert list(three.rolled_back()) == [3]


def test_a_version_that_was_rolled_back_returns_only_by_force(three):
    three.rollback(reason="wrong labels")
    for again in (lambda: three.promote(3, reason="x"), lambda: three.rollback(3)):
        with pytest.raises(StoreError, match=r"version 3 was rolled back on .*: wrong labels") as error:
            again()
        assert "force" in error.value.fix
    assert three.champion().number == 2 and served(three) == [1, 2, 3, 4]
    event = three.promote(3, reason="the labels were right", force=True)
    assert (event.kind, event.serving) == ("promote", 5)
    assert three.rolled_back() == {}


def test_promoting_the_champion_again_changes_nothing(three):
    before = (three.folder / "champion.json").read_text()
    assert three.promote(3, reason="again") == three.history()[-1]
    assert (three.folder / "champion.json").read_text() == before and served(three) == [1, 2, 3]


def test_a_serving_copy_that_was_lost_comes_back(three):
    shutil.rmtree(three.serving / "3")
    (problem,) = three.verify()
    assert problem[0] == three.serving / "3" and "promote it again" in problem[1]
    assert three.repair() is True and three.repair() is False
    assert served(three) == [1, 2, 3] and list(three.verify()) == []
    shutil.rmtree(three.serving)
    three.promote(3, reason="again")
    assert served(three) == [3]


def test_numbers_are_never_used_twice(three, saved_model):
    shutil.rmtree(three.folder / "3")
    assert three.publish(saved_model, {}).number == 4
    shutil.rmtree(three.serving)
    assert three.promote(4, reason="").serving == 4


MOVES = {
    "rollback": lambda registry: registry.rollback(),
    "rollback to it": lambda registry: registry.rollback(2),
    "promote": lambda registry: registry.promote(2, reason=""),
    "alias": lambda registry: registry.set_alias("stable", 2),
    "a server or a prediction that loads it": lambda registry: leased_version(registry, "2", "serve").__enter__(),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
@pytest.mark.parametrize("damage", ["a flipped byte", "a file that is gone", "no manifest"])
def test_no_pointer_moves_to_a_damaged_version_which_is_named(three, move, damage):
    graph = three.folder / "2" / "saved_model" / "saved_model.pb"
    graph.unlink()  # the serving copy keeps its own link
    if damage == "a flipped byte":
        graph.write_bytes(b"grapX")
        assert three.version(2).number == 2, "sizes alone do not tell"
        ((path, problem),) = three.verify()
        assert path == graph and problem.endswith("its bytes changed")
    elif damage == "no manifest":
        (three.folder / "2" / "manifest.json").unlink()
    served_before, events = served(three), three.history()
    with pytest.raises(StoreError, match="version 2 is damaged") as error:
        move(three)
    assert "restore it" in error.value.fix
    assert three.champion().number == 3 and three.history() == events and served(three) == served_before
    assert three.aliases() == {} and three.previous() == 2
    assert list(three.damaged()) == ([] if damage == "a flipped byte" else [2])
    assert three.rollback(1).version == 1, "one that is named takes its place"


def test_a_version_that_was_removed_is_no_champion_to_go_back_to(three):
    shutil.rmtree(three.folder / "2")
    with pytest.raises(StoreError, match="version 2 does not exist") as error:
        three.promote(2, reason="")
    assert error.value.fix == "there is: 1, 3"
    assert three.rollback().version == 1


@pytest.mark.parametrize("forbidden", ["2", "2/saved_model/saved_model.pb"])
def test_a_version_that_one_may_not_read_is_not_called_damaged(three, monkeypatch, forbidden):
    """As a user without the right: root may read everything."""
    closed = three.folder / forbidden
    for name in ("stat", "open", "read_bytes"):
        whole = getattr(Path, name)

        def refuse(path, *rest, whole=whole, **more):
            if path.is_relative_to(closed):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return whole(path, *rest, **more)

        monkeypatch.setattr(Path, name, refuse)
    assert [version.number for version in three.versions()] == [1, 3]
    with pytest.raises(StoreError, match="cannot be read: Permission denied") as error:
        three.version(2)
    assert error.value.fix == "let this user read it" and "damaged" not in str(error.value)
    assert "Permission denied" in three.damaged()[2]


def test_serving_copies_are_hard_links_where_the_disk_has_them(registry, saved_model):
    registry.publish(saved_model, {})
    registry.promote(1, reason="")
    assert (registry.serving / "1" / "saved_model.pb").stat().st_nlink == 2


def test_where_links_are_not_possible_files_are_copied_and_checked_apart(registry, saved_model, monkeypatch):
    def link(*paths):
        raise OSError(errno.EPERM, "not here")

    registry.publish(saved_model, {})
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", link)
        registry.promote(1, reason="")
    copy = registry.serving / "1" / "variables" / "variables.index"
    assert copy.read_bytes() == b"weights" and copy.stat().st_nlink == 1
    copy.write_bytes(b"weightX")
    ((path, problem),) = registry.verify()
    assert path == copy and problem.endswith("its bytes changed")


def test_a_full_disk_is_a_store_error_and_leaves_nothing(registry, saved_model, monkeypatch):
    def full(*paths):
        raise OSError(errno.ENOSPC, "No space left on device", str(paths[1]))

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(StoreError, match="no space left") as error:
        registry.publish(saved_model, {})
    assert "headway clean" in error.value.fix
    assert registry.versions() == [] and hidden(registry) == []


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"history": 1}', '{"history": [{"version": 1}]}'])
def test_a_damaged_pointer_is_an_error_and_not_an_empty_registry(three, text):
    (three.folder / "champion.json").write_text(text)
    with pytest.raises(StoreError, match="is damaged") as error:
        three.champion()
    assert error.value.where.endswith("champion.json") and error.value.fix
    assert [(path.name, problem) for path, problem in three.verify()] == [("champion.json", "is damaged")]


def test_a_pointer_to_a_version_that_is_gone_is_named(three):
    shutil.rmtree(three.folder / "3")
    assert [problem for _, problem in three.verify()] == ["points at version 3, which is gone or damaged"]
    with pytest.raises(StoreError, match="version 3 does not exist"):
        three.champion()
    assert three.rollback().version == 2, "and a rollback mends it"


PUBLISHER = """
import sys
from pathlib import Path
from headway.registry.registry import Registry
from headway.storage.store import Store
registry = Registry(Store(Path(sys.argv[1])), "flights")
for _ in range(4):
    version = registry.publish(Path(sys.argv[2]), {"by": sys.argv[3]})
    registry.promote(version.number, reason=sys.argv[3])
"""


def test_processes_that_publish_and_promote_at_the_same_time(registry, saved_model, store):
    arguments = [sys.executable, "-c", PUBLISHER, str(store.root), str(saved_model)]
    processes = [subprocess.Popen([*arguments, str(i)]) for i in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert [v.number for v in registry.versions()] == list(range(1, 13))
    assert served(registry) == list(range(1, 13)) == [event.serving for event in registry.history()]
    assert list(registry.verify()) == [] and hidden(registry) == []


def test_the_anchor_is_the_last_champion_that_was_better_or_that_a_person_chose(registry, saved_model):
    assert registry.anchor() is None
    for number, (basis, anchor) in enumerate(
        [("first model", True), ("newer data", False), ("newer data", False), ("better", True), ("newer data", False)],
        1,
    ):
        registry.publish(saved_model, {})
        registry.promote(number, reason="", run="r", basis=basis, anchor=anchor)
    assert registry.anchor() == 4
    registry.rollback(2, reason="the last ones are too slow")
    assert registry.anchor() == 2, "a person chose it"
    registry.promote(3, reason="by hand")
    assert registry.anchor() == 3
