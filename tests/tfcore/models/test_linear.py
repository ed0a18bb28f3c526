"""The linear baseline against scikit-learn's models, and what it takes."""

import numpy as np
import pytest

from tfcore.models.linear import LinearModel, cheap

linear_model = pytest.importorskip("sklearn.linear_model")


def _rows(task, seed=0, rows=400):
    random = np.random.default_rng(seed)
    numeric = random.normal(size=(rows, 5)) * [1, 10, 0.1, 1e3, 0] + [0, 5, 0, -1e4, 3]
    categorical = np.stack([random.integers(0, 3, rows), random.integers(0, 7, rows)], 1)
    lists = np.concatenate([random.integers(-1, 20, (rows, 6)), random.integers(-1, 2, (rows, 1))], 1)
    signal = (numeric[:, :3] / [1, 10, 0.1]).sum(1) + 0.5 * categorical[:, 0] + 0.5 * random.normal(size=rows)
    signal += 1.0 * (lists == 0).any(1) - (lists == 1).any(1)
    labels = {"binary": signal > 1, "multiclass": np.digitize(signal, [-1, 1, 2.5]), "regression": 1e6 + 1e3 * signal}
    inputs = {"numeric": numeric.astype(np.float32), "categorical": categorical, "lists": lists}
    return inputs | {"label": labels[task].astype(np.float64), "weight": np.ones(rows)}


def _hot(rows):
    numeric, categorical = rows["numeric"].astype(np.float64), rows["categorical"]
    std = numeric.std(0)
    scaled = (numeric - numeric.mean(0)) / np.where(std > 0, std, 1)
    ids = rows.get("lists", np.zeros((len(numeric), 0)))
    counts = [(ids[:, :6, None] == range(20)).any(1), (ids[:, 6:, None] == range(2)).any(1)] if ids.size else []
    return np.concatenate([scaled, np.eye(3)[categorical[:, 0]], np.eye(7)[categorical[:, 1]], *counts], 1)


@pytest.mark.parametrize("lists", [(), ((20, 6), (2, 1))], ids=["no lists", "lists"])
@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_it_predicts_what_scikit_learn_does(task, lists, tmp_path):
    rows = {name: value for name, value in _rows(task).items() if lists or name != "lists"}
    made = LinearModel.fit(rows, slots=((3, 1), (7, 1), *lists), task=task, classes=4)
    made.save(tmp_path / "linear.npz")
    found, hot, label = LinearModel.load(tmp_path / "linear.npz").predict(rows), _hot(rows), rows["label"]
    if task == "regression":
        np.testing.assert_allclose(found, linear_model.Ridge().fit(hot, label).predict(hot), rtol=1e-8)
    else:
        wanted = linear_model.LogisticRegression(tol=1e-8, max_iter=5000).fit(hot, label).predict_proba(hot)
        np.testing.assert_allclose(found, wanted if task == "multiclass" else wanted[:, 1], atol=2e-4)


def test_weights_count_by_their_ratio():
    rows, weight, found = _rows("binary"), np.random.default_rng(3).uniform(0.5, 2.0, 400), []
    for factor in (1, 1000):
        model = LinearModel.fit(
            rows | {"weight": weight * factor}, slots=((3, 1), (7, 1), (20, 6), (2, 1)), task="binary"
        )
        found.append(model.predict(rows))
    np.testing.assert_allclose(*found, atol=1e-6)


@pytest.mark.parametrize("rows", [2, 30])
def test_few_rows_and_one_class_are_no_trouble(rows):
    random = np.random.default_rng(1)
    inputs = {"numeric": random.normal(size=(rows, 40)), "categorical": np.zeros((rows, 0), np.int64)}
    for task, label in (("binary", np.ones(rows)), ("regression", np.full(rows, 7.0)), ("multiclass", np.zeros(rows))):
        made = LinearModel.fit(inputs | {"label": label, "weight": np.ones(rows)}, slots=(), task=task, classes=3)
        assert np.isfinite(made.predict(inputs)).all()


def test_what_is_not_cheap_is_left_out():
    assert cheap(20_000, 300, 0) and cheap(178, 1000, 0) and cheap(20_000, 0, 20_000 * 64)
    assert not cheap(250_000, 50, 0) and not cheap(20_000, 1000, 0) and not cheap(100, 5000, 0) and not cheap(100, 0, 0)
    assert not cheap(100_000, 0, 100_000 * 64)
