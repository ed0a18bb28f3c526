"""What may not be promoted: what cannot be compared, what is not better on the same data."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headway.errors import DataError
from headway.evaluation.gate import Candidate, Champion, GateRequest
from headway.evaluation.gate.stage import decide
from headway.evaluation.gate_config import GateConfig

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
        return decide(
            GateRequest(
                task=more.pop("task", "binary"),
                config=GateConfig(**(config or {})),
                candidate=Candidate(model="new", predictions=write("a", label, candidate, columns), train=ours),
                champion=known,
                **more,
            )
        )

    return run


def said(verdict):
    return " | ".join(verdict.sentences)


GARBAGE = np.random.default_rng(9).random(4000)


@pytest.mark.parametrize(
    ("spoil", "verdict", "words"),
    [
        (
            lambda c: {"columns": {"group": np.zeros(4000, int)}, "group": "group"},
            "not comparable",
            "auc, loss and bias cannot be compared with version 3 (under 5 groups; give eval",
        ),
        (lambda c: {"columns": {"weight": np.zeros(4000)}}, "reject", "auc and loss have no value on these rows"),
        (lambda c: c.__setitem__(7, np.nan) or {}, "not comparable", "1 of 4,000 predictions that is not a finite"),
    ],
)
def test_garbage_that_cannot_be_compared_is_not_promoted(judge, spoil, verdict, words):
    label, champion, _ = models()
    found = judge(label, GARBAGE, champion, **spoil(champion))
    assert (found.verdict, found.promote) == (verdict, False) and words in said(found)


def test_one_row_is_not_a_comparison(judge):
    found = judge(np.array([1]), np.array([0.2]), np.array([0.9]))
    assert (found.verdict, found.promote) == ("reject", False)
    assert "auc has no value on these rows, and gate.tolerance asks for one" in said(found)
    found = judge(np.array([1]), np.array([0.2]), np.array([0.9]), config={"tolerance": {"loss": 0.1}})
    assert (found.verdict, found.promote) == ("not comparable", False) and "under 20 rows" in said(found)


def test_few_rows_of_a_class_hold_overall_as_they_do_on_a_slice(judge):
    label, a, b = models(rows=3000)
    label[:] = 0
    label[:19] = 1
    found = judge(label, a, b)
    assert (found.verdict, found.promote) == ("not comparable", False)
    assert "auc and bias cannot be compared with version 3 (under 20 rows of one class" in said(found)
    label[:20] = 1
    assert judge(label, a, b).verdict != "not comparable"


@pytest.mark.parametrize("theirs", [OLD, NEW])
def test_what_is_better_is_promoted_whatever_its_data(judge, theirs):
    label, good, worse = models(noise=(0.1, 0.9))
    found = judge(label, good, worse, theirs=theirs)
    assert (found.verdict, found.promote, found.outcome) == ("promote", True, "better")
    assert "auc rose from" in said(found)


def test_what_is_not_better_replaces_the_champion_only_with_newer_data(judge):
    label, a, b = models(noise=(0.52, 0.5), seed=3)
    found = judge(label, a, b, theirs=NEW, ours=NEW)
    assert (found.verdict, found.promote) == ("keep champion", False)
    assert "auc is not better than with version 3, and the candidate's data are not newer (version 3 stays)" in said(
        found
    )
    assert judge(label, a, b, theirs=NEW, ours=OLD).verdict == "keep champion"
    found = judge(label, a, b, theirs=(), ours=NEW)
    assert found.verdict == "keep champion" and "the candidate's data are not known to be newer" in said(found)
    found = judge(label, a, b)
    assert (found.verdict, found.promote) == ("promote", True)
    assert "trained up to span 2013-02, version 3 up to 2013-01" in said(found)
    found = judge(label, a, b, theirs=NEW, ours=NEW, force=True)
    assert (found.verdict, found.promote) == ("forced", True) and "against: auc is not better" in said(found)


def test_a_verdict_says_which_values_of_a_metric_of_ones_own_are_better(judge, tmp_path):
    (tmp_path / "mine.py").write_text(
        "def right(label, prediction, columns):\n    return ((prediction > 0.5) == label).mean()\n"
    )
    spec = {"name": "mine:right", "file": tmp_path / "mine.py", "better": "higher"}
    label, good, worse = models(rows=500, noise=(0.1, 2.0))
    config = {"primary": "mine:right", "tolerance": {"mine:right": 0.01, "loss": 0.01}}
    found = judge(label, good, worse, config=config, metrics=[spec])
    assert (found.primary, found.better, found.outcome) == ("mine:right", "higher", "better")
    compared = {each.metric: each.better for each in found.compared()}
    assert compared == {"mine:right": "higher", "loss": "lower"}


def test_a_span_whose_files_changed_is_newer():
    from headway.evaluation.gate import newer

    candidate = Candidate(model="n", predictions="x", train=NEW, data={"2013-02": "b"})
    champion = Champion(version=3, model="o", predictions="y", train=NEW, data={"2013-02": "a"})
    assert "raw files of span 2013-02 have changed" in newer(candidate, champion)
    assert newer(candidate, champion.model_copy(update={"data": {"2013-02": "b"}})) is None
    assert newer(candidate, champion.model_copy(update={"data": {}})) is None


def test_a_change_is_within_the_limit_also_where_it_is_a_loss_beyond_chance_or_cannot_be_told(judge):
    label, a, b = models(rows=20_000, noise=(0.5, 0.5), seed=1)
    assert judge(label, b, b, theirs=NEW).outcome == "within the limit"
    found = judge(label, a, b, config={"tolerance": {"auc": 0.0005}})
    detail = found.compared()[0]
    assert found.outcome == "cannot tell" and detail.detectable > 0.0005
    assert "too few rows to tell whether that is within the limit of 0.0005" in said(found)
    assert "the smallest loss that could have been detected is 0.0" in said(found)
    label, a, b = models(rows=20_000, noise=(0.7, 0.5), seed=1)
    found = judge(label, a, b, config={"tolerance": {"auc": 0.05}})
    assert found.outcome == "within the limit" and "auc is within the limit of 0.05: from 0." in said(found)


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
    assert "the linear baseline beats the candidate: auc is 0." in said(found) and ", linear 1 (a gain of -" in said(
        found
    )
    pq.write_table(pa.table({"label": 1 - label, "prediction": b}), tmp_path / "linear.parquet")
    with pytest.raises(DataError, match="baseline linear's predictions are of other rows"):
        judge(label, a, baselines={"linear": tmp_path / "linear.parquet"})


def test_what_is_promoted_all_the_same_is_a_concern(judge, tmp_path):
    label, a, b = models(rows=20_000, noise=(0.5, 0.5), seed=1)
    found = judge(label, a, b)
    assert found.promote and found.concerns == []
    few = judge(*models(rows=400, noise=(0.55, 0.5), seed=3), config={"tolerance": {"auc": 0.001}})
    assert few.promote and few.outcome == "cannot tell"
    assert re.fullmatch(
        r"auc fell from 0\.\d+ \(version \d\) to 0\.\d+: too few rows to tell whether that is within the limit of 0.001",
        few.concerns[0],
    )
    by_force = judge(label, GARBAGE.repeat(5), b, force=True)
    assert by_force.verdict == "forced" and by_force.concerns[0].startswith("promoted by force, against: auc fell")


def test_a_decay_that_the_candidate_does_not_mend_is_a_concern(judge):
    label, good, worse, worst = models(rows=20_000, noise=(0.2, 1.0, 1.05))
    worth = judge(label, good, config={"baseline": False}).worth
    found = judge(label, worst, worse, config={"tolerance": {"auc": 0.02}}, worth=worth)
    assert found.promote and [alarm.concern for alarm in found.alarms] == [True]
    [check] = found.compared("champion decay")
    assert check.change < 0 and check.interval[1] < 0 and check.outcome == "beyond the limit" and check.passed
    mended = judge(label, good, worse, config={"tolerance": {"auc": 0.02}}, worth=worth)
    assert mended.promote and [alarm.concern for alarm in mended.alarms] == [False]


def test_every_check_names_its_rows_and_their_spans(judge):
    label, a, b = models()
    found = judge(label, a, b, eval=(("2013-02", "eval"),), config={"thresholds": {"auc": {"min": 0.5}}})
    assert {check.spans for check in found.checks} == {("2013-02",)} and {c.rows for c in found.checks} == {4000}
    assert {check.name for check in found.checks} == {"threshold", "champion"}
    assert all(remark.check in {c.key for c in found.checks} for remark in found.reasons if remark.check)
