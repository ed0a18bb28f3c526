"""A backtest: past windows judged on the span after, the champions of their time, and nothing left in production."""

import json

import pytest

from flows.execution.studies.backtest import Window, _summary

SMALL = ("--set", "training.steps=12", "--set", "gate.baseline=false", "--set", "evaluation.slices=[]")


@pytest.mark.long
def test_each_window_is_judged_on_the_next_span_and_nothing_is_promoted(typed, project):
    done = typed("backtest", project, "--windows", "2", "--window", "2", "--json", *SMALL, check=0)
    result = json.loads(done.stdout)
    rows = result["windows"]
    assert [(row["train"], row["until"]) for row in rows] == [
        (["2013-02"], "2013-03"),
        (["2013-03"], "2013-04"),
    ]
    assert rows[0]["verdict"] == "first model" and rows[0]["champion"] is None
    # what the first window learned is the champion of the second
    assert rows[1]["champion_of"] == "2013-03"
    assert rows[1]["champion"]["auc"] != rows[1]["candidate"]["auc"] and result["compared"] == 1
    assert result["means"]["constant"] == 0.5 and result["verdicts"]["first model"] == 1
    assert not list((project / "store" / "models").iterdir()) and not list((project / "store" / "runs").iterdir())
    assert not (project / "schema.pbtxt").exists()
    # a run over the same window finds what the backtest made
    plan = json.loads(typed("plan", project, "--window", "2", "--json", *SMALL, check=0).stdout)
    assert all(step["cached"] for step in plan["steps"] if step["stage"] in ("ingest", "train", "evaluate"))


def test_mistakes_say_what_to_do(typed, project):
    done = typed("backtest", project, "--set", "split.mode=hash", check=2)
    assert "split.mode is hash" in done.stderr and "fix: --set 'split={mode: time}'" in done.stderr
    done = typed("backtest", project, "--set", "source.path=data/2013-01.csv", "--set", "split={mode: hash}", check=2)
    assert "the source is one span" in done.stderr and "data/{span}.csv" in done.stderr
    done = typed("backtest", project, "--until", "2013-01", check=2)
    assert "1 span up to 2013-01 is too few to train on some and judge on the next" in done.stderr
    assert (
        "--windows: '0' is not a whole number of 1 or more"
        in typed("backtest", project, "--windows", "0", check=2).stderr
    )


def test_the_summary_counts_the_windows_that_have_a_champion():
    def row(candidate, champion, verdict="promote", **more):
        return Window(
            until="a",
            verdict=verdict,
            primary="rmse",
            candidate={"rmse": candidate},
            champion=champion and {"rmse": champion},
            baselines={"constant": {"rmse": 3 * candidate}},
            **more,
        )

    failed = Window(until="b", verdict="failed", error="no rows")
    found = _summary("p", [row(9.0, None, "first model"), row(2.0, 3.0), row(4.0, 2.0, "reject"), failed])
    assert found.compared == 2 and found.candidate_better == 1
    # means of other windows would be of other rows
    assert found.means == {"candidate": 3.0, "champion": 2.5, "constant": 9.0}
    assert found.verdicts == {"first model": 1, "promote": 1, "reject": 1, "failed": 1}
    assert _summary("p", [row(9.0, None)]).means == {"candidate": 9.0, "champion": None, "constant": 27.0}
    own = [row(3.0, None, better="higher"), row(2.0, 3.0, better="higher")]  # of a metric of the user's own
    assert _summary("p", own).candidate_better == 0
