"""tfcore.evaluation.stage: predictions in the order of the shards, of a trained model and of a SavedModel."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from headway.errors import ConfigError, DataError, StoreError
from headway.evaluation import predictions
from headway.metrics.classification import auc
from headway.monitor import Monitor
from headway.schema.columns import UNIT, UNIT_COLUMN, Column
from headway.tasks.table import task_of
from tests.example_shards import write_examples
from tfcore.evaluation.request import EvaluateRequest, SavedModel, TrainedModel
from tfcore.evaluation.stage import predict, to_arrow_column
from tfcore.export.saved_model import ExportRequest, export
from tfcore.models.config import ModelConfig
from tfcore.train.config import TrainingConfig
from tfcore.train.request import TrainRequest
from tfcore.train.stage import train

ROWS = 5000
MODEL = ModelConfig(name="mlp", hidden=(8,), embedding=2)
COLUMNS = (
    Column(name="delay", type="float32", nullable=True),
    Column(name="hour", type="int64", nullable=False),
    Column(name="carrier", type="bytes", nullable=True, encoding="dictionary"),
    Column(name="house", type="int64", nullable=False, role="group"),
    Column(name="importance", type="float32", nullable=False, role="weight"),
)


def table(task, rows, seed):
    rng = np.random.default_rng(seed)
    delay, carrier = rng.standard_normal(rows).astype(np.float32), rng.integers(0, 3, rows)
    score = delay + 0.8 * carrier - 0.8 + 0.5 * rng.standard_normal(rows)
    label = {
        "binary": pa.array((score > 0).astype(np.int64)),
        "multiclass": pa.array([[b"early", b"fair", b"late"][i] for i in np.digitize(score, [-0.7, 0.7])], pa.binary()),
        "regression": pa.array((10 * score).astype(np.float32)),
    }[task]
    return pa.table(
        {
            "delay": pa.array(delay, mask=rng.random(rows) < 0.1),
            "hour": pa.array(rng.integers(0, 24, rows)),
            "carrier": pa.array([b"AA", b"BB", b"\xff"]).take(pa.array(carrier, mask=rng.random(rows) < 0.05)),
            "house": pa.array(rng.integers(0, 40, rows)),
            "importance": pa.array(rng.uniform(0.5, 2, rows).astype(np.float32)),
            "label": label,
        }
    )


class World:
    """A trained and exported model of a task, and the rows it is evaluated on."""

    def __init__(self, folder, task):
        kind = {"binary": "int64", "multiclass": "bytes", "regression": "float32"}[task]
        columns = (*COLUMNS, Column(name="label", type=kind, nullable=False, role="label"))
        self.task, self.folder, self.rows = task, folder, table(task, ROWS, 2)
        splits = {"train": table(task, 3000, 1), "eval": self.rows}
        self.examples = write_examples(folder / "examples", splits, columns, rows_per_record=512, shards=3)
        self.transform = self.examples.fit(task=task)
        self.saved = folder / "export" / "saved_model"
        trained = TrainRequest(
            examples=(self.examples.part("train"),),
            transform=self.transform,
            model=MODEL,
            training=TrainingConfig(steps=150, batch_size=128, learning_rate=0.01, jit="off"),
        )
        train(trained, folder / "trained", Monitor())
        (folder / "export").mkdir()
        request = ExportRequest(trained=folder / "trained", transform=self.transform, model=MODEL)
        export(request, folder / "export", Monitor())

    def request(self, model=None, **changes):
        model = model or TrainedModel(path=self.folder / "trained", config=MODEL)
        return EvaluateRequest(
            model=model, transform=self.transform, examples=(self.examples.part("eval"),), batch_size=700, **changes
        )


@pytest.fixture(scope="module")
def binary(tmp_path_factory):
    return World(tmp_path_factory.mktemp("binary"), "binary")


@pytest.fixture(scope="module", params=["multiclass", "regression"])
def other(tmp_path_factory, request):
    return World(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def without_unit(binary, tmp_path_factory):
    """(predictions, metrics) of the trained model and of its SavedModel where records have no unit."""
    found = []
    for model in (None, SavedModel(path=binary.saved)):
        out = tmp_path_factory.mktemp("without_unit")
        result = predict(binary.request(model, columns=("hour",)), out, Monitor())
        found.append((pq.read_table(out / result["predictions"]), result["metrics"]))
    return found


def test_predictions_have_the_unit_of_the_split_where_records_have_it(binary, without_unit, tmp_path):
    """Of a trained model and of a SavedModel, which takes no such column; a row without a key has none."""
    units = pa.array([None if i % 13 == 0 else i % 40 for i in range(ROWS)], pa.int64())
    splits = {"eval": binary.rows.append_column(UNIT, units)}
    columns = (*binary.examples.columns, UNIT_COLUMN)
    examples = write_examples(tmp_path / "examples", splits, columns, rows_per_record=512)
    for number, model in enumerate([None, SavedModel(path=binary.saved)]):
        request = binary.request(model, columns=("hour",)).model_copy(update={"examples": (examples.part("eval"),)})
        result = predict(request, tmp_path / str(number), Monitor())
        written = pq.read_table(tmp_path / str(number) / result["predictions"])
        assert written.column_names == ["row", "label", "weight", "prediction", "hour", UNIT]
        before, metrics = without_unit[number]
        assert written[UNIT].combine_chunks() == units and result["metrics"] == metrics
        if number == 0:
            assert written.drop_columns([UNIT])["prediction"] == before["prediction"]


def test_every_row_is_predicted_once_in_order_with_its_slices_and_group(binary, tmp_path):
    result = predict(binary.request(columns=("carrier", "hour", "house")), tmp_path, Monitor())
    json.dumps(result)
    written = pq.read_table(tmp_path / result["predictions"])
    assert written.column_names == ["row", "label", "weight", "prediction", "carrier", "hour", "house"]
    assert written["row"].to_pylist() == list(range(ROWS))
    assert written["label"].to_pylist() == binary.rows["label"].to_pylist()
    assert np.allclose(written["weight"], binary.rows["importance"])
    assert written["house"].to_pylist() == binary.rows["house"].to_pylist()
    names = {b"AA": "AA", b"BB": "BB", b"\xff": "\\xff", None: None}
    assert written["carrier"].to_pylist() == [names[value] for value in binary.rows["carrier"].to_pylist()]
    assert written["prediction"].type == pa.float64()
    assert (result["rows"], result["traces"]) == (ROWS, 1)
    beside = pq.read_table(tmp_path / result["baselines"]["linear"])
    assert beside.drop_columns("prediction").equals(written.drop_columns("prediction"))
    assert auc(beside["label"].to_numpy(), beside["prediction"].to_numpy()) > 0.85
    assert result["metrics"]["auc"] > 0.85
    assert abs(result["metrics"]["calibration"] - 1) < 0.2
    expected = np.load(tmp_path / "expected.npy")
    assert expected.dtype == np.float32
    assert expected.shape == (2000,)
    assert np.allclose(expected, written["prediction"].to_numpy()[:2000], atol=1e-6)


def test_metrics_of_more_rows_than_are_judged_are_of_the_rows_that_the_gate_judges(binary, tmp_path, monkeypatch):
    monkeypatch.setattr(predictions, "MOST_ROWS", 1500)
    result = predict(binary.request(columns=("house",), group="house"), tmp_path, Monitor())
    judged = predictions.read_predictions(tmp_path / result["predictions"], {"house"}, group="house")
    assert predictions.population_size(judged) == ROWS
    task = task_of("binary")
    assert result["metrics"] == predictions.measured(task.metrics, predictions.rows_of(judged, task))


def test_other_tasks(other, tmp_path):
    trained = predict(other.request(columns=("carrier",)), tmp_path / "a", Monitor())
    predict(other.request(SavedModel(path=other.saved)), tmp_path / "b", Monitor())
    a, b = (pq.read_table(tmp_path / name / "predictions.parquet")["prediction"].to_pylist() for name in "ab")
    assert np.abs(np.asarray(a) - np.asarray(b)).max() < 1e-5
    if other.task == "multiclass":
        assert np.allclose(np.asarray(a).sum(1), 1)
        assert trained["metrics"]["accuracy"] > 0.6
    else:
        assert trained["metrics"]["rmse"] < 9


def test_a_saved_model_that_does_not_fit_is_reported_as_incompatible(binary, other, tmp_path):
    def reason(saved, examples=binary.examples, transform=binary.transform):
        request = EvaluateRequest(model=SavedModel(path=saved), transform=transform, examples=(examples.part("eval"),))
        result = predict(request, tmp_path / "out", Monitor())
        assert not (tmp_path / "out" / "predictions.parquet").exists()
        return result["incompatible"]

    assert "no output 'probability' for a binary label" in reason(other.saved)
    columns = [c for c in binary.examples.columns if c.name != "hour"]
    fewer = write_examples(tmp_path / "fewer", {"eval": binary.rows.drop(["hour"])}, columns)
    assert reason(binary.saved, fewer) == "it needs column 'hour', which is not among the stored ones"
    columns = [
        Column(name="hour", type="float32", nullable=False) if c.name == "hour" else c for c in binary.examples.columns
    ]
    hour = binary.rows["hour"].cast(pa.float32())
    changed = binary.rows.set_column(1, "hour", hour)
    retyped = write_examples(tmp_path / "retyped", {"eval": changed}, columns)
    assert "takes column 'hour' as int64, and it is float32 now" in reason(binary.saved, retyped)
    columns = [c.model_copy(update={"nullable": True}) for c in binary.examples.columns]
    hour = pa.array(binary.rows["hour"].to_numpy(), mask=np.arange(ROWS) == 77)
    nulls = write_examples(tmp_path / "nulls", {"eval": binary.rows.set_column(1, "hour", hour)}, columns)
    assert reason(binary.saved, nulls) == "column 'hour' has nulls now, which it does not take"

    tf.saved_model.save(tf.Module(), str(tmp_path / "bare"))
    assert reason(tmp_path / "bare") == "it has no signature serving_nullable"
    with pytest.raises(StoreError, match="no SavedModel"):
        reason(tmp_path / "gone")


def test_mistakes_are_named(binary, tmp_path):
    with pytest.raises(ConfigError, match="'carier' is not a stored column"):
        predict(binary.request(columns=("carier",)), tmp_path, Monitor())
    empty = binary.examples.result | {"splits": {"eval": {"rows": 0, "shards": []}}}
    part = binary.examples.part("eval").model_copy(update={"result": empty})
    with pytest.raises(DataError, match="eval split has no rows"):
        predict(binary.request().model_copy(update={"examples": (part,)}), tmp_path, Monitor())
    model = TrainedModel(path=binary.folder / "trained", config=ModelConfig(name="mlp", hidden=(9,), embedding=2))
    with pytest.raises(StoreError, match="another model"):
        predict(binary.request(model), tmp_path, Monitor())


def test_predictions_are_written_in_row_groups_as_they_are_made(binary, tmp_path, monkeypatch):
    monkeypatch.setattr("tfcore.evaluation.stage.PARQUET_ROWS", 1000)
    result = predict(binary.request(), tmp_path, Monitor())
    for name in (result["predictions"], result["baselines"]["linear"]):
        metadata = pq.read_metadata(tmp_path / name)
        assert metadata.num_rows == ROWS and metadata.num_row_groups == 4, "of whole batches of 700 rows"


def test_kept_columns_keep_their_types():
    present = np.array([True, True, False])
    assert to_arrow_column(np.array([5, -1, 0]), present).to_pylist() == [5, -1, None]
    assert to_arrow_column(np.array([0.5, 2, 3], np.float32), present).type == pa.float32()
    assert to_arrow_column(np.array([b"a", b"\xfe", b""], object), present).to_pylist() == ["a", "\\xfe", None]
