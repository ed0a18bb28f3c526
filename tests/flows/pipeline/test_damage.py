"""What is damaged in a store is removed where a run makes it anew, and only named where nothing would bring it back."""

import json

import pytest

from flows.cli.app import main
from headway.registry.gc import run_lease
from headway.registry.registry import Registry
from headway.registry.versions import SAVED_MODEL
from headway.storage.store import Store

A, B = "a" * 32, "b" * 32


@pytest.fixture
def store(tmp_path):
    (tmp_path / "pipeline.yaml").write_text(
        "name: small\nsource: {format: csv, path: '{span}.csv'}\nlabel: y\ncolumns: auto\n"
    )
    store = Store(tmp_path / "store")
    store.create()
    for stage, fingerprint in (("ingest", A), ("ingest", B), ("train", A)):
        with store.open(stage, fingerprint, {}) as staging:
            for name in ("one", "two"):
                (staging.path / name).write_bytes(b"as written")
            staging.commit(result={})
    return store


@pytest.fixture
def registry(store, tmp_path):
    folder = tmp_path / "exported"
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(b"graph")
    registry = Registry(store, "small")
    registry.publish(folder, {})
    registry.promote(1, reason="the first")
    return registry


@pytest.fixture
def verify(tmp_path, capsys):
    """(exit code, what is printed) of headway verify."""

    def call(*arguments):
        code = main(["verify", str(tmp_path), *arguments])
        return code, capsys.readouterr().out

    return call


def damage(*files):
    for file in files:
        file.chmod(0o644)
        file.write_bytes(b"as_written"[: len(file.read_bytes())])


def test_damaged_outputs_are_removed_and_whole_ones_stay(store, verify):
    damage(store.output("ingest", A) / "one", store.output("ingest", A) / "two")
    (store.output("train", A) / "manifest.json").write_text("{")
    code, told = verify()
    assert code == 5 and told.count("fix:") == 1 and "verify --repair" in told
    assert len([*store.all_outputs()]) == 3

    code, told = verify("--repair")
    lines = told.strip().splitlines()
    assert code == 0 and len(lines) == 2
    assert f"ingest/{A}: one has crc32c" in lines[0] and "and 1 file more: removed" in lines[0]
    assert [*store.all_outputs()] == [("ingest", store.output("ingest", B))]
    assert verify() == (0, "1 output: every byte is as written\n")
    assert verify("--repair")[0] == 0


def test_a_version_is_only_named_with_what_to_do(store, registry, verify):
    damage(store.output("ingest", A) / "one", registry.folder / "1" / SAVED_MODEL / "saved_model.pb")
    (store.runs_folder / "9.json").write_text("{")
    code, told = verify("--repair", "--json")
    found = json.loads(told)
    assert code == 5 and found["removed"] == [str(store.output("ingest", A))]
    left = {item["path"].removeprefix(f"{store.root}/"): item["fix"] for item in found["left"]}
    assert set(left) >= {"models/small/1", "runs/9.json"} and "backup" in left["models/small/1"]
    assert (registry.folder / "1" / SAVED_MODEL / "saved_model.pb").is_file()
    assert {item["file"] for item in found["problems"]} >= {str(store.output("ingest", A) / "one")}
    assert "backup" in verify()[1]


def test_nothing_is_removed_while_a_run_goes_on(store, verify):
    damage(store.output("ingest", A) / "one")
    with run_lease(store, "small", "theirs"):
        assert verify("--repair")[0] == 6
    assert store.output("ingest", A).is_dir()
