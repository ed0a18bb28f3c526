"""A champion's metrics of its promotion against those on other rows."""

import re

import numpy as np
import pytest

from flows.report.verdict import explain
from headway.evaluation.tolerance import decay_checks, with_errors
from headway.evaluation.verdict import Verdict
from headway.tasks.base import LabelFacts
from headway.tasks.table import task_of

BINARY = task_of("binary")
JUDGING = {metric.name: metric for metric in BINARY.metrics}
TOLERANCES = BINARY.tolerances


def probability(z):
    return 1 / (1 + np.exp(-z))


def kept(seed, *, shift=0.0, signal=1.0, intercept=-1.5, rows=4000, known=True):
    """What a model is worth on rows of a world: `shift` moves the truth away from what the model says, `signal` is how much
    of the truth it knows."""
    r = np.random.default_rng(seed)
    x = r.normal(size=rows)
    label = (r.random(rows) < probability(intercept + shift + signal * x)).astype(int)
    # the constant is of the train rows, which have the model's share of positives
    share = probability(-1.5 + r.normal(size=100_000)).mean() if intercept == -1.5 else label.mean()
    return with_errors(
        BINARY,
        BINARY.rows(label, probability(intercept + x)),
        [JUDGING[name] for name in TOLERANCES],
        label=LabelFacts(counts=(int(1e6 * (1 - share)), int(1e6 * share))) if known else None,
        seed=seed,
    )


def alarms(then, today, confidence=0.95):
    return [d.metric for d in decay_checks(then, today, TOLERANCES, JUDGING, version=3, confidence=confidence)]


def test_a_model_that_lost_its_signal_is_worse_and_the_sentence_has_both_times():
    then, today = kept(1), kept(2, signal=0.3)
    assert set(alarms(then, today)) >= {"auc", "loss"}
    every = decay_checks(then, today, TOLERANCES, JUDGING, version=3, confidence=0.95)

    def fallen(decays, spans, before, mended):
        facts = {"mended": mended, "names": (before,) if before else (), "concern": not mended}
        checks = tuple(decay.model_copy(update=facts) for decay in decays)
        spans = (spans,) if spans else ()
        [alarm] = explain(Verdict(status="promoted", checks=checks, spans=spans)).alarms
        return alarm

    alarm = fallen(every[:2], "2013-10", "2013-09", False)
    said, fix = alarm.text.summary, alarm.text.fix
    assert "better than the constant then" in alarm.text.detail and "beyond the limit of 0.005" in alarm.text.detail
    assert re.fullmatch(
        r"2013-10 is harder: version 3 became worse, from auc 0\.7\d+ and loss [\d.]+ on 2013-09 to 0\.\d+ and [\d.]+ on "
        "2013-10, and the candidate does not make up for it",
        said,
    )
    assert fix == "if rows like these go on coming, expect this level"
    said = fallen(every[:1], "", "", False).text.summary
    assert said.endswith(" today, and the candidate does not make up for it")
    mended = fallen(every[:1], "2013-10", "2013-10", True)
    said, fix = mended.text.summary, mended.text.fix
    assert said.endswith(" today, and the candidate makes up for it") and "harder" not in said and not fix
    check = every[0]
    assert check.change < 0 and check.interval[0] < check.change < check.interval[1] < 0 and check.passed
    assert alarms(today, then) == []


def test_a_shift_of_the_label_is_an_alarm_of_calibration():
    found = alarms(kept(1), kept(2, shift=0.6))
    assert "bias" in found and "auc" not in found


def test_more_positives_alone_raise_the_loss_and_no_alarm():
    then, today = kept(1), kept(2, intercept=-0.5)
    assert today["loss"]["value"] > then["loss"]["value"] + 0.1
    assert alarms(then, today) == []


def test_without_a_known_constant_values_are_compared():
    then, today = kept(1, known=False), kept(2, signal=0.3, known=False)
    assert then["auc"]["gain"] is None and "auc" in alarms(then, today)
    checks = decay_checks(then, today, TOLERANCES, JUDGING, version=3, confidence=0.95)[:1]
    [alarm] = explain(Verdict(status="kept", checks=checks)).alarms
    assert alarm.text.summary.startswith("the champion, version 3, has become worse since it was promoted: auc was 0.7")
    assert not {"auc", "loss"} & set(alarms(kept(1), today))  # of one the constant is not known


@pytest.mark.long
def test_models_that_are_as_good_as_ever_are_rarely_alarmed():
    rates = [bool(alarms(kept(seed, rows=1500), kept(seed + 10_000, rows=1500))) for seed in range(300)]
    assert np.mean(rates) <= 0.05
