"""`headway predict`, typed as a user types it, against a model that `headway run` made."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headway.errors import StoreError
from tfcore.export.metadata import describe_model

pytestmark = pytest.mark.slow

SPECIES = """
name: species
source: {format: csv, path: data.csv}
label: kind
columns: {size: , colour: vocabulary, tags: {shape: list, separator: "|"}, id: key}
split: {key: id}
training: {steps: 60, batch_size: 64}
"""


def _predict(typed, project, *arguments, code=0):
    done = typed("predict", project, "--json", *arguments, check=code)
    return json.loads(done.stdout)


def test_the_champion_predicts_what_it_predicted_in_evaluation(typed, exported, tmp_path):
    project = exported
    missing = typed(
        "predict", project, "--input", project / "data", "--output", tmp_path / "none", "--set", "store=none", check=5
    )
    assert "there is no champion yet" in missing.stderr
    record = json.loads(typed("run", project, "--until", "2013-04", "--json", check=0).stdout)
    # no label is there, nor a column that the model does not take
    april = pq.read_table(project / "data" / "2013-04.parquet").drop_columns(["arr_delay"])
    (tmp_path / "raw").mkdir()
    for i in range(10):
        pq.write_table(april.slice(200 * i, 200), tmp_path / "raw" / f"{i}.parquet", row_group_size=100)
    out = tmp_path / "out"
    arguments = ["--input", tmp_path / "raw", "--output", out, "--columns", "flight,carrier"]
    result = _predict(typed, project, *arguments, "--set", "runner={name: direct, workers: 2}")
    assert result["counts"] == {"read": 2000, "predicted": 2000, "quarantined": 0} and result["version"] == 1
    assert len(result["parts"]) > 5
    found = pa.concat_tables([pq.read_table(out / part["file"]) for part in result["parts"]])
    assert found["flight"].to_pylist() == april["flight"].to_pylist()
    assert found["carrier"].to_pylist() == april["carrier"].to_pylist()
    assert found["source_file"].to_pylist() == [f"{i // 200}.parquet" for i in range(2000)]
    assert found["source_row"].to_pylist() == [*range(1, 201)] * 10

    stage = next(s for s in record["stages"] if s["title"] == "evaluate")
    scored = project / "store" / "stages" / stage["stage"] / stage["fingerprint"]
    judged = pq.read_table(scored / "predictions.parquet")
    # evaluation leaves out rows without a label
    known = pq.read_table(project / "data" / "2013-04.parquet")["arr_delay"].is_valid().to_numpy()
    np.testing.assert_allclose(found["prediction"].to_numpy()[known], judged["prediction"].to_numpy(), atol=1e-5)

    assert _predict(typed, project, *arguments)["cached"]


def test_a_multiclass_model_gives_the_class_and_its_probabilities(typed, tmp_path):
    r = np.random.default_rng(0)
    rows = 1200
    kind = r.choice(["cat", "dog", "owl"], rows)
    size = np.where(kind == "cat", 1.0, np.where(kind == "dog", 5.0, 9.0)) + r.normal(size=rows) * 0.1
    tags = ["|".join(r.choice(["a", "b", "c"], r.integers(0, 3))) for _ in range(rows)]
    colours = r.choice(["red", "NA", "blue"], rows)
    lines = [f"{i},{size[i]:.3f},{colours[i]},{tags[i]},{kind[i]}\n" for i in range(rows)]
    (tmp_path / "data.csv").write_text("id,size,colour,tags,kind\n" + "".join(lines))
    (tmp_path / "pipeline.yaml").write_text(SPECIES)
    typed("run", tmp_path, check=0)
    model = next((tmp_path / "store" / "models").glob("*/1/saved_model"))
    lines[3] = "3,huge,red,,cat\n"
    (tmp_path / "new.csv").write_text("id,size,colour,tags,kind\n" + "".join(lines))
    result = _predict(
        typed, tmp_path, "--model", model, "--input", tmp_path / "new.csv", "--output", tmp_path / "out",
        "--write", "jsonl",
    )  # fmt: skip
    assert result["counts"] == {"read": 1200, "predicted": 1199, "quarantined": 1}
    found = [json.loads(line) for line in (tmp_path / "out" / result["parts"][0]["file"]).read_text().splitlines()]
    assert [row["id"] for row in found] == [i for i in range(rows) if i != 3]
    assert np.mean([row["prediction"] == kind[row["id"]] for row in found]) > 0.8
    assert all(abs(sum(row["probabilities"]) - 1) < 1e-5 for row in found)


def test_a_model_that_does_not_say_which_columns_it_takes_is_refused(tmp_path):
    with pytest.raises(StoreError, match="not a SavedModel"):
        describe_model(tmp_path)
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(StoreError, match="does not say which columns it takes"):
        describe_model(tmp_path)
