"""Columns that give the label away, or repeat another; and those that must not be suspected."""

import numpy as np
import pyarrow as pa
import pytest

from headway.schema.columns import Column
from headway.statistics.split_statistics import SplitStatistics
from headway.validation.leaks.label_strength import strengths
from headway.validation.leaks.leakage_hints import duplicates, leakage, leaks

ROWS = 20_000
KINDS = {pa.int64(): "int64", pa.float32(): "float32", pa.binary(): "bytes"}


def split(columns):
    arrays = {name: pa.array(values) for name, values in columns.items()}
    arrays = {name: a.cast(pa.float32()) if a.type == pa.float64() else a for name, a in arrays.items()}
    statistics = SplitStatistics.create([Column(name=n, type=KINDS[a.type], nullable=True) for n, a in arrays.items()])
    for batch in pa.table(arrays).to_batches(max_chunksize=7000):
        statistics.update(batch)
    return statistics


def findings(columns, task, bound=0.99):
    train = split(columns)
    return list(leakage(train, strengths(train, list(columns), task), task, bound))


def suspects(columns, task, bound=0.99):
    return [a.column for a in findings(columns, task, bound)]


@pytest.fixture
def random():
    return np.random.default_rng(0)


def test_columns_that_give_a_binary_label_away(random):
    delay = random.normal(size=ROWS) * 30
    label = (delay > 15).astype(np.int64)
    columns = {
        "delay": delay,
        "missing": pa.array(np.ones(ROWS, np.float32), mask=label == 1),
        "told": pa.array([(b"on time", b"late")[v] for v in label], pa.binary()),
        "noise": random.normal(size=ROWS),
        "some": delay + random.normal(size=ROWS) * 30,
        "id": pa.array([b"%d" % i for i in range(ROWS)], pa.binary()),
        "number": np.arange(ROWS),
        "label": label,
    }
    assert suspects(columns, "binary") == ["delay", "missing", "told"]


def test_integers_beyond_what_a_double_holds_exactly_are_looked_at_too():
    columns = {"id": np.arange(ROWS) + 2**62, "told": np.arange(ROWS) % 2 * 2**60 - 2**62, "label": np.arange(ROWS) % 2}
    assert suspects(columns, "binary") == ["told"]
    twice = {"a": columns["id"], "b": columns["id"], "c": columns["told"]}
    assert [(a.column, "'a'" in a.message) for a in duplicates(split(twice), list(twice))] == [("b", True)]


def test_columns_that_give_a_class_away(random):
    kind = random.integers(0, 4, ROWS)
    columns = {
        "code": kind * 10,
        "size": kind + random.normal(size=ROWS) * 0.5,
        "noise": random.integers(0, 4, ROWS),
        "label": pa.array([b"abcd"[k : k + 1] for k in kind], pa.binary()),
    }
    assert suspects(columns, "multiclass") == ["code"]


def test_columns_that_give_a_number_away(random):
    fare = np.exp(random.normal(size=ROWS) * 2)
    columns = {
        "total": fare * 1.08,
        "distance": fare + np.exp(random.normal(size=ROWS) * 2),
        "id": np.arange(ROWS),
        "label": fare,
    }
    assert suspects(columns, "regression") == ["total"]


def test_the_logarithm_of_the_label_is_a_copy_of_it_in_a_small_table_too(random):
    salary = np.exp(random.normal(size=300))
    strong = salary + 0.3 * random.normal(size=300)
    (found,) = findings({"log": np.log(salary), "strong": strong, "label": salary}, "regression")
    assert (found.column, found.severity) == ("log", "error")


@pytest.mark.parametrize("share", [0.4, 0.02, 0.01, 0.004, 0.002])
def test_a_rare_label_is_looked_at_as_well_as_a_common_one(random, share):
    label = (random.random(ROWS) < share).astype(np.int64)
    columns = {
        "same": label.astype(np.float64),
        "not": 1 - label,
        "minus": -label.astype(np.float64),
        "scaled": 100.0 - 7 * label,
        "text": pa.array([b"yes" if y else b"no" for y in label], pa.binary()),
        "three": label * 2 - (random.random(ROWS) < 0.5) * (1 - label),
        "score": label + random.normal(size=ROWS),
        "noise": random.normal(size=ROWS),
        "id": random.permutation(ROWS),
        "label": label,
    }
    assert suspects(columns, "binary") == ["same", "not", "minus", "scaled", "text", "three"]
    labels = {
        "columns": columns | {"label": pa.array([b"ab"[y : y + 1] for y in label], pa.binary())},
        "task": "binary",
    }
    assert suspects(**labels) == ["same", "not", "minus", "scaled", "text", "three"]


def test_a_rare_class_of_three_counts_as_much_as_a_common_one(random):
    kind = random.choice(3, ROWS, p=[0.97, 0.02, 0.01])
    columns = {"code": 5.0 - kind, "noise": random.normal(size=ROWS), "label": kind}
    assert suspects(columns, "multiclass") == ["code"]


def test_too_few_rows_of_a_class_prove_nothing(random):
    label = np.zeros(ROWS, np.int64)
    label[:20] = 1
    assert suspects({"x": label, "label": label}, "binary") == [None]  # and that is said
    assert suspects({"x": label[:50], "label": np.arange(50)}, "regression") == []


def test_duplicates_hold_the_same_in_each_row_not_only_the_same_values(random):
    x = random.normal(size=ROWS).astype(np.float32)
    s = [b"%d" % v for v in random.integers(0, 9, ROWS)]
    columns = {
        "x": x,
        "shuffled": random.permutation(x),
        "again": x.copy(),
        "s": pa.array(s, pa.binary()),
        "s2": pa.array(s, pa.binary()),
        "s3": pa.array(s[::-1], pa.binary()),
        "one": np.ones(ROWS, np.int64),
        "one2": np.ones(ROWS, np.int64),
    }
    found = list(duplicates(split(columns), list(columns)))
    assert [a.column for a in found] == ["again", "s2"]
    assert found[0].message == (
        "column 'again' repeats column 'x': the same values in each of 4,096 sampled train rows, and the same figures "
        "over all 20,000"
    )
    holes = columns | {"again": pa.array(x, mask=np.arange(ROWS) == 5)}
    assert [a.column for a in duplicates(split(holes), list(holes))] == ["s2"]


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_almost_a_copy_of_the_label_is_an_error_and_a_strong_column_a_warning(random, task):
    score = random.normal(size=ROWS)
    label = {"binary": score > 1, "multiclass": np.digitize(score, [-1, 1]), "regression": score}[task]
    label = np.asarray(label, np.float64 if task == "regression" else np.int64)
    flipped = np.where(random.random(ROWS) < 0.0001, label.max() - label, label)
    strong = (
        score + 0.05 * random.normal(size=ROWS) if task == "regression" else score
    )  # decides it, and is more than it
    found = findings(
        {"copy": flipped * 3 + 1, "strong": strong, "noise": random.normal(size=ROWS), "label": label}, task, 0.9
    )
    severities = {a.column: a.severity for a in found}
    assert severities["copy"] == "error" and "almost as a copy of it would" in found[0].message
    assert "noise" not in severities
    assert severities["strong"] == "warning"


def test_what_is_written_down_after_the_label_has_a_value_of_its_own_for_a_class(random):
    label = (random.random(ROWS) < 0.2).astype(np.int64)
    delay = np.where(label == 1, 1.0, -1.0) * random.random(ROWS)
    columns = {
        "reason": pa.array([[b"price", b"moved"][i % 2] if y else None for i, y in enumerate(label)], pa.binary()),
        "days_left": np.where(label == 1, random.integers(1, 60, ROWS), 999),
        "flag": np.where(random.random(ROWS) < 0.003, 1 - label, label),
        "delay": delay,
        "label": label,
    }
    train = split(columns)
    alone = strengths(train, list(columns), "binary")
    own = {leak.column: leak.own_values for leak in leaks(train, alone, "binary", 0.99)}
    assert own == {"reason": True, "days_left": True, "flag": True, "delay": False}
