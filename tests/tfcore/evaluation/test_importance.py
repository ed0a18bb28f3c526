"""Importance: what the label rests on matters most, what says nothing does not, lists and nulls too."""

import numpy as np
import pyarrow as pa
import pytest

from headway.monitor import Monitor
from headway.schema.columns import UNIT, UNIT_COLUMN, Column
from headway.tasks.table import task_of
from tests.example_shards import write_examples
from tfcore.evaluation.importance import ImportanceStudy, spread
from tfcore.evaluation.request import EvaluateRequest, TrainedModel
from tfcore.evaluation.stage import predict
from tfcore.models.config import ModelConfig
from tfcore.train.config import TrainingConfig
from tfcore.train.request import TrainRequest
from tfcore.train.stage import train
from tfcore.transform.config import DerivedParameters

COLUMNS = (
    Column(name="strong", type="float32", nullable=True),
    Column(name="weak", type="float32", nullable=False),
    Column(name="noise", type="float32", nullable=False),
    Column(name="kind", type="bytes", nullable=True, encoding="dictionary"),
    Column(name="day", type="int64", nullable=True, temporal="date"),
    Column(name="tags", type="bytes", nullable=False, shape=(None,), encoding="dictionary"),
    Column(name="label", type="int64", nullable=False, role="label"),
)
MODEL = ModelConfig(name="mlp", hidden=(8,), embedding=2)


def rows_of(count, seed):
    r = np.random.default_rng(seed)
    strong, weak, kind = r.normal(size=count), r.normal(size=count), r.integers(0, 2, count)
    score = 2.5 * strong + 0.5 * weak + kind - 0.5
    tags = [[b"a", b"b", b"c"][: r.integers(0, 4)] for _ in range(count)]
    return pa.table(
        {
            "strong": pa.array(strong.astype(np.float32), mask=r.random(count) < 0.05),
            "weak": weak.astype(np.float32),
            "noise": r.normal(size=count).astype(np.float32),
            "kind": pa.array([b"x", b"y"]).take(pa.array(kind, mask=r.random(count) < 0.05)),
            "day": pa.array(r.integers(15_000, 16_000, count), mask=r.random(count) < 0.05),
            "tags": pa.array(tags, pa.list_(pa.binary())),
            "label": (r.random(count) < 1 / (1 + np.exp(-score))).astype(np.int64),
        }
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("importance")
    examples = write_examples(folder / "examples", {"train": rows_of(3000, 1), "eval": rows_of(2500, 2)}, COLUMNS)
    transform = examples.fit(task="binary")
    training = TrainingConfig(steps=200, batch_size=128, learning_rate=0.02, jit="off")
    asked = TrainRequest(examples=(examples.part("train"),), transform=transform, model=MODEL, training=training)
    train(asked, folder / "trained", Monitor())
    model = TrainedModel(path=folder / "trained", config=MODEL)
    return {"model": model, "transform": transform, "examples": (examples.part("eval"),)}


def told(trained, folder, **fields):
    """The importance of columns by an evaluation."""
    return predict(EvaluateRequest(**trained, **fields), folder, Monitor())["importance"]


def test_what_the_label_rests_on_matters_most_and_noise_does_not(trained, tmp_path):
    """What is made of a column, such as the parts of a date or a list's ids, goes together."""
    result = told(trained, tmp_path)
    assert (result["rows"], result["metric"]) == (1000, "auc") and result["value"] > 0.8
    found = {each["column"]: each for each in result["columns"]}
    assert next(iter(found)) == "strong" and set(found) == {"strong", "weak", "noise", "kind", "day", "tags"}
    assert found["strong"]["permuted"] > 0.2 > found["kind"]["permuted"] > 0.005
    low, high = found["strong"]["interval"]
    assert low < found["strong"]["permuted"] < high < low + 0.2
    for name in ("noise", "tags"):
        low, high = found[name]["interval"]
        assert low < 0.01 and abs(found[name]["permuted"]) < 0.02
    assert told(trained, tmp_path / "again") == result
    assert told(trained, tmp_path / "other", seed=7)["columns"] != result["columns"]


@pytest.mark.parametrize(("rows", "most"), [(1001, 1000), (1999, 1000), (2500, 600), (7, 1000), (1_000_000, 1000)])
def test_a_sample_is_as_large_as_it_says_and_evenly_spread(rows, most):
    sample = spread(rows, most)
    assert len(sample) == min(rows, most) == len(set(sample.tolist())) and sample[0] == 0
    assert np.ptp(np.diff(sample)) <= 1


def test_of_many_columns_nothing_is_told_and_a_preprocess_s_columns_are_columns_of_their_own(trained):
    task, parameters = task_of("binary"), trained["transform"]
    many = [
        f.model_copy(update={"column": f.column.model_copy(update={"name": f"c{i}"})})
        for i in range(900)
        for f in parameters.fitted[1:2]
    ]
    assert ImportanceStudy.of(parameters.model_copy(update={"fitted": tuple(many)}), task, rows=2500) is None
    route = parameters.fitted[1].column.model_copy(update={"name": "route"})
    derived = DerivedParameters(function="own.py:f", reads=(), columns=(route,))
    fitted = (*parameters.fitted, parameters.fitted[1].model_copy(update={"column": route}))
    study = ImportanceStudy.of(parameters.model_copy(update={"derived": derived, "fitted": fitted}), task, rows=2500)
    assert study._places()["route"] == {"numeric": [len(parameters.numeric)]}


@pytest.mark.long
def test_rows_of_one_unit_count_once(trained, tmp_path):
    """Each row five times says no more than once; the column that names the row says so, or its unit."""
    once = rows_of(200, 3)
    five = once.take(np.repeat(np.arange(200), 5))
    named = five.append_column("name", pa.array(np.repeat(np.arange(200), 5)))
    name = Column(name="name", type="int64", nullable=False, role="group")
    each = {
        "once": write_examples(tmp_path / "a", {"eval": once}, COLUMNS),
        "rows": write_examples(tmp_path / "b", {"eval": five}, COLUMNS),
        "units": write_examples(
            tmp_path / "c", {"eval": five.append_column(UNIT, named["name"])}, (*COLUMNS, UNIT_COLUMN)
        ),
        "groups": write_examples(tmp_path / "d", {"eval": named}, (*COLUMNS, name)),
    }
    width = {}
    for which, examples in each.items():
        group = {"group": "name", "columns": ("name",)} if which == "groups" else {}
        found = told(trained | {"examples": (examples.part("eval"),)}, tmp_path / which, **group)["columns"]
        low, high = next(column["interval"] for column in found if column["column"] == "strong")
        width[which] = high - low
    assert width["units"] == pytest.approx(width["groups"], rel=0.1)
    assert width["units"] == pytest.approx(width["once"], rel=0.35) and width["rows"] < 0.7 * width["units"]
