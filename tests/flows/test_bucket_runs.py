"""The whole DAG with raw files and store in a bucket: one machine begins, others go on from there."""

import json
import os
import shutil

import pytest

from headway.storage.bucket import Bucket
from headway.storage.manifest import checksum

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_everything_lies_in_a_bucket_and_another_machine_goes_on_where_the_first_stopped(
    headway, typed, project, bucket_url, tmp_path
):
    raw, store = Bucket(f"{bucket_url}/raw"), Bucket(f"{bucket_url}/team/store")
    for path in (project / "data").iterdir():
        raw.put(path.name, path, checksum(path)[1])
    shutil.rmtree(project / "data")
    text = (project / "pipeline.yaml").read_text()
    text = text.replace("data/{span}", f"{raw.url}/{{span}}").replace("store: store", f"store: {store.url}")
    (project / "pipeline.yaml").write_text(text)

    def run(machine, *arguments, command=typed, code=0):
        environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / machine)}
        return json.loads(command(*arguments, "--json", check=code, env=environment).stdout)

    def ran(record):
        return [stage["title"] for stage in record["stages"] if not stage["cached"]]

    command = headway if bucket_url.startswith("s3") else typed
    first = run("a", "run", project, "--to", "train", "--until", "2013-03", command=command)
    assert first["state"] == "done" and not any(stage["cached"] for stage in first["stages"])

    # the other machine has no file of it: it fetches what the stages that are left read
    second = run("b", "run", project, "--until", "2013-03")
    assert second["state"] == "promoted" and ran(second) == ["evaluate", "measure", "gate", "export", "replay"]
    report = f"{store.url}/runs/{second['run']}.html"
    assert second["report"] == report
    assert b"Version 1 is promoted" in store.read(report.removeprefix(f"{store.url}/"))

    kept = store.listing("stages")
    for machine in ("a", "c"):  # one that was there before, and one that never was
        third = run(machine, "run", project, "--until", "2013-03")
        assert third["state"] == "already champion" and not ran(third)
    assert store.listing("stages") == kept, "nothing was put"
    working = tmp_path / "c" / "headway" / bucket_url.replace("://", "/") / "team" / "store"
    assert working.is_dir() and not list(working.rglob("*.tfrecord")), "nothing was fetched"

    output = f"{bucket_url}/scored"
    asked = ["predict", project, "--input", f"{raw.url}/2013-04.parquet", "--output", output, "--columns", "flight"]
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "c")}
    refused = typed(*asked[:5], f"{bucket_url}/raw", check=5, env=environment)
    assert "no prediction wrote what is in it" in refused.stderr

    fourth = run("c", "run", project, "--until", "2013-04")
    assert fourth["state"] == "promoted" and fourth["version"] == 2
    if bucket_url.startswith("s3"):
        assert run("b", "rollback", project)["version"] == 1
        listed = typed("models", project, check=0, env=environment).stdout
        assert f" {store.url}/models/flights/1/" in listed and str(tmp_path / "c") not in listed, (
            "where others find them"
        )
        return  # the endpoint of S3 runs in this process and is slow; what the registry and jobs ask of it: test_remote_store.py
    assert len(run("b", "runs", project)) == 5
    report = run("a", "report", project)["report"]
    assert report == f"{store.url}/runs/{fourth['run']}.html"
    assert b"Version 2 is promoted" in store.read(report.removeprefix(f"{store.url}/"))
    assert run("a", "models", project)["flights"]["champion"] == 2
    run("c", "verify", project)
    assert run("b", "rollback", project)["version"] == 1
    assert run("a", "models", project)["flights"]["champion"] == 1
    assert run("d", "clean", project, "--keep", "1")["dry_run"]
    assert not (project / "store").exists()

    result = run("c", *asked)
    assert result["version"] == 1 and result["counts"]["predicted"] == 2000 and result["output"] == output
    scored = Bucket(output)
    assert sorted(scored.listing()) == sorted(["predictions.json", *(part["file"] for part in result["parts"])])
    for part in result["parts"]:
        assert scored.checksums([part["file"]]) == [(part["bytes"], part["crc32c"])]
    written = scored.listing()
    assert run("c", *asked)["cached"] and scored.listing() == written
    assert not run("e", *asked, "--write", "jsonl")["cached"]
    assert all(name.endswith((".jsonl", "predictions.json")) for name in scored.listing())

    damaged = next(name for name in store.listing("stages/ingest") if name.endswith(".tfrecord"))
    data = store.read(damaged)
    store.write(damaged, data[:-1] + bytes([data[-1] ^ 1]))
    found = typed("verify", project, env=environment)
    assert found.returncode != 0 and damaged.rpartition("/")[2] in found.stdout + found.stderr
