"""Splits beside each other: formulas against known values, and a difference named only when it is real and matters."""

import math

import numpy as np
import pyarrow as pa
import pytest

from headway.schema.columns import Column
from headway.statistics.split_statistics import SplitStatistics
from headway.tabular.splits import SplitConfig
from headway.validation.config import StratificationConfig
from headway.validation.stratification import (
    chi_square_tail,
    means,
    normal_tails,
    proportions,
    shares,
    stratification,
)


@pytest.mark.parametrize(
    ("statistic", "degrees", "p"),
    # critical values of printed tables
    [(3.841, 1, 0.05), (5.991, 2, 0.05), (16.266, 3, 0.001), (18.307, 10, 0.05), (124.342, 100, 0.05), (0.0, 4, 1.0)],
)
def test_chi_square(statistic, degrees, p):
    assert chi_square_tail(statistic, degrees) == pytest.approx(p, rel=2e-3)


def test_chi_square_of_one_degree_is_the_normal_squared():
    for z in (0.5, 1.96, 6.0, 30.0):
        assert chi_square_tail(z * z, 1) == pytest.approx(normal_tails(z), rel=1e-9)


def test_chi_square_far_out_is_zero_and_no_error():
    assert chi_square_tail(1e6, 50) == 0.0 and chi_square_tail(1e6, 51) == 0.0


def test_two_proportions_by_hand():
    # 30 of 100 against 50 of 100: pooled 0.4, z = 0.2 / sqrt(0.24 * 0.02)
    found = proportions(30, 100, 50, 100)
    assert found.p == pytest.approx(math.erfc(2.886751 / math.sqrt(2)), rel=1e-5)
    assert found.effect == pytest.approx(2 * (math.asin(math.sqrt(0.5)) - math.asin(math.sqrt(0.3))))
    # the same by Pearson's test, since there are two classes
    assert shares([(30, 50), (70, 50)]).p == pytest.approx(found.p, rel=1e-9)


def test_too_few_rows_give_no_finding():
    assert proportions(1, 100, 2, 100) is None and proportions(1, 2, 0, 0) is None
    assert shares([(1, 1), (1, 1)]) is None
    assert means((99, 0.0, 1.0), (500, 1.0, 1.0)) is None and means((500, 1.0, 0.0), (500, 1.0, 0.0)) is None


def test_rare_classes_count_as_one():
    many = [(1000, 500), (1000, 500)] + [(10, 5)] * 40
    found = shares(many)
    assert found.p == pytest.approx(1.0) and found.effect == pytest.approx(0.0)


def test_means_by_hand():
    # variances 4 and 1: z = 0.5 / sqrt(4 / 400 + 1 / 100)
    found = means((400, 1.0, 4.0 * 399), (100, 1.5, 1.0 * 99))
    assert found.p == pytest.approx(normal_tails(0.5 / math.sqrt(0.02)))
    assert found.effect == pytest.approx(0.5 / math.sqrt(2.5))


def report(labels, *, task="auto", split=None, config=None):
    splits = {}
    for name, values in labels.items():
        array = pa.array(values)
        kind = {"string": "bytes", "int64": "int64", "double": "float32"}[str(array.type)]
        array = array.cast({"bytes": pa.binary(), "int64": pa.int64(), "float32": pa.float32()}[kind])
        splits[name] = SplitStatistics.create([Column(name="label", type=kind, nullable=True)])
        splits[name].update(pa.record_batch({"label": array}))
    return stratification(splits, task, split or SplitConfig(eval=0.5), config or StratificationConfig())


def ones(share, n):
    return [1] * round(share * n) + [0] * (n - round(share * n))


def test_like_splits_are_reported_and_raise_nothing():
    found = report({"train": ones(0.3, 4000), "eval": ones(0.31, 4000)})
    assert found.anomalies == []
    train, eval_ = found.rows
    assert train == {"split": "train", "rows": 4000, "share": "50.00%", "asked for": "50.00%", "label": "1: 30.00%"}
    assert eval_["label"] == "1: 31.00%" and float(eval_["p"]) > 0.1


@pytest.mark.parametrize(
    ("mode", "severity", "word"),
    [("hash", "warning", "chance"), ("column", "warning", "chance"), ("time", "info", "by time")],
)
def test_a_label_that_differs_is_named_and_by_time_it_is_a_note(mode, severity, word):
    split = SplitConfig(mode=mode, **({"column": "c"} if mode == "column" else {"eval": 0.5} if mode == "hash" else {}))
    [found] = report({"train": ones(0.3, 4000), "eval": ones(0.4, 4000)}, split=split).anomalies
    assert (found.severity, found.kind, found.where, found.column) == (severity, "stratification", "eval", "label")
    assert "1 is 40.00% of eval and 30.00% of train" in found.message and word in found.message and found.fix


def test_a_difference_must_be_beyond_chance_and_matter():
    few = {"train": ones(0.3, 100), "eval": ones(0.4, 100)}
    small = {"train": ones(0.30, 400_000), "eval": ones(0.31, 400_000)}
    assert report(few).anomalies == [] and report(small).anomalies == []
    assert len(report(small, config=StratificationConfig(effect=0.01)).anomalies) == 1
    assert len(report(few, config=StratificationConfig(p=0.2)).anomalies) == 1


def test_classes_and_numbers():
    texts = {"train": ["a"] * 500 + ["b"] * 300 + ["c"] * 200, "eval": ["a"] * 300 + ["b"] * 500 + ["c"] * 200}
    found = report(texts)
    assert found.rows[0]["label"] == "'a': 50.00%, 'b': 30.00%, 'c': 20.00%"
    assert [a.kind for a in found.anomalies] == ["stratification"]
    random = np.random.default_rng(0)
    numbers = {
        "train": random.normal(0, 1, 3000),
        "eval": random.normal(0.3, 1, 3000),
        "test": random.normal(0, 1, 3000),
    }
    found = report(numbers, task="regression", split=SplitConfig(mode="time", test_spans=1))
    assert [(a.where, a.severity) for a in found.anomalies] == [("eval", "info")]
    assert set(found.rows[1]) == {"split", "rows", "share", "label mean", "label std", "difference", "p"}


def test_a_split_that_is_much_larger_than_asked_for_is_warned_of():
    found = report({"train": ones(0.3, 6000), "eval": ones(0.3, 4000)}, split=SplitConfig(eval=0.2))
    assert [(a.kind, a.where) for a in found.anomalies] == [("split share", "eval")]
    assert "40.00% of the rows, and 20.00%" in found.anomalies[0].message
    assert report({"train": ones(0.3, 60), "eval": ones(0.3, 20)}, split=SplitConfig(eval=0.2)).anomalies == []


def test_empty_splits_and_one_label_are_no_trouble():
    found = report({"train": [1, 0] * 50, "eval": pa.array([], pa.int64()), "test": [1] * 100})
    assert [row["rows"] for row in found.rows] == [100, 0, 100]
    assert report({"train": [1] * 200, "eval": [1] * 200}).anomalies == []
