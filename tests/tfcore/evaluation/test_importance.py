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
from tfcore.evaluation.quick_importance import GRID, QuickStudy, _numbers
from tfcore.evaluation.request import EvaluateRequest, TrainedModel
from tfcore.evaluation.results import Evaluated
from tfcore.evaluation.stage import predict
from tfcore.models.config import ModelConfig
from tfcore.train.config import TrainingConfig
from tfcore.train.request import TrainRequest
from tfcore.train.stage import train
from tfcore.transform.config import DerivedParameters
from tfcore.transform.fitted import Fitted, FittedOp

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


def test_the_mean_prediction_by_a_columns_values_is_told_of_the_columns_that_matter_most(evaluated):
    result = Evaluated.model_validate(evaluated)
    assert [each.column for each in result.dependence[:2]] == [each.column for each in result.importance.columns[:2]]
    told = {each.column: each for each in result.dependence}
    strong = told["strong"]
    assert len(strong.values) == GRID and list(strong.values) == sorted(strong.values)
    assert list(strong.predictions) == sorted(strong.predictions), "the label grows with it"
    rows = rows_of(2500, 2)["strong"].drop_null().to_numpy()
    assert all(np.abs(rows - value).min() < 1e-5 for value in strong.values if value != 0), (
        "values of rows, as they were"
    )
    kind = dict(zip(told["kind"].values, told["kind"].predictions, strict=True))
    assert set(kind) == {"x", "y"} and kind["x"] < kind["y"]


def test_of_several_classes_the_probability_of_the_most_frequent_is_told(tmp_path):
    table, four = rows_of(1500, 4), np.array([b"rare", b"many", b"more", b"most"])
    strong = table["strong"].fill_null(0.0).to_numpy()
    label = four[np.digitize(strong, [-1.6, -0.6, 0.2])]
    table = table.set_column(table.column_names.index("label"), "label", pa.array(label.tolist()))
    columns = (*COLUMNS[:-1], Column(name="label", type="bytes", nullable=False, role="label"))
    examples = write_examples(tmp_path / "examples", {"train": table, "eval": table}, columns)
    transform = examples.fit(task="multiclass")
    training = TrainingConfig(steps=60, batch_size=128, learning_rate=0.02, jit="off")
    asked = TrainRequest(examples=(examples.part("train"),), transform=transform, model=MODEL, training=training)
    train(asked, tmp_path / "trained", Monitor())
    model = TrainedModel(path=tmp_path / "trained", config=MODEL)
    request = EvaluateRequest(model=model, transform=transform, examples=(examples.part("eval"),))
    told = Evaluated.model_validate(predict(request, tmp_path / "evaluated", Monitor())).dependence
    assert told[0].column == "strong" and {tuple(each.by_class) for each in told} == {("most", "more", "many")}
    most = told[0].by_class["most"]
    assert len(most) == len(told[0].values) and most[-1] > 0.8 > 0.2 > most[0] and not told[0].predictions


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


@pytest.mark.parametrize(
    ("ops", "given", "told"),
    [
        # seconds since 1970, of one hour
        ([_standardized(1.7e9, 1e3)], [-1.8, 0, 1.8], pytest.approx([1.7e9 - 1800, 1.7e9, 1.7e9 + 1800], rel=1e-12)),
        (
            [FittedOp(op="log")],
            np.log1p([0.001, 0.002, 0.003, 1e6]),
            pytest.approx([0.001, 0.002, 0.003, 1e6], rel=0.01),
        ),
        # more than a number can be, and none
        (
            [FittedOp(op="log"), _standardized(60, 400)],
            [-1, 0, 2],
            pytest.approx([-np.expm1(340), 0.0], rel=1e-4),
        ),
        ([_standardized(0, 1)], [np.nan, np.inf, 1, 2], [1, 2]),
        ([_standardized(0, 1)], [np.nan, np.nan], None),
        ([_standardized(3, 1)], [0, 0], None),
    ],
)
def test_values_of_partial_dependence_stay_apart_and_are_numbers(ops, given, told):
    fitted = Fitted(column=Column(name="a", type="float32", nullable=False), ops=tuple(ops), fill=0.0)
    found = _numbers(fitted, np.repeat(np.asarray(given, np.float32), 100))
    assert (found and found[0]) == told
