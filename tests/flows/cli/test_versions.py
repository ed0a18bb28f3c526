"""The commands on versions, typed on a store whose models are only files."""

import json

import pytest

from flows.cli.app import main
from flows.config.pipeline import read_pipeline
from flows.scoring.predict import find_model
from headway.registry.registry import Registry
from headway.storage.store import Store


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """Three versions of `toy`; 1 and 2 were promoted; the working folder is the pipeline's."""
    (tmp_path / "pipeline.yaml").write_text("name: toy\nsource: {format: csv, path: data.csv}\nlabel: y\n")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "saved_model.pb").write_bytes(b"graph")
    store = Store(tmp_path / "store")
    store.create()
    registry = Registry(store, "toy")
    for number in (1, 2, 3):
        registry.publish(tmp_path / "model", {"spans": ["2026-01"], "metrics": {"auc": 0.7 + number / 100}})
        if number < 3:
            registry.promote(number, reason="better", run=f"run-{number}", verdict="promote")
    monkeypatch.chdir(tmp_path)
    return registry


def typed(capsys, *arguments, code=0):
    assert main([*arguments]) == code
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return said.out if code == 0 else said.err


def test_an_alias_is_set_shown_used_and_removed(registry, capsys):
    assert "stable is version 1" in typed(capsys, "promote", "--alias", "stable", "--to", "previous")
    assert "stable is version 2, in place of 1" in typed(capsys, "promote", "--alias", "stable", "--to", "champion")
    typed(capsys, "promote", "--alias", "shadow", "--to", "3")
    shown = typed(capsys, "models")
    assert [line.split("  20")[0].strip() for line in shown.splitlines() if "  20" in line] == [
        "3  shadow",
        "2  champion, stable",
        "1  previous",
    ]
    value = json.loads(typed(capsys, "models", "--json"))["toy"]
    assert value["aliases"] == {"shadow": 3, "stable": 2} and (value["champion"], value["previous"]) == (2, 1)
    assert "version 3 is the champion" in typed(capsys, "promote", "--to", "shadow")
    assert "version 2 is the champion again" in typed(capsys, "rollback", "--to", "stable")
    assert "no longer points at version 2" in typed(capsys, "promote", "--alias", "stable", "--remove")
    assert "'stable' names no version" in typed(capsys, "rollback", "--to", "stable", code=2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["promote", "--alias", "champion", "--to", "1"], "--alias: 'champion' is a name that Headway gives"),
        (["promote", "--alias", "7", "--to", "1"], "--alias: '7' is not a name for an alias"),
        (["promote", "--remove"], "--remove: removes an alias, and nothing else"),
        (["promote", "--to", "stabel"], "'stabel' names no version"),
        (["predict", "--version", "stabel", "--input", "a", "--output", "b"], "--model: 'stabel' is neither"),
    ],
)
def test_a_name_that_is_wrong_is_a_usage_error(registry, capsys, arguments, words):
    said = typed(capsys, *arguments, code=2)
    assert words in said and "fix:" in said


def test_predict_takes_whatever_names_a_version(registry, tmp_path):
    registry.set_alias("shadow", 3)
    loaded = read_pipeline(tmp_path)

    def number(name):
        with find_model(loaded, name) as (_, version):
            held = [json.loads(p.read_text())["uses"] for p in (tmp_path / "store" / "locks").glob("use-*.json")]
            assert held == ([[f"models/toy/{version}"]] if version else [])
            return version

    names = ("1", "champion", "previous", "shadow", str(tmp_path / "model"))
    assert [number(name) for name in names] == [1, 2, 1, 3, None]
    (tmp_path / "shadow").mkdir()
    assert number("shadow") == 3, "an alias comes before a folder of its name"
    assert number("./shadow") is None
    assert list((tmp_path / "store" / "locks").glob("*use-*")) == []


def test_a_promotion_that_somebody_else_came_before_is_refused(registry, capsys, monkeypatch):
    looked = Registry.decided_against

    def look_and_lose(self):
        number = looked(self)
        Registry(self.store, self.name).promote(3, reason="mine first")
        return number

    monkeypatch.setattr(Registry, "decided_against", look_and_lose)
    said = typed(capsys, "promote", "--to", "1", code=4)
    assert "version 1 was to be promoted against version 2, but version 3 became the champion" in said
    assert "mine first" in said and "--to 1 --force" in said
    assert "version 1 is the champion" in typed(capsys, "promote", "--to", "1", "--force")
