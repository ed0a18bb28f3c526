"""Metrics against oracles that are slow and obvious."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import DataError
from headway.evaluation.predictions import measured, metrics_of, rows_of
from headway.evaluation.slices import slice_rows
from headway.metrics.base import OnePartDerivative, Rows, unit_sums
from headway.metrics.classification import auc, orders_of_parts, weights_by_score
from headway.metrics.classification import calibration_bins as bins_of
from headway.tasks.table import task_of
from tests.headway.evaluation.arrays import measure, results_of
from tests.properties import examples

ROWS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.7, 0.7000001, 1.0]) | st.floats(0, 1),
        st.sampled_from([0.0, 0.5, 1.0, 3.0]),
    ),
    min_size=1,
    max_size=40,
)


def calibration_bins(label, prediction, weight=None):
    return bins_of(task_of("binary").rows(label, prediction, weight))


quick = examples(150)


@quick
@given(ROWS)
def test_auc_depends_on_order_only_and_flips_with_it(rows):
    label, score, weight = map(np.asarray, zip(*rows, strict=True))
    found = auc(label, score, weight)
    if found is not None:
        assert auc(label, np.exp2(np.searchsorted(np.unique(score), score)), weight) == pytest.approx(found)
        assert auc(label, -score, weight) == pytest.approx(1 - found)


@quick
@given(ROWS)
def test_a_weight_of_two_is_the_row_twice_and_zero_is_no_row(rows):
    label, prediction, _ = map(np.asarray, zip(*rows, strict=True))
    times = np.arange(len(label)) % 3
    weighted = measure("binary", label, prediction, times.astype(float))
    repeated = measure("binary", *(np.repeat(x, times) for x in (label, prediction)))
    for name, value in weighted.items():
        assert repeated[name] == (None if value is None else pytest.approx(value, abs=1e-9)), name


@quick
@given(ROWS, st.integers(1, 4))
def test_the_order_of_parts_follows_from_that_of_all_rows(rows, width):
    label, prediction, weight = map(np.asarray, zip(*rows, strict=True))
    whole = Rows(label.astype(float), prediction, weight)
    number = np.arange(len(label)) * 7 % 5
    parts = [np.flatnonzero(number == part) for part in range(width)]
    assert orders_of_parts(whole, parts) == [None] * width, "nobody has asked for the order"
    weights_by_score(whole)
    for at, order in zip(parts, orders_of_parts(whole, parts), strict=True):
        assert order.tolist() == np.argsort(prediction[at], kind="stable").tolist()


@quick
@given(ROWS)
def test_calibration_bins_part_the_rows_and_keep_equals_together(rows):
    label, prediction, weight = map(np.asarray, zip(*rows, strict=True))
    bins = calibration_bins(label, prediction, weight)
    assert sum(b["rows"] for b in bins) == (weight > 0).sum() and len(bins) <= 10
    assert sum(b["weight"] for b in bins) == pytest.approx(weight.sum())
    for b in bins:
        inside = (prediction >= b["low"]) & (prediction <= b["high"]) & (weight > 0)
        assert b["rows"] == inside.sum()
        assert b["label_mean"] == pytest.approx(np.average(label[inside], weights=weight[inside]))
        assert b["prediction_mean"] == pytest.approx(np.average(prediction[inside], weights=weight[inside]))


def test_ten_bins_of_equal_weight_and_the_error_between_them():
    prediction = (np.arange(1000) + 0.5) / 1000
    label = (np.arange(1000) % 10 < np.arange(1000) // 100).astype(float)  # 0, 0.1, ... 0.9 in each hundred
    bins = calibration_bins(label, prediction)
    assert [b["rows"] for b in bins] == [100] * 10
    assert measure("binary", label, prediction)["ece"] == pytest.approx(0.05)


def test_a_prediction_that_is_no_number_leaves_no_metric_a_value():
    for bad in (np.nan, np.inf):
        found = measure("binary", [0, 1, 0, 1], [bad, 0.8, 0.2, 0.6])
        assert {name for name, value in found.items() if value is not None} == {"label_mean"}
        assert set(measure("multiclass", [0, 1], [[bad, 0.5], [0.2, 0.8]]).values()) == {None}


def test_probabilities_may_be_off_by_the_rounding_of_float32():
    assert measure("binary", [0, 1], [-1e-7, 1 + 1e-7])["accuracy"] == 1


@pytest.mark.parametrize(
    ("task", "label", "prediction", "weight", "message"),
    [
        ("binary", [0, 2], [0.1, 0.2], None, "column 'label': .* is 0 or 1, but row 1 is 2"),
        ("binary", [0, 1], [0.1], None, "do not agree"),
        ("binary", [0, 1], [0.1, 0.2], [1, -1], "column 'weight': .* not negative, but row 1 is -1"),
        ("binary", [0, 1], [0.1, 0.2], [1, np.nan], "row 1 is nan"),
        ("binary", [0, 1], [0.1, 1.2], None, "column 'prediction': a probability .* but row 1 is 1.2"),
        ("multiclass", [0, 1], [[0.5, 0.5], [-0.1, 1.1]], None, "row 1, class 0 is -0.1"),
        ("multiclass", [0, 1.5], [[0.1, 0.9], [0.2, 0.8]], None, "column 'label': .* whole number, but row 1 is 1.5"),
        ("binary", [0, 1], [[0.1], [0.2]], None, "do not fit"),
        ("multiclass", [0, 3], [[0.1, 0.9], [0.2, 0.8]], None, "class index below 2"),
    ],
)
def test_what_does_not_fit_is_refused(task, label, prediction, weight, message):
    with pytest.raises(DataError, match=message):
        measure(task, label, prediction, weight)


@pytest.fixture
def table():
    r = np.random.default_rng(1)
    n = 500
    carrier = pa.array([None if i % 50 == 0 else ["AA", "UA", "B6"][i % 3] for i in range(n)])
    return pa.table(
        {
            "row": np.arange(n),
            "label": r.integers(0, 2, n),
            "weight": r.random(n).astype(np.float32),
            "prediction": r.random(n),
            "carrier": carrier,
            "origin": pa.array(["JFK", "LGA"] * (n // 2)).dictionary_encode(),
            "bytes": pa.array([b"x", b"y"] * (n // 2)),
        }
    )


def test_slices_are_the_metrics_of_their_rows(table):
    found = results_of(table, "binary", slices=["carrier", "origin", "bytes"])["by_slice"]
    assert list(found["carrier"]) == ["(null)", "AA", "B6", "UA"] and list(found["bytes"]) == ["x", "y"]
    assert sum(part["rows"] for part in found["carrier"].values()) == len(table)
    mask = np.array([value == "AA" for value in table["carrier"].to_pylist()])
    part = [table[name].to_numpy()[mask] for name in ("label", "prediction", "weight")]
    one = found["carrier"]["AA"]
    assert (one["rows"], one["metrics"]) == (int(mask.sum()), measure("binary", *part))
    assert one["intervals"]["auc"][0] < one["metrics"]["auc"] < one["intervals"]["auc"][1]
    large = results_of(table, "binary", slices=["carrier"], slice_min_rows=100)["by_slice"]
    assert list(large["carrier"]) == ["AA", "B6", "UA"]
    for value, rows in slice_rows(table, "origin"):
        assert (np.diff(rows) > 0).all() and set(table["origin"].take(rows).to_pylist()) == {value}
    with pytest.raises(DataError, match="'carier'") as info:
        results_of(table, "binary", slices=["carier"])
    assert "carrier, origin" in info.value.fix


def test_predictions_of_several_numbers_may_be_any_lists():
    for kind in (pa.list_(pa.float64()), pa.list_(pa.float32(), 2)):
        lists = pa.table({"label": [0, 1], "prediction": pa.array([[0.9, 0.1], [0.5, 0.5]], kind)})
        assert measured(metrics_of("multiclass"), rows_of(lists, "multiclass"))["accuracy"] == 0.5
    sliced = pa.concat_tables([lists, lists]).slice(1, 2)
    assert measured(metrics_of("multiclass"), rows_of(sliced, "multiclass"))["accuracy"] == 0.5


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression", "count", "quantiles(0.1, 0.5, 0.9)"])
def test_what_a_row_of_weight_0_holds_changes_no_metric(task):
    """Neither an infinite prediction nor a label that is none: -1 and 1e30 stand for one that is not known."""
    r = np.random.default_rng(3)
    label = r.integers(0, 2, 60).astype(float)
    prediction = np.sort(r.dirichlet(np.ones(3), 60)) if "quantiles" in task or task == "multiclass" else r.random(60)
    weight = np.where(np.arange(60) % 5 == 0, 0.0, 2.0)
    counted = weight > 0
    expected = measure(task, label[counted], prediction[counted], weight[counted])
    label[~counted], prediction[~counted] = r.choice([-1.0, 1e30], 12), np.inf
    assert measure(task, label, prediction, weight) == pytest.approx(expected)


@pytest.mark.parametrize("codes", [None, np.array([2, 0, 2, 2, 1])])
def test_a_derivative_by_one_part_is_added_up_by_unit_as_the_whole_matrix_is(codes):
    part, own, common = np.array([1, 0, 2, 2, 1]), np.array([0.5, -1.0, 0.25, 2.0, 0.0]), np.array([0.1, -0.2, 0.3])
    rows = Rows(np.zeros(5), np.zeros(5), np.array([1.0, 2.0, 0.0, 0.5, 1.0]))
    dense = np.tile(common, (5, 1))
    dense[np.arange(5), part] += own
    found = unit_sums(OnePartDerivative(part, own, common), rows, codes, 5 if codes is None else 3)
    assert np.allclose(found, unit_sums(dense, rows, codes, 5 if codes is None else 3), rtol=0, atol=1e-15)
