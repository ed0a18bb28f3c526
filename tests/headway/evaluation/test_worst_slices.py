"""The worst slices: planted ones are found with their size, and where there are none, none is named."""

import time

import numpy as np
import pyarrow as pa
import pytest

from headway.evaluation import worst_slices
from headway.evaluation.intervals import tail
from headway.evaluation.measure import row_losses
from headway.evaluation.worst_slices import columns_to_search
from headway.metrics.user_metric import UserMetric
from headway.tasks.table import task_of

LOSS = task_of("binary").metric("loss")
NAMES = ("carrier", "origin", "distance: 4")


def worst(table, rows, loss, names, *, min_rows):
    return worst_slices.find_worst_slices(table, rows, row_losses(rows, loss), names, min_rows=min_rows)


def scored(seed=0, n=4000, bad=lambda table: np.zeros(len(table), bool), houses=None, alike=0.0):
    """Rows whose predictions are right but where `bad` says; with houses, rows of one are alike in a way no column holds."""
    r = np.random.default_rng(seed)
    columns = {
        "carrier": np.array(["AA", "BB", "CC", "DD"])[r.integers(0, 4, n)],
        "origin": np.array(["EWR", "JFK", "LGA"])[r.integers(0, 3, n)],
        "distance": r.integers(100, 3000, n),
    }
    table = pa.table(columns)
    groups = None if houses is None else r.integers(0, houses, n)
    shift = 0.0 if houses is None else alike * r.normal(size=houses)[groups]
    logit = r.normal(size=n)
    truth = np.where(bad(table), -logit, logit) + shift
    label = (r.random(n) < 1 / (1 + np.exp(-truth))).astype(float)
    return table, task_of("binary").rows(label, 1 / (1 + np.exp(-logit)), groups=groups)


def test_a_planted_slice_is_found_first_with_its_rows_and_losses():
    table, rows = scored(bad=lambda table: table["carrier"].to_numpy() == "BB")
    found = worst(table, rows, LOSS, NAMES, min_rows=100)
    first = found["slices"][0]
    mask = table["carrier"].to_numpy() == "BB"
    assert (first["slice"], first["value"], first["rows"]) == ("carrier", "BB", mask.sum())
    losses = LOSS.moments(rows)[:, 0]
    assert first["loss"] == pytest.approx(losses[mask].mean()) and first["p_adjusted"] < 1e-9
    assert first["loss_of_others"] == pytest.approx(losses[~mask].mean())
    assert first["label_mean"] == pytest.approx(rows.label[mask].mean())
    assert all("BB" in each["value"] for each in found["slices"]) and found["columns"] == 3 and found["tried"] > 40


def test_a_pair_is_named_only_where_it_is_worse_than_both_its_slices():
    table, rows = scored(n=8000, bad=lambda t: (t["carrier"].to_numpy() == "BB") & (t["origin"].to_numpy() == "JFK"))
    first = worst(table, rows, LOSS, NAMES, min_rows=100)["slices"][0]
    assert {*first["value"].split(" x ")} == {"BB", "JFK"}
    table, rows = scored(n=8000, bad=lambda t: t["distance"].to_numpy() > 2000)
    found = worst(table, rows, LOSS, NAMES, min_rows=100)["slices"]
    assert found[0]["slice"] == "distance: 4" and found[0]["value"].startswith("distance > ")


@pytest.mark.parametrize(("houses", "alike"), [(None, 0.0), (60, 1.0)])
def test_where_no_slice_is_worse_none_is_named(houses, alike):
    named = 0
    for seed in range(60):
        table, rows = scored(seed, n=1500, houses=houses, alike=alike)
        if houses is not None:  # what a house has in common looks like its carrier's
            carrier = np.array(["AA", "BB", "CC", "DD"])[rows.groups % 4]
            table = table.set_column(0, "carrier", pa.array(carrier))
        named += bool(worst(table, rows, LOSS, NAMES, min_rows=100)["slices"])
    assert named <= 8, "5% of 60 are 3"


@pytest.mark.parametrize("units", [1, 3, 5, 12])
def test_what_few_units_have_in_common_is_no_slice(units):
    """With one unit in each slice 100% of such simulations named a slice, with three 70%, with five 27%."""
    named = 0
    for seed in range(60):
        r = np.random.default_rng(seed)
        unit = np.repeat(np.arange(8 * units), 40)
        table = pa.table({name: (r.permutation(8 * units) % 8)[unit] for name in ("shop", "town")})
        logit = r.normal(size=len(unit))
        truth = logit + 1.5 * r.normal(size=8 * units)[unit]
        label = (r.random(len(unit)) < 1 / (1 + np.exp(-truth))).astype(float)
        rows = task_of("binary").rows(label, 1 / (1 + np.exp(-logit)), units=unit)
        found = worst(table, rows, LOSS, ("shop", "town"), min_rows=20)
        assert (found["tried"] > 0) == (units >= 5)
        named += found["significant"] > 0
    assert named <= 6, "5% of 60 are 3"


def test_a_slice_that_is_worse_in_many_units_is_found():
    r = np.random.default_rng(0)
    unit = np.repeat(np.arange(80), 40)
    shop = (np.arange(80) % 4)[unit]
    logit = r.normal(size=len(unit))
    label = (r.random(len(unit)) < 1 / (1 + np.exp(np.where(shop == 2, logit, -logit)))).astype(float)
    rows = task_of("binary").rows(label, 1 / (1 + np.exp(-logit)), units=unit)
    found = worst(pa.table({"shop": shop}), rows, LOSS, ("shop",), min_rows=20)
    assert [each["value"] for each in found["slices"]] == ["2"]


@pytest.mark.parametrize("weighted", [False, True])
def test_the_chance_of_a_slice_follows_from_how_far_each_unit_moves_the_difference(weighted):
    r = np.random.default_rng(0)
    table, rows = scored(n=2000, bad=lambda table: table["carrier"].to_numpy() == "BB")
    weight = r.integers(0, 3, 2000).astype(float) if weighted else None
    rows = task_of("binary").rows(rows.label, rows.prediction, weight, groups=r.integers(0, 500, 2000))
    found = worst(table, rows, LOSS, ["carrier"], min_rows=100)
    inside = table["carrier"].to_numpy() == "BB"
    losses, moved, units = LOSS.moments(rows)[:, 0], 0.0, []
    for side, sign in ((inside, 1), (~inside, -1)):
        weight = rows.weight * side
        moved = moved + sign * weight * (losses - np.average(losses, weights=weight)) / weight.sum()
        units.append(weight.sum() ** 2 / (np.bincount(rows.groups, weight) ** 2).sum())
    error = np.sqrt((np.bincount(rows.groups, moved) ** 2).sum() * min(units) / (min(units) - 1))
    difference = np.average(losses, weights=rows.weight * inside) - np.average(losses, weights=rows.weight * ~inside)
    chance = tail(-difference, error, min(units) - 1)
    first = found["slices"][0]
    assert first["value"] == "BB" and first["p_adjusted"] == pytest.approx(found["tried"] * chance, rel=1e-9)


def test_without_a_loss_per_row_without_columns_and_of_few_rows_there_is_nothing_to_look_at():
    table, rows = scored(n=300)
    assert worst(table, rows, None, NAMES, min_rows=10) is None and worst(table, rows, LOSS, (), min_rows=10) is None
    assert worst(table, rows, UserMetric("a:b", lambda *_: 1.0), NAMES, min_rows=10) is None
    assert worst(table, rows.at(slice(0, 0)), LOSS, NAMES, min_rows=10) is None
    few = worst(table, rows, LOSS, NAMES, min_rows=1000)
    assert (few["tried"], few["slices"]) == (0, [])


def test_columns_of_few_values_and_numbers_are_searched_the_strongest_first():
    statistics = [
        {"column": "a", "type": "bytes", "distinct": 3},
        {"column": "b", "type": "float32", "distinct": 900},
        {"column": "c", "type": "bytes", "distinct": 900},
        {"column": "d", "type": "int64", "distinct": 1},
        {"column": "e", "type": "int64", "distinct": 9},
    ]
    assert columns_to_search(statistics, {"b": 0.9, "e": 0.7, "a": 0.6}, "abcde") == ("b: 5", "e", "a")
    for name in ("weight", "row", "prediction", "a x b"):  # predictions have columns of these names; a pair reads so
        assert columns_to_search([{"column": name, "type": "float32", "distinct": 900}], {}, [name]) == ()
    many = [{"column": f"n{i}", "type": "int64", "distinct": 5} for i in range(50)]
    assert len(columns_to_search(many, {}, [row["column"] for row in many])) == 20


@pytest.mark.long
def test_twenty_columns_of_a_million_rows_take_seconds():
    r = np.random.default_rng(0)
    n = 1_000_000
    table = pa.table({f"c{i}": r.integers(0, 15, n) if i % 2 else r.normal(size=n) for i in range(20)})
    score = r.random(n)
    rows = task_of("binary").rows((r.random(n) < score).astype(float), score)
    started = time.process_time()
    names = [f"c{i}" if i % 2 else f"c{i}: 5" for i in range(20)]
    assert worst(table, rows, LOSS, names, min_rows=100)["tried"] > 1000
    assert time.process_time() - started < 30


def test_counts_that_are_predicted_as_well_as_can_be_have_no_worst_slice():
    r, task = np.random.default_rng(0), task_of("count")
    rate = np.repeat([1.0, 3.0, 9.0], 1000)
    table = pa.table({"size": np.repeat(["few", "some", "many"], 1000)})
    counts = r.poisson(rate).astype(float)
    assert worst(table, task.rows(counts, rate), task.row_loss, ["size"], min_rows=100)["slices"] == []
    doubled = np.where(rate == 9.0, 18.0, rate)
    found = worst(table, task.rows(counts, doubled), task.row_loss, ["size"], min_rows=100)
    [first] = found["slices"]
    assert first["value"] == "many" and first["loss"] > first["loss_of_others"]
