"""The whole road with the store in a bucket: one machine runs it, another goes on from there; raw files too."""

import json
import os
import shutil

import pytest

from headway.bucket import Bucket
from headway.manifest import checksum

pytestmark = pytest.mark.slow


def test_another_machine_goes_on_where_the_first_stopped(headway, project, bucket_name, tmp_path):
    url = f"s3://{bucket_name}/team/store"
    text = (project / "pipeline.yaml").read_text()
    (project / "pipeline.yaml").write_text(text.replace("store: store", f"store: {url}"))

    def run(machine, *arguments, code=0):
        environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / machine)}
        return json.loads(headway(*arguments, "--json", check=code, env=environment).stdout)

    assert not (project / "store").exists()
    first = run("a", "train", project, "--until", "2013-03")
    assert first["state"] == "done" and not all(stage["cached"] for stage in first["stages"])

    # the other machine has no file of it: it fetches what the stages that are left read
    second = run("b", "run", project, "--until", "2013-03")
    assert second["state"] == "promoted"
    ran = [stage["title"] for stage in second["stages"] if not stage["cached"]]
    assert ran == ["evaluate", "gate", "export", "replay"]

    third = run("a", "run", project, "--until", "2013-03")
    assert third["state"] == "already champion" and all(stage["cached"] for stage in third["stages"])
    fourth = run("c", "run", project, "--until", "2013-04")
    assert fourth["state"] == "promoted" and fourth["version"] == 2
    assert len(run("b", "runs", project)) == 4
    models = run("a", "models", project)["flights"]
    assert models["champion"] == 2
    run("c", "verify", project)
    rolled = run("b", "rollback", project)
    assert rolled
    assert run("a", "models", project)["flights"]["champion"] == 1
    assert run("d", "gc", project, "--keep", "1", "--dry-run") is not None
    assert not (project / "store").exists()


def test_everything_from_the_raw_files_to_the_predictions_lies_in_a_bucket(headway, project, bucket_url, tmp_path):
    raw, store = Bucket(f"{bucket_url}/raw"), Bucket(f"{bucket_url}/store")
    for path in (project / "data").iterdir():
        raw.put(path.name, path, checksum(path)[1])
    shutil.rmtree(project / "data")
    text = (project / "pipeline.yaml").read_text()
    text = text.replace("data/{span}", f"{raw.url}/{{span}}").replace("store: store", f"store: {store.url}")
    (project / "pipeline.yaml").write_text(text)
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}

    def run(*arguments, code=0):
        return json.loads(headway(*arguments, "--json", check=code, env=environment).stdout)

    first = run("run", project, "--until", "2013-03")
    assert first["state"] == "promoted" and not any(stage["cached"] for stage in first["stages"])
    shutil.rmtree(tmp_path / "cache")
    kept = store.listing("stages")
    second = run("run", project, "--until", "2013-03")
    assert second["state"] == "already champion" and all(stage["cached"] for stage in second["stages"])
    assert store.listing("stages") == kept, "nothing was put"
    working = tmp_path / "cache" / "headway" / bucket_url.replace("://", "/") / "store"
    assert not list(working.rglob("*.tfrecord")), "nothing was fetched"

    assert run("run", project, "--until", "2013-04")["version"] == 2
    run("verify", project)
    assert run("rollback", project)["version"] == 1
    output = f"{bucket_url}/scored"
    asked = ["predict", project, "--input", f"{raw.url}/2013-04.parquet", "--output", output, "--columns", "flight"]
    result = run(*asked)
    assert result["version"] == 1 and result["counts"]["predicted"] == 2000 and result["output"] == output
    scored = Bucket(output)
    assert sorted(scored.listing()) == sorted(["predictions.json", *(part["file"] for part in result["parts"])])
    for part in result["parts"]:
        assert scored.checksum(part["file"]) == (part["bytes"], part["crc32c"])
    written = scored.listing()
    assert run(*asked)["cached"] and scored.listing() == written
    shutil.rmtree(tmp_path / "cache")
    assert not run(*asked, "--write", "jsonl")["cached"]
    assert all(name.endswith((".jsonl", "predictions.json")) for name in scored.listing())
    refused = headway(*asked[:5], f"{bucket_url}/raw", check=5, env=environment)
    assert "no prediction wrote what is in it" in refused.stderr
    damaged = next(name for name in store.listing("stages/ingest") if name.endswith(".tfrecord"))
    data = store.read(damaged)
    store.write(damaged, data[:-1] + bytes([data[-1] ^ 1]))
    found = headway("verify", project, check=None, env=environment)
    assert found.returncode != 0 and damaged.rpartition("/")[2] in found.stdout + found.stderr
