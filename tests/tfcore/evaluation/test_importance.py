"""Importance: what the label rests on matters most, what says nothing does not, lists and nulls too."""

import json

import numpy as np
import pyarrow as pa
import pytest

from headway.monitor import Monitor
from headway.schema.columns import UNIT, UNIT_COLUMN, Column
from headway.tasks.table import task_of
from tests.example_shards import write_examples
from tfcore.evaluation.importance import ImportanceRequest, importance
from tfcore.evaluation.permutation import spread, within
from tfcore.evaluation.quick_importance import QuickStudy
from tfcore.evaluation.request import EvaluateRequest, TrainedModel
from tfcore.evaluation.stage import predict
from tfcore.models.config import ModelConfig
from tfcore.train.config import TrainingConfig
from tfcore.train.request import TrainRequest
from tfcore.train.stage import train
from tfcore.transform.config import DerivedParameters
from tfcore.transform.fitted import FittedOp

COLUMNS = (
    Column(name="strong", type="float32", nullable=True),
    Column(name="weak", type="float32", nullable=False),
    Column(name="noise", type="float32", nullable=False),
    Column(name="kind", type="bytes", nullable=True, encoding="dictionary"),
    Column(name="day", type="int64", nullable=True, temporal="date"),
    Column(name="tags", type="bytes", nullable=False, shape=(None,), encoding="dictionary"),
    Column(name="label", type="int64", nullable=False, role="label"),
)
MODEL = ModelConfig(hidden=(8,), embedding=2)


def _standardized(mean, std):
    return FittedOp(op="standardize", mean=mean, std=std)


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


@pytest.fixture(scope="module")
def evaluated(trained, tmp_path_factory):
    return predict(EvaluateRequest(**trained), tmp_path_factory.mktemp("evaluated"), Monitor())


@pytest.fixture(scope="module")
def sampled(trained, tmp_path_factory):
    """The importance by a sample of the rows."""
    return importance(ImportanceRequest(**trained, rows=1000), tmp_path_factory.mktemp("sampled"), Monitor())


@pytest.mark.long
def test_what_the_label_rests_on_matters_most_and_noise_does_not(trained, evaluated, tmp_path):
    result = importance(ImportanceRequest(**trained), tmp_path, Monitor())
    assert json.loads((tmp_path / "importance.json").read_text()) == result
    auc = evaluated["metrics"]["auc"]
    assert result["rows"] == 2500 and result["metric"] == "auc" and result["value"] == pytest.approx(auc, abs=1e-6)
    found = {each["column"]: each for each in result["columns"]}
    assert next(iter(found)) == "strong" and set(found) == {"strong", "weak", "noise", "kind", "day", "tags"}
    assert found["strong"]["permuted"] > 0.2 > found["kind"]["permuted"] > 0.005
    low, high = found["strong"]["interval"]
    assert low < found["strong"]["permuted"] < high < low + 0.1
    for name in ("noise", "tags"):
        low, high = found[name]["interval"]
        assert low < 0.005 and abs(found[name]["permuted"]) < 0.01
    assert found["strong"]["missing"] > 0.2 and found["weak"]["missing"] is None


def test_a_sample_is_spread_over_the_rows_and_repeatable(trained, sampled, tmp_path):
    assert sampled["rows"] == 1000, "of 2,500, not every third of them"
    assert importance(ImportanceRequest(**trained, rows=1000), tmp_path, Monitor()) == sampled


@pytest.mark.parametrize(("rows", "most"), [(1001, 1000), (1999, 1000), (2500, 600), (7, 1000), (1_000_000, 1000)])
def test_a_sample_is_as_large_as_it_says_and_the_same_however_rows_are_cut_into_batches(rows, most):
    sample = spread(rows, most)
    assert len(sample) == min(rows, most) == len(set(sample.tolist())) and sample[0] == 0
    assert np.ptp(np.diff(sample)) <= 1, "evenly spread"
    again = [first + within(sample, first, min(97, rows - first)) for first in range(0, rows, 97)]
    assert np.concatenate(again).tolist() == sample.tolist()


def test_an_evaluation_tells_the_same_of_a_small_sample_without_the_transform(sampled, evaluated):
    """What is made of a column, such as the parts of a date or a list's ids, goes together."""
    whole, quick = sampled, evaluated["importance"]
    assert (quick["rows"], quick["metric"], quick["value"]) == (1000, "auc", pytest.approx(whole["value"], abs=1e-9))
    assert [each["column"] for each in quick["columns"]] == [each["column"] for each in whole["columns"]]
    for ours, theirs in zip(quick["columns"], whole["columns"], strict=True):
        assert ours["permuted"] == pytest.approx(theirs["permuted"], abs=1e-9) and ours["missing"] is None
        assert ours["interval"] == pytest.approx(theirs["interval"], abs=1e-9)


def test_what_would_not_be_quick_or_not_be_true_is_left_to_the_stage(trained):
    task, parameters = task_of("binary"), trained["transform"]
    assert QuickStudy.of(parameters, task, rows=2500) is not None
    many = [
        f.model_copy(update={"column": f.column.model_copy(update={"name": f"c{i}"})})
        for i in range(900)
        for f in parameters.fitted[1:2]
    ]
    assert QuickStudy.of(parameters.model_copy(update={"fitted": tuple(many)}), task, rows=2500) is None
    derived = DerivedParameters(function="own.py:f", reads=(), columns=())
    assert QuickStudy.of(parameters.model_copy(update={"derived": derived}), task, rows=2500) is None


@pytest.mark.long
def test_rows_of_one_unit_count_once(trained, tmp_path):
    """Each row five times says no more than once; the column that names the row says so, or its unit."""
    once = rows_of(400, 3)
    five = once.take(np.repeat(np.arange(400), 5))
    named = five.append_column("name", pa.array(np.repeat(np.arange(400), 5)))
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
        given = trained | {"examples": (examples.part("eval"),), "group": "name" if which == "groups" else None}
        found = importance(ImportanceRequest(**given), tmp_path, Monitor())["columns"]
        low, high = next(column["interval"] for column in found if column["column"] == "strong")
        width[which] = high - low
    assert width["units"] == pytest.approx(width["groups"], rel=0.1)
    assert width["units"] == pytest.approx(width["once"], rel=0.2) and width["rows"] < 0.6 * width["units"]


def test_an_evaluation_draws_groups_and_permutes_by_the_seed_as_the_stage_does(trained, tmp_path):
    rows = rows_of(180, 3)
    named = rows.take(np.repeat(np.arange(180), 5)).append_column("name", pa.array(np.repeat(np.arange(180), 5)))
    name = Column(name="name", type="int64", nullable=False, role="group")
    part = write_examples(tmp_path / "rows", {"eval": named}, (*COLUMNS, name)).part("eval")
    given = trained | {"examples": (part,), "group": "name", "seed": 7}
    stage = importance(ImportanceRequest(**given, rows=1000), tmp_path, Monitor())["columns"]
    quick = predict(EvaluateRequest(**given, columns=("name",)), tmp_path / "evaluated", Monitor())["importance"]
    intervals = {each["column"]: each["interval"] for each in stage}
    for each in quick["columns"]:
        # rows that are the same come out of batches of another size as nearly the same
        assert each["interval"] == pytest.approx(intervals[each["column"]], abs=1e-5)
