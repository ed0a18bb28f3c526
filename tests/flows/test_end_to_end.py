"""The whole DAG, typed as a user types it: what runs, what is cached, what is noticed, what is refused."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import roc_auc_score

from tests.waiting import until

pytestmark = pytest.mark.slow


def _run(command, project, *arguments, code=0):
    """`command` is headway, in a process, or typed, in this one."""
    done = command("run", project, "--json", *arguments, check=code)
    return json.loads(done.stdout)


UNNEEDED = {
    *("tensorflow", "keras", "apache_beam", "prefect", "scipy", "sklearn", "mlflow", "obstore", "pyarrow.json"),
    *("asyncio", "multiprocessing", "headway.evaluation.gate", "headway.leakage.proof", "headway.validation.serving"),
    *("headway.sources.formats.csv", "beam_jobs.ingest.range_worker", "beam_jobs.ingest.stage", "tfcore.train.trainer"),
}
"""A run that finds everything done imports none of these, by which stages do their work."""


def _ran(record):
    return [stage["title"] for stage in record["stages"] if not stage["cached"]]


LISTS = """
name: films
source: {format: parquet, path: data.parquet}
label: liked
columns: {tags: {shape: list, separator: "|"}, taste: {shape: 3}, ratings: , age: , user: key}
split: {key: user}
training: {steps: 40, batch_size: 64}
gate: {tolerance: {auc: 0.5, loss: 5}}
"""


@pytest.mark.long
def test_lists_and_vectors_go_from_the_file_to_a_promoted_model_and_a_second_champion(typed, tmp_path):
    """The second champion is trained with other eval rows, for which the rows are ingested again."""
    r = np.random.default_rng(1)
    rows = 1500
    tags = [
        None if r.random() < 0.1 else "|".join(r.choice(["war", "noir", "love"], r.integers(0, 3))) for _ in range(rows)
    ]
    taste = [None if r.random() < 0.1 else r.normal(size=3).tolist() for _ in range(rows)]
    ratings = [None if r.random() < 0.1 else r.normal(size=r.integers(0, 4)).tolist() for _ in range(rows)]
    liked = [int(t is not None and "war" in t) for t in tags]
    made = {"user": np.arange(rows), "tags": tags, "taste": taste, "ratings": ratings, "age": r.normal(size=rows)}
    pq.write_table(pa.table(made | {"liked": liked}), tmp_path / "data.parquet")
    (tmp_path / "pipeline.yaml").write_text(LISTS)
    first = _run(typed, tmp_path)
    assert first["state"] == "promoted", first
    assert first["baselines"]["linear"]["auc"] > 0.99, "it knows the tags"
    second = _run(typed, tmp_path, "--set", "split.eval=0.3", "--force")  # better or not
    assert second["state"] == "promoted" and {"ingest all", "evaluate champion 1"} <= {*_ran(second)}, second
    out, third = tmp_path / "rows.parquet", ("--set", "split.eval=0.3", "--set", "training.steps=5")
    typed("export-rows", tmp_path, "--output", out, *third, check=0)
    judged = json.loads(typed("run", "--to", "evaluate", tmp_path, *third, "--json", check=0).stdout)
    held = pq.read_table(out).to_pandas().query("split == 'eval'")
    auc = roc_auc_score(held.label, held.prediction)  # of the candidate, not of the champion beside it
    assert auc == pytest.approx(judged["metrics"]["auc"], abs=1e-6) != pytest.approx(second["metrics"]["auc"], abs=1e-6)
    assert {tag for tags in held.tags.dropna() for tag in tags} == {"war", "noir", "love"}
    runs = len(json.loads(typed("runs", tmp_path, "--json", check=0).stdout))
    typed("export-rows", tmp_path, "--output", tmp_path / "again.parquet", *third, check=0)
    assert len(json.loads(typed("runs", tmp_path, "--json", check=0).stdout)) == runs, "all of it was there: no run"
    champion = tmp_path / "champion.parquet"  # measured beside the first, not alone
    typed("export-rows", tmp_path, "--output", champion, "--set", "split.eval=0.3", check=0)
    held = pq.read_table(champion).to_pandas().query("split == 'eval'")
    assert roc_auc_score(held.label, held.prediction) == pytest.approx(second["metrics"]["auc"], abs=1e-6)
    assert len(json.loads(typed("runs", tmp_path, "--json", check=0).stdout)) == runs, "nor after a promotion"


PREPROCESS = """
import tensorflow as tf

def preprocess(columns):
    return {"route": tf.strings.join([columns["origin"], columns["carrier"]], "-")}
"""


def test_a_preprocess_function_is_analysed_trained_with_and_exported(typed, project):
    (project / "features.py").write_text(PREPROCESS)
    config = project / "pipeline.yaml"
    config.write_text(config.read_text() + "preprocess: features:preprocess\n")
    first = _run(typed, project, "--until", "2013-02")
    assert first["state"] == "promoted" and "analyse" in _ran(first)
    assert _ran(_run(typed, project, "--until", "2013-02")) == []
    (project / "features.py").write_text(PREPROCESS.replace('"-"', '"/"'))
    again = _ran(_run(typed, project, "--until", "2013-02", code=4))  # as good, on the same data: version 1 stays
    assert again[:2] == ["analyse", "transform"], again


def test_a_retrain_does_only_what_changed_and_ends_promoted(headway, typed, project):
    first = _run(typed, project, "--until", "2013-03")
    assert first["state"] == "promoted" and first["version"] == 1
    assert first["verdict"]["status"] == "promoted"
    assert (project / "store" / "serving" / "flights" / "1" / "saved_model.pb").exists()

    # nothing changed, right after a promotion
    before = sum(os.times()[2:4])
    env = os.environ | {"PYTHONPROFILEIMPORTTIME": "1"}
    done = headway("run", project, "--json", "--until", "2013-03", env=env, imports=True)
    assert sum(os.times()[2:4]) - before < 10, "of a processor, whatever else it does"
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "flows.pipeline.dag" in imported and not sorted(imported & UNNEEDED)
    again = json.loads(done.stdout)
    assert again["state"] == "already champion" and _ran(again) == []

    # one span more: one span is ingested
    second = _run(typed, project, "--until", "2013-04")
    assert second["state"] == "promoted" and second["version"] == 2
    report = Path(second["report"]).read_text(encoding="utf-8")
    assert "Version 2 is promoted" in report and "ROC curve" in report and "2013-04.parquet" in report
    ingested = [title for title in _ran(second) if title.startswith("ingest")]
    assert ingested == ["ingest 2013-04"]
    assert "evaluate champion 1" in _ran(second)

    # what the second was made from, and how the two differ on the rows that its run scored with both
    lineage = json.loads((project / "store" / "models" / "flights" / "2" / "lineage.json").read_text())
    assert lineage["champion"] == 1 and lineage["run"]["run"] == second["run"]
    assert [span["span"] for span in lineage["spans"]] == second["spans"]
    assert all(span["files"] and span["shards"] and span["rows"]["read"] for span in lineage["spans"])
    compared = json.loads(typed("compare", project, "1", "2", "--json", check=0).stdout)
    keys = {each["key"] for each in compared["differences"]}
    assert "train spans" in keys and not any(key.startswith(("column", "training", "raw files")) for key in keys)
    (auc,) = (each for each in compared["same"]["checks"] if each["metric"] == "auc" and each["slice"] is None)
    assert auc["interval"][0] <= auc["change"] <= auc["interval"][1]

    # another learning rate: training and what follows, nothing before
    plan = json.loads(typed("plan", project, "--json", "--set", "training.learning_rate=0.02", check=0).stdout)
    missing = [step["step"] for step in plan["steps"] if not step["cached"]]
    assert missing[0] == "train" and not any(step.startswith("ingest") for step in missing)
    assert "learning_rate" in next(step["why"] for step in plan["steps"] if step["step"] == "train")

    # a deleted shard is noticed at once, and only that span is made again
    shard = next((project / "store" / "stages" / "ingest").glob("*/*.tfrecord"))
    shard.unlink()
    plan = json.loads(typed("plan", project, "--json", check=0).stdout)
    missing = [step for step in plan["steps"] if not step["cached"]]
    assert len(missing) == 1 and "is gone" in missing[0]["why"]
    repaired = _run(typed, project)
    assert len(_ran(repaired)) == 1 and repaired["state"] == "already champion"

    # a flipped byte, of a span that trains, is found by verify
    trains = next(stage["fingerprint"] for stage in second["stages"] if stage["title"] == "ingest 2013-01")
    shard = next((project / "store" / "stages" / "ingest" / trains).glob("*.tfrecord"))
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    done = typed("verify", project, check=5)
    assert shard.name in done.stdout and "crc32c" in done.stdout
    # and by the reader: the file is named, and the span made anew by the same run
    done = typed("run", "--to", "train", project, "--seed", "9", check=0)
    assert shard.name in done.stderr and "is run again" in done.stderr

    # back to the version before; the model that was rolled back returns only by force
    typed("rollback", project, check=0)
    models = json.loads(typed("models", project, "--json", check=0).stdout)["flights"]
    assert models["champion"] == 1
    assert sorted(int(p.name) for p in (project / "store" / "serving" / "flights").iterdir()) == [1, 2, 3]
    assert _run(typed, project, code=4)["verdict"]["status"] == "rejected"
    forced = _run(typed, project, "--force")
    assert forced["verdict"]["status"] == "promoted" and forced["state"] == "promoted"


@pytest.mark.long
def test_a_stop_keeps_what_was_done_and_the_next_run_resumes(typed, exported, fork_server):
    steps = ["--set", "training.steps=200000"]
    process = fork_server.start("-m", "flows.cli", "run", exported, *steps)
    checkpoints = exported / "store" / "checkpoints"
    until(lambda: any(checkpoints.glob("*/*")))
    os.kill(process.pid, signal.SIGINT)
    with process.stderr, process.stdout, process.stdin:
        errors = process.stderr.read().decode()
    assert process.wait() == 130, errors
    assert "Traceback" not in errors
    assert any(checkpoints.glob("*/*"))
    assert not list((exported / "store" / "stages" / ".staging").iterdir())
    plan = json.loads(typed("plan", exported, "--json", *steps, check=0).stdout)
    assert next(step["step"] for step in plan["steps"] if not step["cached"]) == "train"
    runs = json.loads(typed("runs", exported, "--json", check=0).stdout)
    assert runs[0]["state"] == "cancelled"


def test_a_second_run_at_the_same_time_says_who_holds_the_lock(typed, project):
    code = (
        "import sys, time; from pathlib import Path; from headway.storage.store import Store\n"
        f"lock = Store(Path({str(project / 'store')!r})).lock('run-flights', {{'run': 'the-other'}})\n"
        "lock.acquire(); print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline().strip() == "held"
        done = typed("run", project, check=6)
        assert "the-other" in done.stderr and str(holder.pid) in done.stderr
    finally:
        holder.kill()
        holder.wait()
