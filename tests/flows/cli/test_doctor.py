"""What the doctor says of things that may be missing."""

import re
import socket
from pathlib import Path

from flows.cli import store as doctor
from headway.storage import filesystem
from headway.storage.store import Store
from tfcore.ops.library import sources


def test_an_op_that_is_not_built_is_not_a_fault_and_comes_with_its_use_and_its_command(monkeypatch, tmp_path):
    monkeypatch.delenv("HEADWAY_OPS", raising=False)
    library = tmp_path / "headway_ops.so"
    monkeypatch.setattr(doctor, "op_path", lambda: library)
    ranking = doctor._op()
    assert ranking.ok and ranking.found.startswith("not built") and ranking.word == "absent"
    assert "training.ranking" in ranking.found and "python -m tfcore.ops.compile" in ranking.found
    library.touch()
    assert doctor._op().found == "built" and doctor._op().word == "ok"
    monkeypatch.setenv("HEADWAY_OPS", "off")
    assert doctor._op().found == "built, and switched off by HEADWAY_OPS"


def test_every_compiled_op_is_named():
    named = {doctor._op().what.removeprefix("op ")}
    text = "".join(path.read_text() for path in sources())
    registered = re.findall(r'REGISTER_OP\("Headway(\w+)"\)', text)
    assert named == {re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower() for name in registered} != set()


def test_the_extras_are_named_with_what_installs_them(monkeypatch):
    monkeypatch.setattr(doctor, "missing", lambda name: [name] if name == "mlflow" else [])
    found = {finding.what: finding for finding in doctor._extras()}
    assert found["extra prefect"].word == "ok" and found["extra prefect"].found == "installed"
    assert found["extra mlflow"].ok and found["extra mlflow"].word == "absent", "no fault, and not there"
    assert found["extra mlflow"].found.endswith("to have it: pip install 'headway[mlflow]'")


def test_a_pipeline_that_was_named_and_is_missing_is_a_problem(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    [none] = doctor._project(Path(), {})
    assert none.ok and none.word == "absent" and "this folder has no pipeline.yaml" in none.found
    [missing] = doctor._project(Path("gone.yaml"), {})
    assert not missing.ok and missing.found == f"{tmp_path / 'gone.yaml'}: no such file" and missing.fix


def test_a_bucket_that_cannot_be_reached_and_a_disk_that_cannot_be_written_are_findings(tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    for name, value in {"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(filesystem, "TRIES", 1)
    filesystem._filesystem.cache_clear()
    (tmp_path / "pipeline.yaml").write_text(
        "name: a\nsource: {format: csv, path: a.csv}\nlabel: y\nstore: s3://team/store\n"
    )
    disk, store = [*doctor._project(tmp_path, {})][1:]
    filesystem._filesystem.cache_clear()
    assert disk.what == "disk" and store.word == "PROBLEM" and "refused" in store.found and url in store.fix
    monkeypatch.setattr("os.access", lambda path, mode: False)
    disk, _ = doctor._store(Store(tmp_path / "store"))
    assert not disk.ok and disk.found.endswith(f"{tmp_path}, where this user cannot write")
