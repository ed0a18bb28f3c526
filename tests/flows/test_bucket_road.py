"""The whole road with the store in a bucket: one machine runs it, another goes on from there."""

import json
import os

import pytest

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
