"""What a version says it was made from."""

import json

import pytest

from headway.errors import StoreError
from headway.storage.manifest import checksum


@pytest.fixture
def traced(registry, saved_model, tmp_path):
    """A version with a lineage of two raw files, one ingested span and one gate."""
    files = []
    for name in ("a.csv", "b.csv"):
        path = tmp_path / name
        path.write_text(f"x\n{name}\n")
        size, crc = checksum(path)
        files.append({"path": str(path), "bytes": size, "crc32c": crc})
    for stage in ("ingest", "gate"):
        with registry.store.open(stage, stage * 4, {"files": [{"bytes": 8, "crc32c": "0"}]}) as staging:
            (staging.path / "train-00000-of-00001.tfrecord").write_text("rows")
            staging.commit(result={})
    stages = [
        {"stage": s, "title": t, "fingerprint": s * 4} for s, t in (("ingest", "ingest 2026-01"), ("gate", "gate"))
    ]
    spans = [{"span": "2026-01", "ingest": "ingest" * 4, "files": files, "shards": []}]
    known = {"format": 1, "run": {"run": "r"}, "champion": None, "spans": spans, "stages": stages}
    registry.publish(saved_model, {"run": "r"}, known)
    registry.promote(1, reason="first", run="r")
    return registry


def test_a_lineage_is_kept_with_the_version_and_checked_with_it(traced):
    found = traced.lineage(traced.version(1))
    assert (found["model"], found["version"], found["run"]) == ("flights", 1, {"run": "r"})
    assert [event["kind"] for event in found["events"]] == ["promote"]
    path = traced.folder / "1" / "lineage.json"
    path.write_text(path.read_text().replace("2026-01", "2026-02"))
    assert [(p.name, problem.split(":")[-1]) for p, problem in traced.verify()] == [
        ("lineage.json", " its bytes changed")
    ]


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
