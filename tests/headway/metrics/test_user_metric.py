"""Metrics of the user's own: called with arrays, without each part of the rows for their interval, blamed by line."""

import numpy as np
import pytest

from headway.errors import ConfigError
from headway.evaluation.compare import compare
from headway.metrics.regression import MAE
from headway.metrics.user_metric import MetricSpec, UserMetric
from headway.tasks.table import task_of


def mae(label, prediction, columns):
    return float(np.average(np.abs(label - prediction), weights=columns["weight"]))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
def test_its_interval_is_that_of_the_same_metric_built_in(weighted, grouped):
    r = np.random.default_rng(0)
    label = r.normal(size=300)
    weight, groups = r.uniform(0.5, 2, 300) if weighted else None, np.arange(300) // 3 if grouped else None
    rows = task_of("regression").rows(label, label + r.normal(size=300), weight, groups=groups)
    other = rows.predicted(label + 1.1 * r.normal(size=300))
    own = UserMetric("my:mae", mae, "lower")
    found = compare(rows, other, metrics=(own, MAE))
    assert found["my:mae"].difference == pytest.approx(found["mae"].difference)
    assert found["my:mae"].error == pytest.approx(found["mae"].error, rel=0.5), "of twenty parts of the rows"


def test_it_sees_the_columns_of_the_rows_it_judges():
    rows = task_of("regression").rows([1.0, 2.0], [1.0, 4.0], columns={"place": np.array(["a", "b"])})
    seen = UserMetric("my:b", lambda label, prediction, columns: float((columns["place"] == "b").sum()))
    assert seen.value(rows) == 1 and seen.value(rows.at(np.array([1, 1]))) == 2
    assert seen.value(rows.at(slice(0, 1))) == 0 and seen.higher_is_better is None


def test_no_value_is_none_and_what_is_not_a_number_names_the_line(tmp_path):
    rows = task_of("regression").rows([1.0], [1.0])
    assert UserMetric("my:none", lambda *_: None).value(rows) is None
    assert UserMetric("my:nan", lambda *_: float("nan")).value(rows) is None
    (tmp_path / "my.py").write_text("def broken(label, prediction, columns):\n    return columns['price']\n")
    spec = MetricSpec(name="my:broken", file=tmp_path / "my.py")
    with pytest.raises(ConfigError, match=r"my\.py, line 2: the metric my:broken failed: KeyError") as caught:
        spec.load().value(rows)
    assert "columns are: weight" in str(caught.value)
