"""How much worse than the champion is accepted: a number, a share of its value, a share of its gain over the constant."""

import numpy as np
import pyarrow as pa
import pytest

from flows.report.verdict import limit_as_share
from headway.evaluation.config import GateConfig, parse_tolerance
from headway.evaluation.predictions import rows_of
from headway.evaluation.tolerance import Margins, within_tolerances
from headway.messages import number
from headway.monitor import Monitor
from headway.tasks.base import LabelFacts
from headway.tasks.table import task_of


def rare(rows, rate, seed=0):
    """(labels, the true log odds) at a share of positives."""
    r = np.random.default_rng(seed)
    z = 1.5 * r.normal(size=rows) + np.log(rate) - 1.0
    return (r.random(rows) < probability(z)).astype(float), z


def probability(logit):
    return 1 / (1 + np.exp(-logit))


def compared(task, label, candidate, champion, *, config=None, slices=(), columns=None, **facts):
    config, task = GateConfig(**(config or {})), task_of(task)
    tables = [pa.table({"label": label, "prediction": p, **(columns or {})}) for p in (candidate, champion)]
    rows = rows_of(tables[0], task)
    before = rows.predicted(rows_of(tables[1], task).prediction)
    judging = {metric.name: metric for metric in task.metrics}
    margins = Margins(task, config.tolerances(task), LabelFacts(**facts) if facts else None, before, judging=judging)
    return within_tolerances(tables[0], rows, before, margins=margins, config=config, slices=slices, monitor=Monitor())


def counts(label):
    return {"counts": (int((label == 0).sum()), int(label.sum()))}


@pytest.mark.parametrize(
    ("tolerance", "value", "share"),
    [
        (0.002, 0.002, (None, None)),
        ("0.5", 0.5, (None, None)),
        ("1%", 0.003, (1, "champion")),
        ("5% of gain", 0.01, (5, "gain")),
        (" 5%  of gain ", 0.01, (5, "gain")),
    ],
)
def test_a_margin_and_what_it_is_a_share_of(tolerance, value, share):
    mae, rows = task_of("regression").metric("mae"), task_of("regression").rows([0.0, 1.0], [0.3, 0.7])
    margins = Margins(
        task_of("regression"), {"mae": tolerance}, LabelFacts(mean=0.4, median=0.5), rows, judging={"mae": mae}
    )
    margin = margins.of(mae, rows, mae.value(rows))
    assert margin.allowed == pytest.approx(value) and (margin.share, margin.share_of) == share


@pytest.mark.parametrize("wrong", ["much", -0.1, "5% of", "% of gain", "nan%"])
def test_a_wrong_tolerance_is_refused(wrong):
    with pytest.raises(ValueError, match="a number that is not negative, a percentage like '1%', or '5% of gain'"):
        parse_tolerance(wrong)


def test_without_a_constant_or_a_gain_the_margin_is_a_percent_of_the_champion():
    label, z = rare(3000, 0.2)
    unknown = compared("binary", label, probability(z), probability(z)).of("loss")
    assert unknown.allowed == pytest.approx(0.01 * unknown.before)
    assert (unknown.share, unknown.share_of) == (1, "champion, the constant not known")
    hopeless = compared("binary", label, probability(-z), probability(-z), **counts(label)).of("loss")
    assert (hopeless.share, hopeless.share_of) == (1, "champion, no gain")


@pytest.mark.parametrize("rate", [0.2, 0.01, 0.001])
def test_the_margin_of_a_loss_goes_with_what_there_is_to_gain(rate):
    label, z = rare(100_000, rate)
    found = compared("binary", label, probability(z), probability(z), **counts(label))
    loss, gain = found.of("loss"), label.mean()
    gain = -(gain * np.log(gain) + (1 - gain) * np.log(1 - gain)) - found.of("loss").before
    assert loss.allowed == pytest.approx(0.05 * gain) and loss.outcome == "within the limit"
    text = limit_as_share(loss)
    assert text == f"5% of the gain of {number(gain)} over the constant"
    auc = found.of("auc")
    assert auc.allowed == pytest.approx(0.02 * (auc.before - 0.5))


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "rows"), [(0.01, 200_000), (0.2, 10_000), (0.5, 10_000)])
def test_shifted_logits_are_blocked_by_the_bias(rate, rows):
    label, z = rare(rows, rate)
    bias = compared("binary", label, probability(z + 0.3), probability(z), **counts(label)).of("bias")
    assert not bias.passed and bias.allowed == 0.1
    better = compared("binary", label, probability(z), probability(z + 0.3), **counts(label)).of("bias")
    assert better.outcome == "better"


def test_a_bias_of_few_deviations_is_blocked_in_a_regression():
    r = np.random.default_rng(0)
    x = r.normal(size=20_000)
    label = x + r.normal(size=20_000)
    facts = {"mean": 0.0, "median": 0.0}
    found = compared("regression", label, x + 0.05 * label.std(), x, **facts)
    assert [c.metric for c in found.overall if not c.passed] == ["bias"]
    assert [c.metric for c in found.overall] == ["rmse", "mae", "bias"]
    same = compared("regression", label, x + 0.05 * r.normal(size=20_000), x, **facts)
    assert all(c.passed for c in same.overall)


def test_one_outlier_does_not_hide_a_worse_absolute_error():
    r = np.random.default_rng(0)
    x = r.normal(size=5000)
    label = x + r.normal(size=5000)
    label[0] += 500
    found = compared("regression", label, x + 0.8 * r.normal(size=5000), x, mean=0.0, median=0.0)
    assert found.of("rmse").passed and not found.of("mae").passed


def test_a_slice_has_at_least_the_margin_of_all_rows():
    label, z = rare(6000, 0.2)
    where = np.where(np.arange(6000) % 2, "flat", "steep")
    champion = np.where(where == "flat", label[where == "flat"].mean(), probability(z))
    found = compared("binary", label, champion, champion, slices=("where",), columns={"where": where}, **counts(label))
    margins = {c.slice_value: c.allowed for c in found.slices if c.metric == "loss"}
    assert margins["flat"] == pytest.approx(found.of("loss").allowed) and margins["steep"] > margins["flat"]


def test_multiclass_shares_are_compared():
    r = np.random.default_rng(0)
    logits = r.normal(size=(8000, 3))
    soft = lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)  # noqa: E731
    label = (soft(logits).cumsum(1) > r.random((8000, 1))).argmax(1)
    tables = [list(soft(logits + np.array([shift, 0, 0]))) for shift in (0.3, 0.0)]
    found = compared("multiclass", label, *tables, counts=tuple(np.bincount(label).tolist()))
    assert not found.of("bias").passed
