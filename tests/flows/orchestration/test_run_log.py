"""What a run reports while the server is away is published once it is back, in order."""

import threading

import pytest

from flows.orchestration import run_log
from flows.orchestration.run_log import RunLog


class Stops:
    """A server that answers, or does not."""

    def __init__(self):
        self.stop, self.up = threading.Event(), True

    def state(self):
        return "RUNNING" if self.up else None


@pytest.fixture
def report(monkeypatch):
    published = []
    monkeypatch.setattr(run_log, "get_run_logger", lambda: None)
    monkeypatch.setattr(RunLog, "_publish", lambda self, artifact: published.append(artifact.key))
    report = RunLog(Stops(), pipeline="churn")
    report.published = published
    return report


def test_a_table_of_an_outage_is_published_after_it_and_before_later_ones(report):
    report.table("one", "", [])
    report._stops.up = False
    report.table("two", "", [])
    assert report.published == ["one"]
    report._stops.up = True
    report.table("three", "", [])
    assert report.published == ["one", "two", "three"]


def test_what_is_still_to_be_published_at_the_end_is(report):
    report._stops.up = False
    report.table("one", "", [])
    report.catch_up()
    report.catch_up()
    assert report.published == ["one"]
