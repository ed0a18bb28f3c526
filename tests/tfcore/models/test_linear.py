"""The linear baseline against scikit-learn's models, and what it takes."""

import numpy as np
import pytest

from tfcore.models.linear import LinearModel, cheap

linear_model = pytest.importorskip("sklearn.linear_model")


def _rows(task, seed=0, rows=400):
    random = np.random.default_rng(seed)
    numeric = random.normal(size=(rows, 5)) * [1, 10, 0.1, 1e3, 0] + [0, 5, 0, -1e4, 3]
    categorical = np.stack([random.integers(0, 3, rows), random.integers(0, 7, rows)], 1)
    signal = (numeric[:, :3] / [1, 10, 0.1]).sum(1) + 0.5 * categorical[:, 0] + 0.5 * random.normal(size=rows)
    label = {"binary": signal > 1, "multiclass": np.digitize(signal, [-1, 1, 2.5]), "regression": 1e6 * signal}[task]
    return numeric.astype(np.float32), categorical, label.astype(np.float64), random.uniform(0.5, 2.0, rows)


def _hot(numeric, categorical):
    numeric = numeric.astype(np.float64)
    std = numeric.std(0)
    scaled = (numeric - numeric.mean(0)) / np.where(std > 0, std, 1)
    return np.concatenate([scaled, np.eye(3)[categorical[:, 0]], np.eye(7)[categorical[:, 1]]], 1)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_it_predicts_what_scikit_learn_does(task, tmp_path):
    numeric, categorical, label, _ = _rows(task)
    made = LinearModel.fit(numeric, categorical, label, np.ones(400), sizes=(3, 7), task=task, classes=4)
    made.save(tmp_path / "linear.npz")
    found = LinearModel.load(tmp_path / "linear.npz").predict(numeric, categorical)
    rows = _hot(numeric, categorical)
    if task == "regression":
        wanted = linear_model.Ridge().fit(rows, label).predict(rows)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    else:
        wanted = linear_model.LogisticRegression(tol=1e-8, max_iter=5000).fit(rows, label).predict_proba(rows)
        np.testing.assert_allclose(found, wanted if task == "multiclass" else wanted[:, 1], atol=2e-4)


def test_weights_count_by_their_ratio():
    numeric, categorical, label, weight = _rows("binary")
    once = LinearModel.fit(numeric, categorical, label, weight, sizes=(3, 7), task="binary")
    thousand = LinearModel.fit(numeric, categorical, label, weight * 1000, sizes=(3, 7), task="binary")
    np.testing.assert_allclose(once.predict(numeric, categorical), thousand.predict(numeric, categorical), atol=1e-6)


@pytest.mark.parametrize("rows", [2, 30])
def test_few_rows_and_one_class_are_no_trouble(rows):
    random = np.random.default_rng(1)
    numeric, none = random.normal(size=(rows, 40)), np.zeros((rows, 0), np.int64)
    for task, label in (("binary", np.ones(rows)), ("regression", np.full(rows, 7.0)), ("multiclass", np.zeros(rows))):
        made = LinearModel.fit(numeric, none, label, np.ones(rows), sizes=(), task=task, classes=3)
        assert np.isfinite(made.predict(numeric, none)).all()


def test_what_is_not_cheap_is_left_out():
    assert cheap(20_000, 300) and cheap(178, 1000)
    assert not cheap(250_000, 50) and not cheap(20_000, 1000) and not cheap(100, 5000) and not cheap(100, 0)
