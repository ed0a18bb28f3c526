"""Signs of a leak in single columns and between columns, and that natural relations show none of them."""

import numpy as np
import pyarrow as pa
import pytest

from headway.schema.columns import Column
from headway.statistics.split_statistics import SplitStatistics
from headway.validation.leaks.label_strength import strengths
from headway.validation.leaks.leakage_hints import leakage
from headway.validation.leaks.leakage_hints import signs as leak_signs
from headway.validation.leaks.row_copies import copies_of_rows
from headway.validation.leaks.telling_words import telling_word

ROWS = 6000
KINDS = {pa.int64(): "int64", pa.float32(): "float32", pa.binary(): "bytes"}


def split(columns, times=()):
    arrays = {name: pa.array(values, from_pandas=True) for name, values in columns.items()}
    arrays = {name: a.cast(pa.float32()) if a.type == pa.float64() else a for name, a in arrays.items()}
    schema = [
        Column(name=n, type=KINDS[a.type], nullable=True, temporal="date" if n in times else None)
        for n, a in arrays.items()
    ]
    statistics = SplitStatistics.create(schema)
    statistics.update(pa.RecordBatch.from_pydict(arrays))
    return statistics


def signs(columns, task, times=()):
    """{the columns of a sign: what it says}."""
    train = split(columns, times)
    found = leak_signs(train, strengths(train, list(columns), task), task, 0.99, by_row=True)
    return {sign.columns: sign.says for sign in found}


@pytest.fixture
def random():
    return np.random.default_rng(3)


@pytest.fixture
def causes(random):
    """Columns that have to do with the label, and the score behind it."""
    age, income, plan = random.normal(50, 15, ROWS), random.normal(10, 0.6, ROWS), random.integers(0, 3, ROWS)
    score = 0.05 * (age - 50) + 1.2 * (income - 10) + 0.5 * plan + random.logistic(0, 0.5, ROWS)
    return {"age": age, "income": income, "plan": pa.array([b"abc"[k : k + 1] for k in plan], pa.binary())}, score


def test_a_label_with_noise_is_told_from_a_cause_as_strong(random, causes):
    columns, score = causes
    label = (score > 1).astype(np.int64)
    noisy = {
        "rated": label + random.normal(0, 0.376, ROWS),
        "risk": 1 / (1 + np.exp(-random.normal(5 * label - 3, 1.9))),
        "flag": np.where(random.random(ROWS) < 0.03, 1 - label, label),
    }
    for name, values in noisy.items():
        found = signs({**columns, name: values, "label": label}, "binary")
        assert (
            list(found) == [(name,)] and "AUC of 0.9" in found[name,] and "it is the label with noise" in found[name,]
        )
    cause = score + random.normal(
        0, 0.1, ROWS
    )  # decides the label, and has to do with the others whatever the label is
    assert signs({**columns, "cause": cause, "label": label}, "binary") == {}


def test_a_number_with_noise_is_told_from_a_sum_that_it_dominates(random, causes):
    columns, score = causes
    assert list(signs({**columns, "rated": score + random.normal(0, 0.25, ROWS), "label": score}, "regression")) == [
        ("rated",)
    ]
    other, main = random.normal(size=ROWS), random.normal(size=ROWS)
    natural = {"main": main, "other": other, "label": main + 0.2 * other + 0.05 * random.normal(size=ROWS)}
    assert signs(natural, "regression") == {}


@pytest.mark.parametrize(
    ("filled", "others", "is_sign"), [(0.9, 0.0, True), (0.9, 0.02, True), (0.2, 0.0, True), (0.6, 0.3, False)]
)
def test_a_column_that_is_filled_by_the_label_alone(random, causes, filled, others, is_sign):
    columns, score = causes
    label = (score > 1).astype(np.int64)
    told = random.random(ROWS) < np.where(label == 1, filled, others)
    found = signs({**columns, "closed": pa.array(random.normal(size=ROWS), mask=~told), "label": label}, "binary")
    assert (("closed",) in found) == is_sign
    if is_sign:
        assert "that it is missing tells the label" in found["closed",]


def test_a_value_that_one_of_three_classes_has_and_no_other(random):
    kind = random.integers(0, 3, ROWS)
    told = pa.array([b"N" if k == 1 else b"Y" for k in kind], pa.binary())
    mostly = pa.array(
        [b"N" if k == 1 or r < 0.1 else b"Y" for k, r in zip(kind, random.random(ROWS), strict=True)], pa.binary()
    )
    columns = {"r2": told, "mostly": mostly, "noise": random.normal(size=ROWS)}
    found = signs({**columns, "label": pa.array([b"pno"[k : k + 1] for k in kind], pa.binary())}, "multiclass")
    assert list(found) == [("r2",)] and "label 'n'" in found["r2",]


@pytest.mark.parametrize("drawn_in", [0, 4])
def test_the_labels_mean_of_a_group_with_its_own_rows(random, causes, drawn_in):
    columns, score = causes
    label, group = (score > 1).astype(np.int64), random.integers(0, 800, ROWS)
    rows, hits = np.bincount(group, minlength=800), np.bincount(group, label, 800)
    encoded = (hits + drawn_in * label.mean()) / (rows + drawn_in)
    found = signs({**columns, "encoded": encoded[group], "label": label}, "binary")
    assert list(found) == [("encoded",)]
    before = (random.binomial(8, 1 / (1 + np.exp(-score))) / 8).astype(
        np.float64
    )  # the same customers' rate a year ago
    assert signs({**columns, "before": before, "label": label}, "binary") == {}


def test_a_total_that_the_label_is_part_of(random, causes):
    columns, score = causes
    label, who = (score > np.quantile(score, 0.85)).astype(np.int64), random.integers(0, 1500, ROWS)
    total = np.bincount(who, label, 1500)[who]
    assert [*signs({**columns, "total": total, "label": label}, "binary")] == [("total",)]
    visits = random.poisson(1.5, ROWS)
    assert signs({**columns, "visits": visits, "label": (score + visits > 3).astype(np.int64)}, "binary") == {}


def test_sums_differences_products_and_ratios_that_are_the_label(random, causes):
    columns, _ = causes
    a, b = np.exp(random.normal(3, 0.7, ROWS)).round(2), random.integers(1, 40, ROWS)
    labels = {"sum": a + b, "difference": a - b, "product": (a * b).round(1), "ratio": (a / b).round(4)}
    for how, label in labels.items():
        (found, says), *others = signs({**columns, "a": a, "b": b, "label": label}, "regression").items()
        assert {*found} == {"a", "b"} and how in says and not others
    noisy = a + b + random.normal(0, 2, ROWS)
    assert signs({**columns, "a": a, "b": b, "label": noisy}, "regression") == {}


def test_times_between_which_the_label_is_told(random, causes):
    columns, score = causes
    label = (score > 1).astype(np.int64)
    start = random.integers(19_000, 19_400, ROWS)
    end = start + np.where(label == 1, random.integers(20, 90, ROWS), random.integers(0, 22, ROWS))
    assert list(signs({**columns, "start": start, "end": end, "label": label}, "binary", times=("start", "end"))) == [
        ("start", "end")
    ]
    assert (
        signs({**columns, "start": start, "end": start + random.integers(0, 90, ROWS), "label": label}, "binary") == {}
    )


def test_a_level_of_each_month_is_a_sign_and_a_season_is_none(random, causes):
    columns, score = causes
    year, month = random.integers(2015, 2021, ROWS), random.integers(1, 13, ROWS)
    own, season = random.normal(0, 1.5, (6, 12)), random.normal(0, 1.5, 12)
    level = {**columns, "year": year, "month": month, "label": score + own[year - 2015, month - 1]}
    assert list(signs(level, "regression")) == [("year", "month")]
    assert signs({**level, "label": score + season[month - 1] + 0.4 * (year - 2015)}, "regression") == {}


def test_near_copies_of_rows_are_found_between_splits_and_others_are_not(random):
    def rows(n):
        hidden = random.normal(size=(n, 3))
        return {f"x{i}": hidden @ random.normal(size=3) + 0.3 * random.normal(size=n) for i in range(6)} | {
            "k": random.integers(0, 4, n)
        }

    first, others = rows(3000), rows(900)
    copied = {
        name: values[:300] if name == "k" else values[:300] * (1 + random.normal(0, 0.001, 300))
        for name, values in first.items()
    }
    mixed = {name: np.concatenate([values, copied[name]]) for name, values in others.items()}
    found = copies_of_rows(split(first), split(mixed), list(first))
    assert found is not None and found.share == pytest.approx(300 / 1200, abs=0.02)
    assert "nearly repeat another row" in str(found)
    assert copies_of_rows(split(first), split(others), list(first)) is None
    steps = {"t": np.arange(3000.0), "wave": np.sin(np.arange(3000) / 50)}  # neighbours in time are near, and no copies
    assert copies_of_rows(split(steps), split(steps), list(steps)) is None


def test_near_copies_are_found_where_every_row_has_two_and_eval_is_small(random):
    original = random.normal(size=(250, 8))

    def jittered():
        return original + random.normal(0, 0.03, original.shape)

    def of(values):
        return split({f"x{i}": column for i, column in enumerate(values.T)})

    train, eval_ = of(np.concatenate([jittered(), jittered()])), of(jittered()[:60])
    names = [f"x{i}" for i in range(8)]
    for found in (copies_of_rows(train, train, names), copies_of_rows(train, eval_, names)):
        assert found is not None and found.share > 0.95
    others = of(random.normal(size=(60, 8)))
    assert copies_of_rows(train, others, names) is None


def test_a_sign_is_a_warning_with_the_line_that_leaves_the_column_out(random, causes):
    columns, score = causes
    label = (score > 1).astype(np.int64)
    train = split({**columns, "rated": label + random.normal(0, 0.376, ROWS), "label": label})
    (found,) = leakage(train, strengths(train, [*columns, "rated"], "binary"), "binary", 0.99)
    assert (found.severity, found.kind, found.column) == ("warning", "leakage", "rated")
    assert found.message.startswith("column 'rated' alone ranks the label") and "columns: {rated: ignore}" in (
        found.fix or ""
    )


def test_a_word_tells_a_class_whose_name_is_not_ascii():
    texts = pa.array(["the order came today: retourné".encode() + b" \xff", b"the order came today \xff"] * 40)
    found = telling_word(texts, pa.array(["retourné".encode(), "gardé".encode()] * 40))
    assert (found.word, found.label) == ("retourné", "retourné")
