"""A flow run: what asks it to stop, what keeps its process alive while its worker or the server is away, its artifacts."""

import contextlib
import inspect
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from types import SimpleNamespace

import httpx
import pytest
from prefect import flow_engine
from prefect.exceptions import CancelledRun, FailedRun

from flows.orchestration import run_log, server
from flows.orchestration.flows import go_on_without_lease
from flows.orchestration.run_log import RunLog
from flows.orchestration.server import StopRequests
from flows.pipeline.listeners import Scope
from flows.records import read_record
from headway.errors import Cancelled


def test_signals_of_one_stop_are_one_stop():
    script = """
        import signal, threading, time
        from flows.pipeline.listeners import stop_on_signals
        stop = threading.Event()
        with stop_on_signals(stop, signal.SIGTERM, signal.SIGINT, same_seconds=1.0):
            with stop._cond:  # as within a wait for it, where this thread holds the event's lock
                print("ready", flush=True)
                time.sleep(0.5)
            stop.wait()
            print("stopping", flush=True)
            time.sleep(60)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == b"stopping\n"
    process.send_signal(signal.SIGINT)  # of the terminal, or of a supervisor: the same stop
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == -signal.SIGINT, "interrupted"


def test_a_flow_run_waits_for_a_server_that_is_away(monkeypatch):
    states = iter([None, None, "RUNNING"])
    monkeypatch.setattr(server, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(StopRequests, "state", lambda self: next(states))
    stops = StopRequests("0e0f")
    stops.wait_for_server()
    assert next(states, "asked until it answered") == "asked until it answered"
    monkeypatch.setattr(StopRequests, "state", lambda self: None)
    stops.stop.set()
    stops.wait_for_server()  # one that is stopped does not wait


@pytest.mark.parametrize(
    ("code", "answer", "why"),
    [
        (404, {"detail": "Flow run not found"}, "the flow run was deleted on the server"),
        (200, {"state": {"type": "CRASHED"}}, "the flow run's state was set to Crashed"),
        (200, {"state": {"type": "CANCELLING"}}, "the flow run is being cancelled"),
        (200, {"state": {"type": "RUNNING"}}, None),
        (404, {"detail": "Not Found"}, None),  # of a proxy, or of a wrong address
        (401, {"detail": "Not authenticated"}, None),
        (503, {"detail": "database is locked"}, None),
    ],
)
def test_what_the_server_answers_decides_whether_a_run_goes_on(monkeypatch, code, answer, why):
    monkeypatch.setattr(server, "get_once", lambda client, path: httpx.Response(code, json=answer))
    monkeypatch.setattr(server, "get_client", lambda **options: SimpleNamespace())
    stops = StopRequests("0e0f")
    with contextlib.nullcontext() if why is None else pytest.raises(Cancelled, match=why):
        stops.check()
    assert stops.why == why and stops.stop.is_set() == (why is not None)
    assert server.POLL_SECONDS <= 5


@pytest.mark.long
@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_printing_outlives_the_reader(closed):
    script = """
        import logging, subprocess, sys
        from rich.console import Console
        early = Console(file=sys.stderr)  # such as a log handler of Prefect's, which was there before
        from flows.orchestration.flows import outlive_reader
        outlive_reader()
        sys.stdin.readline()
        for _ in range(3):
            print("a line", flush=True)
            for console in (Console(), early):
                console.print("rich ends a process whose pipe is broken")
            logging.warning("to stderr")
        subprocess.run([sys.executable, "-c", "print(1)"], check=True)
        raise SystemExit(7)
    """
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdin=subprocess.PIPE, **{closed: write}
    )
    os.close(write)
    os.close(read)  # the worker died
    process.communicate(b"\n", timeout=60)
    assert process.returncode == 7


def test_a_flow_run_goes_on_without_the_lease_of_its_slot(monkeypatch):
    """By the private name flow_engine.maintain_concurrency_lease: it fails where a version's engine calls another."""
    given = []
    monkeypatch.setattr(flow_engine, "maintain_concurrency_lease", lambda *arguments, **options: given.append(options))
    go_on_without_lease()
    flow_engine.maintain_concurrency_lease("a lease", 300, raise_on_lease_renewal_failure=True)
    assert given == [{"raise_on_lease_renewal_failure": False}]
    body = inspect.getsource(flow_engine.FlowRunEngine.setup_run_context)
    assert "maintain_concurrency_lease(" in body and "raise_on_lease_renewal_failure" in body


@pytest.mark.parametrize(
    ("error", "kept"), [(FailedRun("no span"), False), (CancelledRun("stopped"), False), (OSError("away"), True)]
)
def test_prefects_traceback_of_a_state_that_has_words_is_no_line_of_the_log(error, kept):
    logger, exited = logging.getLogger("prefect.flow_runs"), "Engine execution exited with unexpected exception"
    record = logger.makeRecord(logger.name, logging.ERROR, "", 0, exited, (), (type(error), error, None))
    assert bool(logger.filter(record)) == kept


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
    check = {"name": "threshold", "metric": "auc", "value": 0.8, "allowed": 0.85, "limit": "at least"}
    check |= {"outcome": "missed", "passed": False, "status": "rejected"}
    verdict = {"status": "rejected", "checks": [check]}
    place = f"{folder}/20240501-100000-aa.html"
    facts = {"run": "20240501-100000-aa", "pipeline": "churn", "state": "rejected", "started": "", "report": place}
    report.on_run(Scope(), read_record(facts | {"verdict": verdict}))
    ((key, shown),) = report.published
    assert key == "churn-verdict" and shown.startswith("# Verdict: rejected (red)\n")
    assert "The candidate is rejected: auc is 0.8, below the required minimum of 0.85." in shown
    said = f"- `{place}`\n- `headway report 20240501-100000-aa --open`\n- `{folder[:-5]}/site/index.html`\n"
    assert shown.endswith(said)
    assert "](" not in shown


def test_a_first_half_leaves_the_last_verdict_where_it_is_and_one_that_failed_does_not(report):
    facts = {"run": "20240501-100000-aa", "pipeline": "churn", "started": "", "last": "transform"}
    report.on_run(Scope(), read_record(facts | {"state": "done"}))
    assert not report.published
    report.on_run(Scope(), read_record(facts | {"state": "failed", "error": "data/2024-01.csv: no such file"}))
    assert [key for key, _ in report.published] == ["churn-verdict"]
