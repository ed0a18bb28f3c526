"""The unit that rows belong to is found by what is the same in its rows, whatever its column is called; features are none."""

import numpy as np
import pyarrow as pa
import pytest
from sklearn import datasets

from headway.validation.units import MOST_COLUMNS, find_unit, intraclass

PATIENTS, VISITS = 400, 12
PATIENT = ("age", "sex", "height", "weight", "site", "smoker")


def batch(columns, label):
    arrays = {name: pa.array(values) for name, values in (columns | {"label": label}).items()}
    for name, array in arrays.items():
        if pa.types.is_string(array.type):
            arrays[name] = array.cast(pa.binary())
        elif array.type == pa.float64():
            arrays[name] = array.cast(pa.float32())
    return pa.record_batch(arrays)


def unit(columns, label, task="binary"):
    return find_unit(batch(columns, label), list(columns), task)


def patients(seed, **named):
    """Rows of patients in any order: six columns of the patient, two of the visit, and a label to which both add."""
    r = np.random.default_rng(seed)
    of = r.permutation(np.repeat(np.arange(PATIENTS), VISITS))
    patient = {
        "age": r.integers(20, 90, PATIENTS),
        "sex": r.integers(0, 2, PATIENTS),
        "height": r.normal(170, 10, PATIENTS).round(),
        "weight": r.normal(75, 12, PATIENTS).round(),
        "site": np.array(["north", "south", "east", "west"])[r.integers(0, 4, PATIENTS)],
        "smoker": r.integers(0, 3, PATIENTS),
    }
    effect = r.normal(size=PATIENTS) + 0.02 * (patient["age"] - 55)
    dose, ward = r.normal(size=len(of)), r.integers(0, 6, len(of))
    columns = {name: values[of] for name, values in named.items()} | {name: v[of] for name, v in patient.items()}
    label = (r.random(len(of)) < 1 / (1 + np.exp(-effect[of] - 0.3 * dose))).astype(np.int64)
    return columns | {"dose": dose, "ward": ward}, label, of


IDS = np.random.default_rng(1).permutation(10 * PATIENTS)[:PATIENTS]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("patient_id", IDS),
        ("mrn", IDS),
        ("machine_id", np.array([f"M{i:05d}" for i in IDS])),
        ("x7", IDS.astype(float)),
        ("病历号", IDS),
    ],
)
def test_a_unit_is_found_by_the_columns_that_are_the_same_in_its_rows_whatever_it_is_called(name, values):
    columns, label, _ = patients(2, **{name: values})
    found = unit(columns, label)
    assert found.column == name and found.sure and set(found.constant) == set(PATIENT)
    assert found.units == PATIENTS and found.correlation > 0.05


def test_an_id_that_is_unique_in_each_row_hides_no_unit():
    columns, label, _ = patients(2, mrn=IDS)
    ids = np.array([f"row-{i:06d}" for i in np.random.default_rng(0).permutation(len(label))])
    found = unit({"id": ids} | columns, label)
    assert found.column == "mrn" and found.sure and set(found.constant) == set(PATIENT)


def test_a_number_of_the_unit_that_two_units_share_by_chance_names_it_no_better_than_its_id():
    days = IDS + 7
    days[:12] = days[12:24]
    columns, label, _ = patients(2, days=days, mrn=IDS)
    found = unit(columns, label)
    assert found.column == "mrn" and found.units == PATIENTS


def test_measures_that_come_again_together_are_a_unit_and_one_of_them_names_it():
    r = np.random.default_rng(3)
    of = np.repeat(np.arange(PATIENTS), VISITS)
    columns = {name: r.normal(size=PATIENTS)[of] for name in "abc"} | {"dose": r.normal(size=len(of))}
    label = (r.normal(size=PATIENTS)[of] + r.normal(size=len(of)) > 0).astype(np.int64)
    found = unit(columns, label)
    assert found.sure and found.column in "abc"


@pytest.mark.parametrize("task", ["regression", "multiclass"])
def test_a_unit_is_found_for_any_label(task):
    columns, _, of = patients(4, mrn=IDS)
    r = np.random.default_rng(4)
    level = r.normal(size=PATIENTS)[of] + r.normal(size=len(of))
    label = level if task == "regression" else np.digitize(level, [-1, 0.5]).astype(np.int64)
    assert unit(columns, label, task).column == "mrn"
    assert unit(columns, IDS[of] % 3, "multiclass").correlation == 1.0  # the same in all rows of a unit


def test_numbers_of_things_with_no_other_column_that_tells_of_them_may_be_a_unit():
    columns, label, _ = patients(5, x7=IDS)
    few = {name: columns[name] for name in ("x7", "dose", "ward")}
    found = unit(few, label)
    assert found.column == "x7" and not found.sure and not found.constant
    assert unit({name: few[name] for name in ("dose", "ward")}, label) is None


@pytest.mark.parametrize(
    ("written", "is_one"), [("P{:05d}", True), ("{:05d}", True), ("{:032x}", True), ("house {:d} left", False)]
)
def test_texts_that_number_things_may_be_a_unit_and_other_texts_are_none(written, is_one):
    columns, label, _ = patients(5, x7=np.array([written.format(i) for i in IDS]))
    found = unit({name: columns[name] for name in ("x7", "dose", "ward")}, label)
    assert (found is not None and found.column == "x7" and not found.sure) == is_one


def test_a_unit_whose_rows_have_nothing_of_the_label_in_common_is_none():
    columns, label, _ = patients(6, mrn=IDS)
    assert unit(columns, np.random.default_rng(0).permutation(label)) is None


def test_rows_that_are_copies_of_one_another_are_no_unit():
    columns, label, of = patients(7, mrn=IDS)
    first = np.unique(of, return_index=True)[1][of]
    assert unit({name: values[first] for name, values in columns.items()}, label) is None


def test_a_wide_table_is_searched_where_values_come_again():
    columns, label, _ = patients(8, mrn=IDS)
    r = np.random.default_rng(8)
    noise = {f"n{i}": r.normal(size=len(label)) for i in range(2 * MOST_COLUMNS)}
    assert unit(noise | columns, label).column == "mrn"


def categories(rows, seed):
    r = np.random.default_rng(seed)
    city = r.choice(300, rows, p=1 / np.arange(1, 301) / (1 / np.arange(1, 301)).sum())
    names = np.array(
        [f"{'abcdefghij'[i % 10]}{'klmnopqrst'[i // 10 % 10]}{'uvwxyz'[i // 100]}ville" for i in range(300)]
    )
    carrier, grade, age = r.integers(0, 14, rows), r.integers(1, 11, rows), r.integers(18, 90, rows)
    return r, {
        "city": names[city],
        "state": np.array([f"S{i // 6}" for i in range(300)])[city],
        "country": np.array([f"C{i // 60}" for i in range(300)])[city],
        "carrier": np.array([f"K{i}" for i in range(14)])[carrier],
        "grade": grade,
        "age": age,
        "born": 2024 - age,
        "old": (age > 60).astype(np.int64),
        "day": r.integers(1, 32, rows),
        "x": r.normal(size=rows),
    }


@pytest.mark.parametrize("seed", range(4))
def test_categories_that_predict_the_label_are_no_unit(seed):
    r, columns = categories(8000, seed)
    named = [np.unique(columns[name], return_inverse=True)[1] for name in ("city", "state", "carrier", "grade", "day")]
    effects = [r.normal(size=codes.max() + 1)[codes] for codes in named]
    effects.append(np.sin(columns["age"] / 15))
    label = (sum(effects) + r.normal(size=8000) > 0).astype(np.int64)
    assert unit(columns, label) is None


def test_functions_of_one_number_are_no_unit():
    r = np.random.default_rng(9)
    price = r.choice(r.gamma(2, 20, 300).round(2), 6000)
    columns = {"price": price, "tax": price * 0.19, "gross": price * 1.19, "log": np.log(price + 1)}
    columns |= {"quantity": r.integers(1, 9, 6000)}
    label = (price + r.normal(size=6000) * 20 > 40).astype(np.int64)
    assert unit(columns, label) is None


@pytest.mark.parametrize("name", ["breast_cancer", "diabetes", "wine", "iris", "digits"])
def test_tables_of_single_things_have_no_unit(name):
    data = getattr(datasets, f"load_{name}")()
    names = [str(feature) for feature in data.feature_names]
    task = {"breast_cancer": "binary", "diabetes": "regression"}.get(name, "multiclass")
    assert unit(dict(zip(names, data.data.T, strict=True)), data.target, task) is None


def test_the_correlation_of_a_unit_is_estimated():
    r = np.random.default_rng(0)
    group = np.repeat(np.arange(400), 20)
    correlation, score = intraclass(0.5 * r.normal(size=400)[group] + r.normal(size=8000), group)
    assert correlation == pytest.approx(0.2, abs=0.03) and score > 10
    scores = [intraclass(np.random.default_rng(seed).normal(size=8000), group)[1] for seed in range(200)]
    assert np.mean(scores) == pytest.approx(0, abs=0.2) and np.std(scores) == pytest.approx(1, abs=0.2)
    assert intraclass(np.zeros(10), np.arange(10) % 2) is None
    assert intraclass(r.normal(size=10), np.zeros(10, np.int64)) is None
