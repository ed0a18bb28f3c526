"""A pipeline without settings on a small table: a good first model, whose chosen settings are written out."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

PIPELINE = "name: small\nsource: {format: parquet, path: table.parquet}\nlabel: kind\ncolumns: auto\ntraining: auto\n"


@pytest.mark.long
def test_a_small_table_is_learned_and_the_same_settings_written_out_are_the_same_training(typed, tmp_path):
    random = np.random.default_rng(5)
    kind = random.integers(0, 3, 240)
    columns = {f"c{i}": random.normal(size=240) + (kind == i % 3) * (3 - i // 3) for i in range(6)}
    table = pa.table(columns | {"kind": pa.array(np.array(["ash", "beech", "cedar"])[kind])})
    pq.write_table(table, tmp_path / "table.parquet")
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)

    before = json.loads(typed("plan", tmp_path, "--json", check=0).stdout)
    assert before["training"] is None  # the train rows are not counted yet
    record = json.loads(typed("run", "--to", "evaluate", tmp_path, "--json", check=0).stdout)
    assert record["metrics"]["accuracy"] > 0.85  # the largest class has a good third of the rows
    assert {each["column"] for each in record["importance"]["columns"]} == {f"c{i}" for i in range(6)}
    chosen = record["training"]
    assert chosen["model"]["name"] == "ensemble" and chosen["training"]["batch_size"] == 32
    assert f"{chosen['training']['steps']:,} steps of 32 rows" in typed("show", tmp_path, check=0).stdout

    (tmp_path / "pipeline.yaml").write_text(
        PIPELINE.replace("auto\n", f"auto\nmodel: {json.dumps(chosen['model'])}\n", 1).replace(
            "training: auto", f"training: {json.dumps(chosen['training'])}"
        )
    )
    plan = json.loads(typed("plan", tmp_path, "--json", check=0).stdout)
    assert all(step["cached"] for step in plan["steps"] if step["stage"] in ("train", "evaluate"))
