"""Rows of one patient stay together all the way: in the split, the holdout of the training and of tune, the predictions."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headway.schema.columns import UNIT
from headway.storage.store import Store

PATIENTS, VISITS = 300, 20
PIPELINE = """
name: patients
source: {format: parquet, path: table.parquet}
label: y
columns: COLUMNS
split: SPLIT
model: {name: mlp, hidden: [64, 64]}
training:
  steps: 600
  batch_size: 64
  learning_rate: 0.005
  jit: "off"
  early_stopping: {every_steps: 25, patience: 6, holdout: 0.2}
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("columns", "split"),
    [("auto", "{key: patient}"), ('{"*": auto, patient: {role: group}}', "{}")],
    ids=["key", "group"],
)
def test_patients_are_not_learned_by_heart(typed, tmp_path, columns, split):
    """Six columns tell a patient from others, and the label is mostly the patient's own; little of it can be learned."""
    r = np.random.default_rng(0)
    patient = r.permutation(np.repeat(np.arange(PATIENTS), VISITS))
    known, own = r.normal(size=(PATIENTS, 6)), r.normal(size=PATIENTS) * 1.5
    features = {f"f{i}": known[patient, i] + 0.1 * r.normal(size=len(patient)) for i in range(6)}
    chance = 1 / (1 + np.exp(-own[patient] - 0.5 * known[patient, 0]))
    table = pa.table({**features, "patient": patient, "y": (r.random(len(patient)) < chance).astype(np.int64)})
    pq.write_table(table, tmp_path / "table.parquet")
    (tmp_path / "pipeline.yaml").write_text(PIPELINE.replace("COLUMNS", columns).replace("SPLIT", split))
    record = json.loads(typed("run", "--to", "evaluate", tmp_path, "--json", check=0).stdout)
    trained = next(m.result for m in Store(tmp_path / "store").manifests("train"))
    assert trained["stopped"] == "early" and trained["best_step"] < 300
    loss, constant = record["metrics"]["loss"], np.log(2)
    assert loss < constant + 0.02 and abs(trained["best_loss"] - loss) < 0.06  # of single rows 0.55, and eval 0.9
    predictions = pq.read_table(f"{record['outputs']['evaluate']}/predictions.parquet")
    if split == "{}":
        codes = predictions["patient"].to_numpy()
        group = next(m.key["group"] for m in Store(tmp_path / "store").manifests("evaluate"))
        assert group == "patient", "how much a column matters has intervals of patients"
    else:
        codes = predictions[UNIT].to_numpy()
        inputs = next(m.result for m in Store(tmp_path / "store").manifests("transform"))["parameters"]
        assert not {"patient", UNIT} & set(json.dumps(inputs).split('"'))
    _, counts = np.unique(codes, return_counts=True)
    assert set(counts) == {VISITS}
