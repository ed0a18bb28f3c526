"""Columns that give the label away, or repeat another; and those that must not be suspected."""

import numpy as np
import pyarrow as pa
import pytest

from headway.schema.columns import Column
from headway.validation.config import LEAKAGE
from headway.validation.leaks import check_leakage, repeated, strengths
from tests.headway.statistics.made import statistics_of

ROWS = 20_000
KINDS = {pa.int64(): "int64", pa.float32(): "float32", pa.binary(): "bytes"}


def split(columns):
    arrays = {name: pa.array(values) for name, values in columns.items()}
    arrays = {name: a.cast(pa.float32()) if a.type == pa.float64() else a for name, a in arrays.items()}
    columns = [Column(name=n, type=KINDS[a.type], nullable=True) for n, a in arrays.items()]
    return statistics_of(columns, *pa.table(arrays).to_batches(max_chunksize=7000))


def findings(columns, task, bound=LEAKAGE):
    train = split(columns)
    return list(check_leakage(train, strengths(train, list(columns), task), task, bound))


def suspects(columns, task, bound=LEAKAGE):
    return [a.column for a in findings(columns, task, bound)]


@pytest.fixture
def random():
    return np.random.default_rng(0)


def test_integers_beyond_what_a_double_holds_exactly_are_looked_at_too():
    columns = {"id": np.arange(ROWS) + 2**62, "told": np.arange(ROWS) % 2 * 2**60 - 2**62, "label": np.arange(ROWS) % 2}
    assert suspects(columns, "binary") == ["told"]
    twice = {"a": columns["id"], "b": columns["id"], "c": columns["told"]}
    assert repeated(split(twice), list(twice)) == {"b": "a"}


def test_columns_that_give_a_number_away(random):
    fare = np.exp(random.normal(size=ROWS) * 2)
    columns = {
        "total": fare * 1.08,
        "distance": fare + np.exp(random.normal(size=ROWS) * 2),
        "id": np.arange(ROWS),
        "label": fare,
    }
    assert suspects(columns, "regression") == ["total"]


@pytest.mark.parametrize(
    "change",
    [
        lambda salary, random: np.log(salary),
        lambda salary, random: 3 - 2 * salary,
        lambda salary, random: salary + 0.02 * salary.std() * random.normal(size=len(salary)),
    ],
)
def test_the_label_on_another_scale_or_with_little_noise_is_named_in_a_small_table_too(random, change):
    salary = np.exp(random.normal(size=300))
    strong = salary + 0.1 * salary.std() * random.normal(size=300)
    columns = {"told": change(salary, random), "strong": strong, "label": salary}
    assert suspects(columns, "regression") == ["told"]


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
@pytest.mark.parametrize("rows", [300, ROWS])
def test_a_strong_honest_feature_is_not_named(random, task, rows):
    """A score of AUC 0.99, a distance and its fare, a square, the hour and the temperature."""
    x = random.normal(size=rows)
    label = {"binary": x > 0.5, "multiclass": np.digitize(x, [-0.5, 0.5]), "regression": 2 * x}[task]
    label = np.asarray(label, np.float64 if task == "regression" else np.int64)
    noisy = label + 0.15 * random.normal(size=rows) if task == "regression" else label
    columns = {
        "score": x if task == "regression" else label * 3.29 + random.normal(size=rows),
        "square": x**2,
        "weak": x + 2 * random.normal(size=rows),
        "filled": pa.array(x.astype(np.float32), mask=random.random(rows) < np.where(label > 0, 0.1, 0.7)),
        "label": noisy,
    }
    assert suspects(columns, task) == []
    assert strengths(split(columns), list(columns), task)["score"] > 0.95


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
    columns["label"] = pa.array([b"abc"[k : k + 1] for k in kind], pa.binary())
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
    assert repeated(split(columns), list(columns)) == {"again": "x", "s2": "s"}
    holes = columns | {"again": pa.array(x, mask=np.arange(ROWS) == 5)}
    assert repeated(split(holes), list(holes)) == {"s2": "s"}


def test_what_is_filled_in_after_the_label_is_named_by_its_presence(random):
    label = (random.random(ROWS) < 0.2).astype(np.int64)
    columns = {
        "reason": pa.array([b"case %d" % i if y else None for i, y in enumerate(label)], pa.binary()),
        "closed": pa.array(random.normal(size=ROWS).astype(np.float32), mask=label == 0),
        "days_left": np.where(label == 1, random.integers(1, 60, ROWS), 999),
        "code": np.where(label == 1, random.choice([3, 7, 12, 41], ROWS), random.choice([1, 4, 9, 40], ROWS)),
        "label": label,
    }
    found = {a.column: a for a in findings(columns, "binary")}
    assert [*found] == ["reason", "closed", "days_left", "code"]
    assert {a.severity for a in found.values()} == {"warning"} and found["code"].value == found["code"].expected + 0.001
    assert found["closed"].message == (
        "column 'closed' alone ranks the label with an AUC of 1 by whether it is there (in 4,096 sampled train rows): is it "
        "known when a prediction is needed?"
    )
    assert "by whether" not in found["days_left"].message
