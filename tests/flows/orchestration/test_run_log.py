"""What a run reports while the server is away is published once it is back, in order."""

import logging
import threading

import pytest

from flows.orchestration import run_log
from flows.orchestration.run_log import RunLog
from flows.pipeline.listeners import Progress, Scope
from flows.records import read_record
from flows.report.markdown import markdown


class Stops:
    """A server that answers, or does not."""

    def __init__(self):
        self.stop, self.up = threading.Event(), True

    def state(self):
        return "RUNNING" if self.up else None

    def check(self):
        pass

    def wait_for_server(self):
        self.up = True


@pytest.fixture
def report(monkeypatch):
    published = []
    monkeypatch.setattr(run_log, "get_run_logger", lambda: logging.getLogger("test"))
    monkeypatch.setattr(RunLog, "_publish", lambda self, key, part: published.append(key))
    monkeypatch.setattr(run_log, "create_progress_artifact", lambda *shown: published.append(shown) or "id")
    monkeypatch.setattr(run_log, "update_progress_artifact", lambda *shown: published.append(shown))
    stops = Stops()
    report = RunLog(stops, pipeline="churn")
    report.server = stops
    report.published = published
    return report


def test_a_table_of_an_outage_is_published_after_it_and_before_later_ones(report):
    report.table("one", "", [])
    report.server.up = False
    report.table("two", "", [])
    assert report.published == ["one"]
    report.server.up = True
    report.table("three", "", [])
    assert report.published == ["one", "two", "three"]


def test_what_is_still_to_be_published_at_the_end_is(report):
    report.server.up = False
    report.table("one", "", [])
    report.catch_up()
    report.catch_up()
    assert report.published == ["one"]


@pytest.mark.parametrize("folder", ["/srv/churn/store/runs", "s3://bucket/runs"])
def test_a_run_that_ended_is_one_artifact_with_its_report_which_no_link_leads_to(report, monkeypatch, folder):
    monkeypatch.setattr(RunLog, "_publish", lambda self, key, part: report.published.append((key, markdown(part))))
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
    report.server.up = False
    report.run(Scope(), read_record(facts | {"verdict": verdict}))
    assert not report.published, "the server is away"
    report.catch_up()
    ((key, shown),) = report.published
    assert key == "verdict" and shown.startswith("# Verdict: rejected (red)\n")
    assert "The candidate is rejected: auc is 0.8, below the required minimum of 0.85." in shown
    assert shown.endswith(
        f"- `{place}`\n- `headway report 20240501-100000-aa --open`\n- `{folder[:-5]}/site/index.html`\n"
    )
    assert "](" not in shown


def test_a_first_half_leaves_the_last_verdict_where_it_is_and_one_that_failed_does_not(report, monkeypatch):
    monkeypatch.setattr(RunLog, "_publish", lambda self, key, part: report.published.append(key))
    facts = {"run": "20240501-100000-aa", "pipeline": "churn", "started": "", "last": "transform"}
    report.run(Scope(), read_record(facts | {"state": "done"}))
    assert not report.published
    report.run(Scope(), read_record(facts | {"state": "failed", "error": "data/2024-01.csv: no such file"}))
    assert report.published == ["verdict"]


def test_a_step_that_takes_long_has_a_bar_with_its_speed_and_the_time_left(report):
    def step(done, **known):
        return Progress(step="train", done=done, total=200, unit="steps", **known)

    report.progress(Scope(), step(50, per_second=12.0, seconds_left=13.0, facts={"loss": 0.31}))
    report.progress(Scope(), step(100, per_second=12.0, seconds_left=12.0, facts={"loss": 0.29}))
    first, second = report.published
    assert first == (25.0, "churn-progress-train", "train: 50 of 200 steps, 12 steps/s, loss 0.31, 13 s left")
    assert second == ("id", 50.0, "train: 100 of 200 steps, 12 steps/s, loss 0.29, 12 s left")
    report.server.up = False
    report.progress(Scope(), step(150))
    assert len(report.published) == 2, "a bar is not worth a wait"


def test_what_a_flow_says_of_its_end_is_not_said_again_by_prefect(caplog):
    run_log.say_once()
    run_log.say_once()
    flow, task = logging.getLogger("prefect.flow_runs"), logging.getLogger("prefect.task_runs")
    for logger in (flow, task):
        logger.addHandler(caplog.handler)
    try:
        with caplog.at_level(logging.INFO):
            flow.error("the eval split is empty")
            flow.info("Finished in state Failed('the eval split is empty')")
            task.error("Finished in state Failed('the eval split is empty')")
            task.error(
                "Task run failed with state: Failed(message='the eval split is empty', type=FAILED, result=None)"
            )
            task.info("Finished in state Completed()")
            flow.info("Beginning flow run")
    finally:
        for logger in (flow, task):
            logger.removeHandler(caplog.handler)
    said = list(dict.fromkeys(record.getMessage() for record in caplog.records))
    assert said == ["the eval split is empty", "Finished in state Completed()", "Beginning flow run"]
