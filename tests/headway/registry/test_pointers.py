"""Aliases beside the champion, and decisions that come too late."""

import json
import shutil

import pytest

from headway.errors import ConfigError, Overtaken, StoreError
from headway.registry.registry import NOBODY


def test_an_alias_points_at_a_version_and_remembers_every_change(three):
    event = three.set_alias("shadow", 2, reason="watch it for a week")
    assert (event.kind, event.version, event.previous, event.serving) == ("alias", 2, None, None)
    event = three.set_alias("shadow", 3, reason="the next", run="r")
    assert (event.version, event.previous, event.run) == (3, 2, "r") and "@" in event.by
    assert three.aliases() == {"shadow": 3} and [e.version for e in three.alias_history("shadow")] == [2, 3]
    assert three.set_alias("shadow", 3) == event, "it is there already: nothing changes"
    pointer = json.loads((three.folder / "shadow.json").read_text())
    assert pointer["version"] == 3 and len(pointer["history"]) == 2
    assert three.champion().number == 3 and len(three.history()) == 3 and list(three.verify()) == []


@pytest.mark.parametrize(("name", "number"), [("2", 2), ("champion", 3), ("previous", 2), ("stable", 1)])
def test_a_version_is_named_by_number_champion_previous_or_alias(three, name, number):
    three.set_alias("stable", 1)
    assert three.named(name).number == three.number(name) == number


def test_a_name_that_names_nothing_lists_what_there_is(three, registry):
    three.set_alias("stable", 1)
    with pytest.raises(ConfigError, match="'stabel' names no version") as error:
        three.named("stabel")
    assert "stable (version 1)" in error.value.fix
    with pytest.raises(StoreError, match="version 9 does not exist"):
        three.named("9")


def test_previous_is_what_a_rollback_goes_back_to(three):
    assert three.previous() == 2
    three.rollback()
    assert three.previous() == 1, "not the one that was rolled back"
    three.rollback()
    assert three.previous() is None
    with pytest.raises(StoreError, match="no champion before"):
        three.named("previous")


@pytest.mark.parametrize("name", ["champion", "previous", "latest", "3", "Stable", "a b", "", "../x", "a/b", "x" * 41])
def test_a_name_that_cannot_be_an_alias_is_refused(three, name):
    with pytest.raises(ConfigError) as error:
        three.set_alias(name, 1)
    assert error.value.where == "--alias" and error.value.fix


def test_an_alias_needs_a_whole_version(three):
    with pytest.raises(StoreError, match="version 7 does not exist"):
        three.set_alias("stable", 7)
    assert three.aliases() == {} and not (three.folder / "stable.json").exists()


def test_a_removed_alias_points_nowhere_and_keeps_its_history(three):
    three.set_alias("stable", 1)
    assert three.remove_alias("stable").version == 1
    assert three.aliases() == {} and [e.kind for e in three.alias_history("stable")] == ["alias", "remove"]
    for again in (lambda: three.named("stable"), lambda: three.remove_alias("stable")):
        with pytest.raises(ConfigError, match="names no version"):
            again()
    assert three.set_alias("stable", 2, against=NOBODY).previous is None and list(three.verify()) == []


def test_a_damaged_alias_is_named_and_stops_neither_publication_nor_promotion(three, saved_model):
    three.set_alias("stable", 1)
    (three.folder / "stable.json").write_text("{")
    assert [(path.name, problem) for path, problem in three.verify()] == [("stable.json", "is damaged")]
    with pytest.raises(StoreError, match="is damaged") as error:
        three.named("stable")
    assert "headway promote --alias stable" in error.value.fix
    assert three.publish(saved_model, {}).number == 4
    assert three.promote(4, reason="").version == 4
    assert three.set_alias("shadow", 4).version == 4 and three.named("shadow").number == 4, "the others work"


def test_an_alias_of_a_version_that_is_gone_is_named_by_verify(three):
    three.set_alias("stable", 1)
    shutil.rmtree(three.folder / "1")
    wanted = [("stable.json", "points at version 1, which is gone or damaged")]
    assert [(p.name, what) for p, what in three.verify()] == wanted


def test_a_number_that_only_an_alias_remembers_is_not_used_again(registry, saved_model):
    for _ in range(2):
        registry.publish(saved_model, {})
    registry.set_alias("shadow", 2)
    shutil.rmtree(registry.folder / "2")
    assert registry.publish(saved_model, {}).number == 3


def test_a_promotion_decided_against_another_champion_is_refused(three, saved_model):
    for _ in (4, 5):
        three.publish(saved_model, {})
    three.promote(4, reason="better than 3", run="run-4", against=3)
    before = (three.folder / "champion.json").read_text()
    with pytest.raises(Overtaken) as error:
        three.promote(5, reason="better than 3 too", against=3)
    text = str(error.value)
    assert "version 5 was to be promoted against version 3, but version 4 became the champion on 20" in text
    assert "run run-4" in text and "better than 3" in text and "--to 5 --force" in text
    assert error.value.exit_code == 4 and (three.folder / "champion.json").read_text() == before
    assert three.promote(5, reason="all the same").version == 5, "a person may"
    assert three.promote(5, reason="again", against=3).version == 5, "what is so already is not refused"


def test_a_first_model_is_refused_when_another_came_first(registry, saved_model):
    for _ in (1, 2):
        registry.publish(saved_model, {})
    assert registry.promote(1, reason="first model", against=NOBODY).version == 1
    said = "version 2 was to be promoted when there was no champion, but version 1 became"
    with pytest.raises(Overtaken, match=said):
        registry.promote(2, reason="first model", against=NOBODY)


def test_a_second_rollback_that_looked_before_the_first_does_not_go_one_too_far(three):
    looked = three.champion_or_nobody()
    assert three.rollback(reason="too many complaints", against=looked).version == 2
    with pytest.raises(Overtaken, match="version 3 was to be rolled back, but version 2 became the champion") as error:
        three.rollback(against=looked)
    assert "too many complaints" in str(error.value) and three.champion().number == 2


def test_an_alias_that_was_moved_meanwhile_is_not_moved_again(three):
    three.set_alias("stable", 1)
    three.set_alias("stable", 2, against=1)
    with pytest.raises(Overtaken, match="stable was to point at version 3, but stable was moved to version 2"):
        three.set_alias("stable", 3, against=1)
    three.remove_alias("stable")
    with pytest.raises(Overtaken, match="but stable was removed"):
        three.set_alias("stable", 3, against=2)
