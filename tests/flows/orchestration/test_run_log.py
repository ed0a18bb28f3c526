"""The artifacts of a run."""

import logging
import threading

import pytest

from flows.orchestration import run_log
from flows.orchestration.run_log import RunLog
from flows.pipeline.listeners import Scope
from flows.records import read_record


class Stops:
    """A server that answers, or does not."""

    def __init__(self):
        self.stop, self.up = threading.Event(), True

    def state(self):
        return "RUNNING" if self.up else None

    def check(self):
        pass

    def wait_for_server(self):
        pass


@pytest.fixture
def report(monkeypatch):
    monkeypatch.setattr(run_log, "get_run_logger", lambda: logging.getLogger("test"))
    published = []
    monkeypatch.setattr(
        run_log, "create_markdown_artifact", lambda text, **named: published.append((named["key"], text))
    )
    report = RunLog(Stops(), pipeline="churn")
    report.published = published
    return report


def test_an_artifact_is_not_worth_a_wait_for_a_server_that_is_away(report, caplog):
    caplog.set_level(logging.INFO)
    report.table("one", "", [])
    report._stops.up = False
    report.table("two", "", [])
    report._stops.up = True
    report.table("three", "", [])
    assert [key for key, _ in report.published] == ["churn-one", "churn-three"]
    assert "the artifact two was not published: the Prefect server does not answer" in caplog.text


@pytest.mark.parametrize("folder", ["/srv/churn/store/runs", "s3://bucket/runs"])
def test_a_run_that_ended_is_one_artifact_with_its_report_which_no_link_leads_to(report, folder):
    verdict = {
        "status": "rejected",
        "checks": [
            {
                "name": "threshold",
                "metric": "auc",
                "value": 0.8,
                "allowed": 0.85,
                "limit": "at least",
                "outcome": "missed",
                "passed": False,
                "status": "rejected",
            }
        ],
    }
    place = f"{folder}/20240501-100000-aa.html"
    facts = {"run": "20240501-100000-aa", "pipeline": "churn", "state": "rejected", "started": "", "report": place}
    report.run(Scope(), read_record(facts | {"verdict": verdict}))
    ((key, shown),) = report.published
    assert key == "churn-verdict" and shown.startswith("# Verdict: rejected (red)\n")
    assert "The candidate is rejected: auc is 0.8, below the required minimum of 0.85." in shown
    assert shown.endswith(
        f"- `{place}`\n- `headway report 20240501-100000-aa --open`\n- `{folder[:-5]}/site/index.html`\n"
    )
    assert "](" not in shown


def test_a_first_half_leaves_the_last_verdict_where_it_is_and_one_that_failed_does_not(report):
    facts = {"run": "20240501-100000-aa", "pipeline": "churn", "started": "", "last": "transform"}
    report.run(Scope(), read_record(facts | {"state": "done"}))
    assert not report.published
    report.run(Scope(), read_record(facts | {"state": "failed", "error": "data/2024-01.csv: no such file"}))
    assert [key for key, _ in report.published] == ["churn-verdict"]
