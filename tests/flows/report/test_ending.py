"""How a run ended is the same wherever it is told: terminal, Markdown, report and log."""

import html
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.pipeline.json_log import JsonLog
from flows.pipeline.listeners import Scope
from flows.records import RunRecord, read_record
from flows.report.markdown import markdown
from flows.report.page import page
from flows.report.results import RunResults
from flows.report.text import summary
from flows.report.verdict import ending_of, ending_section, explain
from headway.evaluation.config import GateConfig
from headway.evaluation.gate import decide
from headway.evaluation.requests import Candidate, Champion, GateRequest
from headway.evaluation.verdict import Check, Verdict
from headway.messages import number, signed
from headway.storage.store import Store
from headway.tasks.base import LabelFacts

ROWS = 4000
ENDS = {
    "promoted": ("promoted", "green"),
    "amber": ("promoted, with warnings", "amber"),
    "kept": ("kept", "plain"),
    "rejected": ("rejected", "red"),
    "failed": ("failed", "red"),
}


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """A record for each end, with verdicts of the gate itself."""
    folder, r = tmp_path_factory.mktemp("predictions"), np.random.default_rng(0)
    z = r.normal(size=ROWS)
    label = (r.random(ROWS) < 1 / (1 + np.exp(-2 * z))).astype(int)

    def predicted(noise):
        path = folder / f"{noise}.parquet"
        score = 1 / (1 + np.exp(-2 * z - noise * np.random.default_rng(1).normal(size=ROWS)))
        pq.write_table(pa.table({"label": label, "prediction": score, "city": np.arange(ROWS) % 3}), path)
        return path

    def record(state, ours=1.0, theirs=2.0, *, linear=None, later="2024-02", **more):
        verdict = decide(
            GateRequest(
                task="binary",
                config=GateConfig(thresholds={"auc": {"min": 0.6}}),
                candidate=Candidate(model="new", predictions=predicted(ours), train=((later, "all"),)),
                champion=Champion(version=3, model="old", predictions=predicted(theirs), train=(("2024-01", "all"),)),
                label=LabelFacts(counts=(1, 1)),
                baselines={} if linear is None else {"linear": predicted(linear)},
                eval=(("2024-03", "eval"),),
                slices=("city",),
            )
        )
        known = {"run": f"run-{state.replace(' ', '-')}", "pipeline": "homes", "started": "2026-11-20T10:00:00.000Z"}
        known |= {"metrics": verdict.metrics.candidate, "baselines": verdict.metrics.baselines, "seconds": 3.0}
        if state == "failed":
            return RunRecord(**known, state=state, error="the loss is not a finite number:\n  - step 7\n    fix: x")
        assert verdict.status == state, explain(verdict).sentences
        version = 4 if verdict.promote else None
        return RunRecord(**known, state=state, verdict=verdict.brief, version=version, **more)

    return {
        "promoted": record("promoted"),
        "amber": record("promoted", linear=0.1, warnings=("few rows of city 2",)),
        "kept": record("kept", 1.0, 1.0, later="2024-01"),
        "rejected": record("rejected", 3.0, 0.5),
        "failed": record("failed"),
    }


def plain(text):
    """A page as its reader sees it, in one line."""
    return " ".join(
        html.unescape(re.sub(r"<svg.*?</svg>|<style.*?</style>|<[^>]+>", " ", text, flags=re.DOTALL)).split()
    )


def told(record, folder):
    """{renderer: what it says}"""
    store = Store(folder)
    store.create()
    record.save(store)
    return {
        "terminal": " ".join(summary(record, verbose=False).split()),
        "markdown": " ".join(markdown(ending_section(ending_of(record))).replace("\\|", "|").split()),
        "report": plain(page(RunResults(store, record))),
    }


def test_what_could_not_be_compared_is_told_where_the_checks_have_no_figure_of_it(records):
    record, known = records["rejected"], {"passed": False, "status": "needs a person", "against": "version 3"}
    few = {
        "name": "comparable",
        "outcome": "too few rows",
        "why": "under 20 rows of one class",
        "names": ("auc", "bias"),
    }
    verdict = record.verdict.model_copy(update={"checks": (*record.verdict.checks, Check(**few, **known))})
    ending = ending_of(record.model_copy(update={"verdict": verdict}))
    (reason,) = (said for said in ending.said if "cannot be compared" in said)
    assert reason.startswith("auc and bias cannot be compared with version 3 (under 20 rows of one class); ")


@pytest.mark.parametrize("end", ENDS)
def test_a_run_is_told_the_same_everywhere(records, tmp_path, caplog, end):
    record, (label, tone) = records[end], ENDS[end]
    ending = ending_of(record)
    assert (ending.label, ending.tone) == (label, tone)
    for renderer, text in told(record, tmp_path).items():
        for said in (ending.headline, ending.label, *ending.concerns, *ending.said):
            assert " ".join(said.split()) in text, (renderer, said)
        for check in ending.checks[: 3 if renderer == "terminal" else None]:
            numbers = [
                *([number(check.value)] if check.value is not None else []),
                *([signed(check.change)] if check.before is not None else []),
            ]
            assert all(shown in text for shown in numbers), (renderer, check)
    with caplog.at_level("INFO"):
        JsonLog().on_run(Scope(), record)
    (logged,) = caplog.records
    assert logged.getMessage() == f"homes: {ending.line}" and logged.status == record.state
    assert ending_of(read_record(json.loads(json.dumps(record.as_json())))) == ending


def test_a_concern_stands_beside_the_headline(records):
    ending = ending_of(records["amber"])
    assert ending.headline.startswith("Version 4 is promoted: auc rose from")
    linear, *others, few = ending.concerns
    assert linear.startswith("the linear baseline beats the candidate: auc is ") and few == "few rows of city 2"
    assert [said.split(":")[0] for said in others] == ["the linear baseline beats the candidate"], "by the loss too"
    assert ending.line.startswith(f"{ending.headline} Warning: The linear baseline beats")
    assert not any(linear in said for said in ending.said), "it is said once"


def test_a_headline_is_the_summary_of_the_gravest_reason_without_its_interval(records):
    record = records["rejected"]
    text = explain(record.verdict).reasons[0].text
    headline = ending_of(record).headline
    assert headline == f"The candidate is rejected: {text.summary}." and "more than the allowed drop of" in headline
    assert "interval" not in headline and "95% interval" in text.detail
    assert ending_of(records["failed"]).headline == "The run failed: the loss is not a finite number."
    assert "step 7" in ending_of(records["failed"]).error


def test_a_check_that_nobody_knows_is_shown_by_all(records, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    invented = Check(
        name="fairness of cities",
        metric="auc",
        slice="city",
        slice_value="2",
        value=0.4321,
        allowed=0.0123,
        outcome="too far apart",
        passed=False,
    )
    record = records["promoted"]
    verdict = record.verdict.model_copy(update={"checks": (*record.verdict.checks, invented)})
    for renderer, text in told(record.model_copy(update={"verdict": verdict.brief}), tmp_path).items():
        for shown in ("fairness of cities: auc on city=2", "0.4321", "0.0123", "too far apart"):
            assert shown in text, (renderer, shown)


def test_the_test_split_is_a_remark_that_decides_nothing(records):
    record = read_record(records["promoted"].as_json() | {"test": {"rows": 900, "metrics": {"auc": 0.8}}})
    said = "on the 900 rows of the test split, which decide nothing: auc 0.8"
    assert ending_of(record).notes[-1] == said and said in summary(record)


def test_the_checks_name_their_rows_and_the_window_of_a_source_with_spans(records):
    record = records["promoted"]
    assert ending_of(record).judged_on == "judged on 4,000 eval rows of 2024-03"
    verdict = record.verdict.model_copy(update={"spans": ("all",)})
    assert ending_of(record.model_copy(update={"verdict": verdict})).judged_on == "judged on 4,000 eval rows"


def test_what_fails_comes_first_and_a_limit_has_the_sign_of_a_change_for_the_worse():
    champion = {"name": "champion", "against": "version 3", "value": 0.9, "before": 0.8, "allowed": 0.01}
    better = {"change": 0.1, "interval": (0.05, 0.15), "confidence": 0.95, "outcome": "better"}
    gain = Check(metric="mine:gain", better="higher", **champion, **better)
    cost = gain.model_copy(
        update={"metric": "mine:cost", "better": "lower", "outcome": "beyond the limit", "passed": False}
    )
    perhaps = gain.model_copy(update={"metric": "auc", "change": -0.02, "outcome": "cannot tell"})
    slices = [cost.model_copy(update={"slice": "city", "slice_value": str(i)}) for i in range(4)]
    of = {"primary": "mine:gain", "better": "higher"}
    verdict = Verdict(status="rejected", **of, checks=(gain, perhaps, *slices, cost))
    known = KNOWN | {"state": "rejected"}
    first, others = ending_of(RunRecord(**known, verdict=verdict)).tables()
    wanted = ["mine:cost against version 3", "mine:cost on city=0", "mine:cost on city=1"]
    assert [row["check"] for row in first] == wanted
    assert list(first.tones) == ["red"] * 3 and others.title == "4 more checks, 2 of them failed" and others.folded
    assert list(others.tones) == ["red", "red", "amber", "green"]
    assert [row["limit"] for row in (first[0], others[-1])] == ["+0.01", "-0.01"]
    assert [row["outcome"] for row in others][2:] == ["cannot tell", "better"]
    assert first[0]["change (95% interval)"] == "+0.1 (+0.05 to +0.15)"
    assert ending_of(RunRecord(**known, verdict=verdict)).meanings == "mine:cost: lower is better"  # the first checks'
    wider = gain.model_copy(update={"confidence": 0.975})
    (mixed,) = ending_of(RunRecord(**known, verdict=verdict.model_copy(update={"checks": (gain, wider)}))).tables()
    wanted = ["+0.1 (+0.05 to +0.15)", "+0.1 (97.5% interval +0.05 to +0.15)"]
    assert [row["change (95% interval)"] for row in mixed] == wanted
    (brief,) = ending_of(RunRecord(**known, verdict=verdict)).tables(brief=True)
    assert brief.note == "4 more checks, 2 of them failed" and brief[0]["change"] == "+0.1"


def test_what_changed_since_the_champion_is_a_line():
    changes = [("spans", "2024-01", "2024-01 to 2024-02"), ("model.py", None, "changed"), ("training.steps", None, 60)]
    known = KNOWN | {"state": "rejected", "champion": {"version": 3, "changes": changes}}
    verdict = {"status": "rejected"}
    said = "since version 3: spans 2024-01 -> 2024-01 to 2024-02; model.py changed; training.steps 60"
    assert ending_of(read_record(known | {"verdict": verdict})).said == ("version 3 stays in production", said)


KNOWN = {"run": "r", "pipeline": "p", "started": ""}
BEST = {"name": "champion", "metric": "auc", "against": "version 1", "better": "higher", "allowed": 0.01}


def test_a_champion_that_became_worse_stands_below_the_check_that_decided():
    decay = {"name": "champion decay", "against": "version 1 at its promotion", "limit": "of the gain", "allowed": 0.01}
    decay |= {"outcome": "beyond the limit", "spans": ("2024-02",)}
    moved = Check(metric="loss", better="lower", before=0.5, value=0.8, change=0.2, **decay)
    alike = Check(metric="auc", better="higher", before=0.9, value=0.7, change=-0.2, **decay)
    better = Check(**BEST, before=0.7, value=0.9, change=0.2, interval=(0.1, 0.3), outcome="better")
    verdict = Verdict(status="promoted", primary="auc", checks=(moved, alike, better))
    (table,) = ending_of(RunRecord(**KNOWN, state="promoted", version=2, verdict=verdict)).tables()
    assert [(row["check"], row["before"], row["now"]) for row in table] == [
        ("auc against version 1", "0.7", "0.9"),
        ("auc, version 1 since promotion", "0.9", "0.7"),
        # of the constant's loss nothing is kept: the change is not that of the losses
        ("loss minus constant, version 1 since promotion", None, None),
    ]


def test_a_check_without_a_metric_is_named_by_what_it_asks():
    titles = {"newer data": "newer data than version 1", "comparable": "comparable with version 1", "hold": "hold"}
    checks = [Check(name=name, against="version 1", outcome="x") for name in titles]
    (table,) = ending_of(RunRecord(**KNOWN, state="kept", verdict=Verdict(status="kept", checks=checks))).tables()
    assert sorted(row["check"] for row in table) == sorted(titles.values())


def test_an_outcome_says_worse_where_the_interval_does():
    cases = {(-0.02, -0.001): "worse, perhaps within the limit", (-0.02, 0.001): "cannot tell"}
    cases |= {(0.001, 0.02): "cannot tell"}
    for interval, said in cases.items():
        check = Check(**BEST, change=sum(interval) / 2, interval=interval, outcome="cannot tell")
        verdict = Verdict(status="promoted", primary="auc", checks=(check,))
        (table,) = ending_of(RunRecord(**KNOWN, state="promoted", version=2, verdict=verdict)).tables()
        assert table[0]["outcome"] == said


MISSED = {"passed": False, "status": "rejected"}
SMALL = {"name": "constant baseline", "against": "constant", "outcome": "cannot tell", "better": "higher"} | MISSED
FELL = BEST | {"before": 0.9, "value": 0.8, "change": -0.1, "outcome": "beyond the limit"} | MISSED


def test_only_what_would_change_the_verdict_is_advised():
    small = Check(metric="auc", value=0.51, before=0.5, change=0.01, interval=(-0.01, 0.03), **SMALL)
    advice = ("what to do: gate.baseline: false would let it pass",)
    for checks, fixes in (((small,), advice), ((Check(**FELL), small), ())):
        verdict = Verdict(status="rejected", checks=checks)
        ending = ending_of(RunRecord(**KNOWN, state="rejected", verdict=verdict))
        assert tuple(said for said in ending.said if said.startswith("what to do")) == fixes


@pytest.mark.parametrize("promoted", [True, False])
def test_what_the_gate_could_not_check_is_told_whatever_the_verdict(promoted):
    few = {
        "name": "threshold",
        "metric": "auc",
        "slice": "carrier",
        "outcome": "not checked",
        "why": "few rows",
        "count": 1,
    }
    status = "promoted" if promoted else "kept"
    said = "auc was not checked on 1 value of carrier with fewer than 60 rows"
    verdict = Verdict(status=status, checks=(Check(**few, allowed=60, concern=True),))
    record = RunRecord(**KNOWN, state=status, version=2, verdict=verdict)
    ending = ending_of(record)
    assert [said in " ".join(told) for told in (ending.concerns, ending.notes)] == [promoted, not promoted]
    assert (f"warning: {said}" in summary(record)) is promoted


def test_a_headline_is_not_said_again():
    same = Check(name="same model", against="version 1", outcome="the champion", passed=False, status="kept")
    verdict = Verdict(status="kept", basis="same model", checks=(same,))
    assert ending_of(RunRecord(**KNOWN, state="already champion", version=1, verdict=verdict)).said == ()
    rose = FELL | {"metric": "loss", "better": "lower", "before": 0.3, "value": 0.5, "change": 0.2}
    verdict = Verdict(status="promoted", basis="forced", primary="auc", checks=(Check(**FELL), Check(**rose)))
    ending = ending_of(RunRecord(**KNOWN, state="promoted", version=2, verdict=verdict))
    fell = "auc fell from 0.9 (version 1) to 0.8, more than the allowed drop of 0.01"
    assert ending.headline == f"Version 2 is promoted by force, against: {fell}."
    (concern,) = ending.concerns
    assert concern.startswith("promoted by force, against: loss rose from 0.3") and ending.tone == "amber"
    alone = verdict.model_copy(update={"checks": verdict.checks[:1]})
    ending = ending_of(RunRecord(**KNOWN, state="promoted", version=2, verdict=alone))
    assert (ending.concerns, ending.tone) == ((), "amber")


@pytest.mark.parametrize("columns", ["80", "100"])
def test_checks_are_one_table_in_a_terminal_of_any_width(records, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    other = BEST | {"against": "version 1 at its promotion", "before": 0.1234, "value": 0.1134}
    check = Check(**other, change=-0.01, interval=(-0.0123, -0.0012), outcome="cannot tell")
    record = records["amber"]
    verdict = record.verdict.model_copy(update={"checks": (*record.verdict.checks, check)})
    lines = summary(record.model_copy(update={"verdict": verdict})).splitlines()
    heads = [line for line in lines if line.startswith("  check ")]
    assert len(heads) == 2 and all(line.endswith("outcome") for line in heads)
    assert f"  {ending_of(record.model_copy(update={'verdict': verdict})).tables()[1].title}:" in lines
    assert max(len(line) for line in lines[lines.index(heads[0]) :][:5]) <= int(columns)


@pytest.mark.parametrize(("state", "shown"), [("promoted", 3), ("rejected", 1)])
def test_a_brief_summary_shows_few_warnings_and_how_many_more_there_are(state, shown):
    said = [f"column {name} is odd" for name in "abcde"]
    record = RunRecord(**KNOWN, state=state, version=2, warnings=said, verdict=Verdict(status="promoted"))
    lines = summary(record, verbose=False).splitlines()
    assert [line for line in lines if line.startswith("warning")] == [f"warning: {each}" for each in said[:shown]]
    assert f"{5 - shown} more warnings: headway show" in lines
    assert summary(record).count("warning: ") == 5


def test_a_first_model_s_headline_is_its_level_beside_the_baselines():
    levels = {"candidate": {"auc": 0.91}, "baselines": {"constant": {"auc": 0.5}, "linear": {"auc": 0.9}}}
    verdict = Verdict(status="promoted", basis="first model", primary="auc", metrics=levels)
    record = RunRecord(**KNOWN, state="promoted", version=1, verdict=verdict)
    said = "Version 1 is promoted, the first of this model: auc is 0.91, constant 0.5, linear 0.9."
    assert ending_of(record).headline == said
