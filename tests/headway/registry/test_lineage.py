"""What a version says it was made from."""

import json

import pytest

from headway.errors import StoreError


def test_a_lineage_is_kept_with_the_version_and_checked_with_it(registry, saved_model):
    registry.publish(saved_model, {"run": "r"}, {"format": 1, "run": {"run": "r"}, "spans": ["2026-01"], "stages": []})
    registry.promote(1, reason="first", run="r")
    found = registry.lineage(registry.version(1))
    assert (found["model"], found["version"], found["run"]) == ("flights", 1, {"run": "r"})
    assert [event["kind"] for event in found["events"]] == ["promote"]
    path = registry.folder / "1" / "lineage.json"
    path.write_text(path.read_text().replace("2026-01", "2026-02"))
    wanted = [("lineage.json", " its bytes changed")]
    assert [(p.name, problem.split(":")[-1]) for p, problem in registry.verify()] == wanted


def test_a_lineage_that_is_not_there_is_damaged_or_has_another_format_is_refused(registry, saved_model):
    with pytest.raises(StoreError, match="is missing or damaged"):
        registry.lineage(registry.publish(saved_model, {}))
    version = registry.publish(saved_model, {}, {"format": 99})
    with pytest.raises(StoreError, match="in format 99"):
        registry.lineage(version)
    (version.path / "lineage.json").write_text("{")
    with pytest.raises(StoreError, match="damaged"):
        registry.lineage(version)
    assert json.loads((version.path / "version.json").read_text()) == {}
