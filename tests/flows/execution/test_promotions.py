"""`headway promote` without a version: the candidate that the last run left, and no other model."""

import json
import shutil


def test_promote_takes_the_candidate_of_the_last_run_though_newer_data_have_landed(typed, exported):
    held = json.loads(typed("run", exported, "--json", "--set", "gate.hold=true", check=4).stdout)
    assert held["state"] == "held" and len(held["spans"]) == 4
    shutil.copy(exported / "data" / "2013-04.parquet", exported / "data" / "2013-05.parquet")

    # what would be trained anew is refused, and said
    said = typed("promote", exported, "--set", "training.steps=61", check=2).stderr
    assert "train would run again (training.steps is 61, before 60)" in said and held["run"] in said
    assert "2013-05" in typed("promote", exported, "--until", "2013-05", check=2).stderr

    done = json.loads(typed("promote", exported, "--json", check=0).stdout)
    assert done["spans"] == held["spans"] and done["state"] == "promoted", "the window of the run that was held"
    assert not [step["title"] for step in done["stages"] if not step["cached"] and step["stage"] in ("ingest", "train")]
    assert done["verdict"]["promote"]
    assert "no candidate waits" in typed("promote", exported, check=5).stderr
    shutil.rmtree(exported / "store" / "runs")
    assert "no candidate waits" in typed("promote", exported, check=5).stderr
