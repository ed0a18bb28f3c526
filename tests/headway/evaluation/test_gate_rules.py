"""What may not be promoted: what cannot be compared, what is not better on the same data."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.report.verdict import explain
from headway.errors import DataError
from headway.evaluation.config import GateConfig
from headway.evaluation.gate import decide
from headway.evaluation.requests import Candidate, Champion, GateRequest
from headway.tasks.base import LabelFacts

OLD, NEW = (("2013-01", "all"),), (("2013-02", "all"),)


def models(rows=4000, *, noise=(0.5, 0.5), rate=1.0, seed=0):
    """Labels, and one column of probabilities for each amount of noise."""
    r = np.random.default_rng(seed)
    z = r.normal(size=rows)
    label = (r.random(rows) < 1 / (1 + np.exp(rate - z))).astype(np.int64)
    return label, *(1 / (1 + np.exp(rate - z - s * r.normal(size=rows))) for s in noise)


@pytest.fixture
def judge(tmp_path):
    """judge(label, candidate, champion, ...) -> the verdict."""

    def write(name, label, prediction, columns):
        values = list(prediction) if np.ndim(prediction) > 1 else prediction
        path = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table({"label": label, "prediction": values, **columns}), path)
        return path

    def run(label, candidate, champion=None, *, columns=None, theirs=OLD, ours=NEW, config=None, **more):
        columns, known, worth = columns or {}, None, more.pop("worth", None)
        if champion is not None:
            predictions = write("b", label, champion, columns)
            known = Champion(version=3, model="old", predictions=predictions, train=theirs, worth=worth)
        if (anchor := more.pop("anchor", None)) is not None:
            predictions = anchor if isinstance(anchor, str) else write("c", label, anchor, columns)
            facts = {"incompatible": anchor} if isinstance(anchor, str) else {"predictions": predictions}
            more["anchor"] = Champion(version=1, model="older", **facts)
        return decide(
            GateRequest(
                task=more.pop("task", "binary"),
                config=GateConfig(**(config or {})),
                candidate=Candidate(model="new", predictions=write("a", label, candidate, columns), train=ours),
                champion=known,
                label=more.pop("facts", None),
                **more,
            )
        )

    return run


def said(verdict):
    return " | ".join(explain(verdict).sentences)


GARBAGE = np.random.default_rng(9).random(4000)


@pytest.mark.parametrize(
    ("spoil", "verdict", "words"),
    [
        (
            lambda c: {"columns": {"group": np.zeros(4000, int)}, "group": "group"},
            "needs a person",
            "auc, loss and bias cannot be compared with version 3 (under 5 groups); give eval",
        ),
        (lambda c: {"columns": {"weight": np.zeros(4000)}}, "rejected", "auc and loss have no value on these rows"),
        (lambda c: c.__setitem__(7, np.nan) or {}, "needs a person", "1 of 4,000 predictions that is not a finite"),
    ],
)
def test_garbage_that_cannot_be_compared_is_not_promoted(judge, spoil, verdict, words):
    label, champion, _ = models()
    found = judge(label, GARBAGE, champion, **spoil(champion))
    assert (found.status, found.promote) == (verdict, False) and words in said(found)


def test_one_row_is_not_a_comparison(judge):
    found = judge(np.array([1]), np.array([0.2]), np.array([0.9]))
    assert (found.status, found.promote) == ("rejected", False)
    assert "auc has no value on these rows, and gate.tolerance asks for one" in said(found)
    found = judge(np.array([1]), np.array([0.2]), np.array([0.9]), config={"tolerance": {"loss": 0.1}})
    assert (found.status, found.promote) == ("needs a person", False) and "under 20 rows" in said(found)


def test_few_rows_of_a_class_hold_overall_as_they_do_on_a_slice(judge):
    label, a, b = models(rows=3000)
    label[:] = 0
    label[:19] = 1
    found = judge(label, a, b)
    assert (found.status, found.promote) == ("needs a person", False)
    assert "auc and bias cannot be compared with version 3 (under 20 rows of one class" in said(found)
    label[:20] = 1
    assert judge(label, a, b).status != "needs a person"


@pytest.mark.parametrize("theirs", [OLD, NEW])
def test_what_is_better_is_promoted_whatever_its_data(judge, theirs):
    label, good, worse = models(noise=(0.1, 0.9))
    found = judge(label, good, worse, theirs=theirs)
    assert (found.status, found.basis, found.compared()[0].outcome) == ("promoted", "better", "better")
    assert "auc rose from" in said(found)


def test_what_is_not_better_replaces_the_champion_only_with_newer_data(judge):
    label, a, b = models(noise=(0.52, 0.5), seed=3)
    found = judge(label, a, b, theirs=NEW, ours=NEW)
    assert (found.status, found.promote) == ("kept", False)
    words = "auc is not clearly better than with version 3, and the candidate's data are not newer (version 3 stays)"
    assert words in said(found)
    assert judge(label, a, b, theirs=NEW, ours=OLD).status == "kept"
    found = judge(label, a, b, theirs=(), ours=NEW)
    assert found.status == "kept" and "the candidate's data are not known to be newer" in said(found)
    found = judge(label, a, b)
    assert (found.status, found.promote) == ("promoted", True)
    assert "trained up to span 2013-02, version 3 up to 2013-01" in said(found)
    found = judge(label, a, b, theirs=NEW, ours=NEW, force=True)
    assert (found.status, found.promote) == ("promoted", True) and "against: auc is not clearly better" in said(found)


def test_a_verdict_says_which_values_of_a_metric_of_ones_own_are_better(judge, tmp_path):
    (tmp_path / "mine.py").write_text(
        "def right(label, prediction, columns):\n    return ((prediction > 0.5) == label).mean()\n"
    )
    spec = {"name": "mine:right", "file": tmp_path / "mine.py", "better": "higher"}
    label, good, worse = models(rows=500, noise=(0.1, 2.0))
    config = {"primary": "mine:right", "tolerance": {"mine:right": 0.01, "loss": 0.01}}
    found = judge(label, good, worse, config=config, metrics=[spec])
    assert (found.primary, found.better, found.compared()[0].outcome) == ("mine:right", "higher", "better")
    compared = {each.metric: each.better for each in found.compared()}
    assert compared == {"mine:right": "higher", "loss": "lower"}


def test_a_span_whose_files_changed_is_newer():
    from headway.evaluation.requests import newer_data_check

    candidate = Candidate(model="n", predictions="x", train=NEW, data={"2013-02": "b"})
    champion = Champion(version=3, model="o", predictions="y", train=NEW, data={"2013-02": "a"})
    found = newer_data_check(candidate, champion)
    assert (found.passed, found.outcome, found.names) == (True, "changed files", ("2013-02",))
    assert not newer_data_check(candidate, champion.model_copy(update={"data": {"2013-02": "b"}})).passed
    assert not newer_data_check(candidate, champion.model_copy(update={"data": {}})).passed


def test_a_change_is_within_the_limit_also_where_it_is_a_loss_beyond_chance_or_cannot_be_told(judge):
    label, a, b = models(rows=20_000, noise=(0.5, 0.5), seed=1)
    assert judge(label, b, b, theirs=NEW).compared()[0].outcome == "within the limit"
    found = judge(label, a, b, config={"tolerance": {"auc": 0.0005}})
    detail = found.compared()[0]
    assert detail.outcome == "cannot tell" and detail.detectable > 0.0005
    assert "too few rows to tell whether that is within the limit of 0.0005" in said(found)
    assert "the smallest loss that could have been detected is 0.0" in said(found)
    label, a, b = models(rows=20_000, noise=(0.7, 0.5), seed=1)
    found = judge(label, a, b, config={"tolerance": {"auc": 0.05}})
    assert found.compared()[0].outcome == "within the limit"
    assert "auc is within the limit of 0.05: from 0." in said(found)


def test_small_losses_add_up_to_the_tolerance_from_the_anchor_at_most(judge):
    label, a, b, best = models(rows=20_000, noise=(0.8, 0.7, 0.2))
    within = {"config": {"tolerance": {"auc": 0.02}}}
    alone = judge(label, a, b, **within)
    assert (alone.status, alone.basis, alone.anchors, alone.anchor) == ("promoted", "newer data", False, None)
    found = judge(label, a, b, anchor=best, **within)
    assert (found.status, found.anchors) == ("rejected", False)
    assert "(version 1, the anchor) to 0." in explain(found).sentences[0] and found.metrics.anchor["auc"] > 0.7
    [check] = found.compared("anchor")
    assert (check.metric, check.slice, check.against, check.passed) == ("auc", None, "version 1", False)
    kept = judge(label, a, b, anchor=best, theirs=NEW, **within)
    assert kept.status == "kept" and all(check.passed for check in kept.compared("anchor"))


def test_what_is_better_than_the_champion_and_beyond_the_tolerance_of_the_anchor_does_not_become_the_anchor(judge):
    label, a, b, best = models(rows=20_000, noise=(0.8, 1.6, 0.2))
    found = judge(label, a, b, anchor=best, config={"tolerance": {"auc": 0.02}})
    assert (found.status, found.basis, found.anchors) == ("promoted", "better", False)
    assert "the anchor" in explain(found).concerns[0]
    assert judge(label, a, b, config={"tolerance": {"auc": 0.02}}).anchors


@pytest.mark.parametrize(
    ("anchor", "words"),
    [("it needs a column 'x'", "it needs a column 'x'"), ("nan", "it gives 1 of 4,000 predictions")],
)
def test_where_the_anchor_cannot_be_scored_the_champion_takes_its_place_and_a_note_says_so(judge, anchor, words):
    label, a, b = models()
    other = np.where(np.arange(4000) == 7, np.nan, b) if anchor == "nan" else anchor
    found = judge(label, a, b, anchor=other)
    assert found.promote and found.compared("anchor") != []
    assert f"version 1, the anchor, cannot be compared, and the champion takes its place ({words}" in said(found)


def shifted(label, *, loss, accuracy, seed=0):
    """Predictions whose log loss and accuracy move on their own: `loss` of the rows are told with certainty, and wrong;
    `accuracy` of them cross the threshold by a hair."""
    r = np.random.default_rng(seed)
    right = np.where(label == 1, 0.6, 0.4)
    wrong = np.where(label == 1, 0.49, 0.51)
    out = np.where(r.random(len(label)) < accuracy, right, wrong)
    sure = r.random(len(label)) < loss
    return np.where(sure, np.where(label == 1, 0.05, 0.95), out)


@pytest.mark.parametrize(
    ("candidate", "champion", "status"),
    [
        # both are better
        ({"loss": 0.0, "accuracy": 0.8}, {"loss": 0.0, "accuracy": 0.7}, "promoted"),
        # the loss is perhaps beyond its limit; surely within it; surely beyond it
        ({"loss": 0.045, "accuracy": 0.9}, {"loss": 0.0, "accuracy": 0.7}, "kept"),
        ({"loss": 0.02, "accuracy": 0.9}, {"loss": 0.0, "accuracy": 0.7}, "promoted"),
        ({"loss": 0.3, "accuracy": 0.9}, {"loss": 0.0, "accuracy": 0.7}, "rejected"),
        # accuracy is within its limit, and the loss is better
        ({"loss": 0.0, "accuracy": 0.7}, {"loss": 0.02, "accuracy": 0.701}, "promoted"),
    ],
)
def test_on_the_same_data_another_metric_may_be_better_and_none_perhaps_beyond_its_limit(
    judge, candidate, champion, status
):
    label = np.random.default_rng(1).integers(0, 2, 4000)
    config = {"tolerance": {"accuracy": 0.03, "loss": 0.07}, "primary": "accuracy", "baseline": False}
    ours, theirs = shifted(label, **candidate), shifted(label, **champion)
    found = judge(label, ours, theirs, theirs=NEW, ours=NEW, config=config)
    assert found.status == status, explain(found).sentences
    assert found.basis == ("better" if status == "promoted" else None)


def test_a_baseline_that_beats_the_candidate_by_any_compared_metric_is_told_champion_or_not(judge, tmp_path):
    label, good, better = models(noise=(0.5, 0.4))
    wild = 1 / (1 + np.exp(-12 * np.log(good / (1 - good))))  # ranks as well, and its probabilities are wild
    pq.write_table(pa.table({"label": label, "prediction": better}), tmp_path / "linear.parquet")
    config = {"tolerance": {"auc": 0.02, "loss": 5.0}}
    counts = LabelFacts(counts=(700, 300))
    linear = {"linear": tmp_path / "linear.parquet"}
    found = judge(label, wild, wild, config=config, baselines=linear, facts=counts)
    assert found.promote
    worse = {(check.name, check.metric) for check in found.checks if check.concern}
    assert worse >= {("constant baseline", "loss"), ("linear baseline", "loss")}
    assert any("the constant baseline beats the candidate: loss is" in said for said in explain(found).concerns)


@pytest.mark.parametrize(
    ("rows", "noise", "words"),
    [
        (4000, (0.2, 2.0), "the candidate beats the linear baseline: auc is "),
        (4000, (2.0, 0.2), "the linear baseline beats the candidate: auc is "),
        (4000, (0.5, 0.5), "the candidate and the linear baseline cannot be told apart: auc is "),
        (40, (2.0, 0.2), "beside the linear baseline: auc is "),
    ],
)
def test_a_baseline_that_need_not_be_beaten_is_compared_in_plain_words(judge, tmp_path, rows, noise, words):
    label, a, b = models(rows, noise=noise)
    pq.write_table(pa.table({"label": label, "prediction": b}), tmp_path / "linear.parquet")
    assert words in said(judge(label, a, baselines={"linear": tmp_path / "linear.parquet"}))


def test_other_baselines_are_shown_and_never_decide(judge, tmp_path):
    label, a, b = models()
    pq.write_table(pa.table({"label": label, "prediction": label * 0.8 + 0.1}), tmp_path / "linear.parquet")
    found = judge(label, a, baselines={"linear": tmp_path / "linear.parquet"})
    assert found.promote and found.metrics.baselines["linear"]["auc"] == 1
    assert "the linear baseline beats the candidate: auc is 0." in said(found)
    assert ", linear 1 (a gain of -" in said(found)
    pq.write_table(pa.table({"label": 1 - label, "prediction": b}), tmp_path / "linear.parquet")
    with pytest.raises(DataError, match="baseline linear's predictions are of other rows"):
        judge(label, a, baselines={"linear": tmp_path / "linear.parquet"})


def test_what_is_promoted_all_the_same_is_a_concern(judge, tmp_path):
    label, a, b = models(rows=20_000, noise=(0.5, 0.5), seed=1)
    found = judge(label, a, b)
    assert found.promote and explain(found).concerns == []
    few = judge(*models(rows=400, noise=(0.55, 0.5), seed=3), config={"tolerance": {"auc": 0.001}})
    assert few.promote and few.compared()[0].outcome == "cannot tell"
    assert re.fullmatch(
        r"auc fell from 0\.\d+ \(version \d\) to 0\.\d+: too few rows to tell whether that is within the limit of 0.001",
        explain(few).concerns[0],
    )
    by_force = judge(label, GARBAGE.repeat(5), b, force=True)
    assert by_force.status == "promoted"
    assert explain(by_force).concerns[0].startswith("promoted by force, against: auc fell")


def test_a_decay_that_the_candidate_does_not_mend_is_a_concern(judge):
    label, good, worse, worst = models(rows=20_000, noise=(0.2, 1.0, 1.05))
    worth = judge(label, good, config={"baseline": False}).worth
    found = judge(label, worst, worse, config={"tolerance": {"auc": 0.02}}, worth=worth)
    assert found.promote and [alarm.concern for alarm in explain(found).alarms] == [True]
    [check] = found.compared("champion decay")
    assert check.change < 0 and check.interval[1] < 0 and check.outcome == "beyond the limit" and check.passed
    mended = judge(label, good, worse, config={"tolerance": {"auc": 0.02}}, worth=worth)
    assert mended.promote and [alarm.concern for alarm in explain(mended).alarms] == [False]


def test_every_check_names_its_rows_and_their_spans(judge):
    label, a, b = models()
    found = judge(label, a, b, eval=(("2013-02", "eval"),), config={"thresholds": {"auc": {"min": 0.5}}})
    assert {check.spans for check in found.checks} == {("2013-02",)}
    assert {c.rows for c in found.checks if c.metric} == {4000}
    assert {check.name for check in found.checks} == {"threshold", "champion", "newer data"}
    assert all(remark.check in found.checks for remark in explain(found).reasons if remark.check)


def test_a_change_of_a_rounding_is_no_better_model(judge):
    label, a, _ = models()
    right = np.where(label == 1, 1.0, -1.0)
    found = judge(label, a + 1e-8 * right, a, theirs=NEW, ours=NEW)
    assert found.status == "kept" and {check.change for check in found.compared()} == {0.0}
