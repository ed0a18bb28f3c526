"""Which flow runs are ended because their process is gone, and which processes are known of."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from flows.orchestration import requested_stops as asking
from flows.orchestration.processes import Processes
from flows.orchestration.requested_stops import StopRequests
from flows.orchestration.watch import PAGE, FlowRun, Server, Watch, once
from headway.errors import Cancelled
from headway.storage.process_identity import place, started

ELSEWHERE = {"elsewhere": None}
"""A flow run whose process cannot be seen from here."""


def _ends(watch, runs, times):
    """The endings at each of these times."""
    return [[(e.flow_run, e.state, e.message) for e in watch.look(runs, now)] for now in times]


@pytest.mark.parametrize(
    ("state", "ended"), [("RUNNING", "CRASHED"), ("PENDING", "CRASHED"), ("CANCELLING", "CANCELLED")]
)
def test_a_dead_process_is_reported_at_the_second_look(state, ended):
    watch = Watch({"a": False}.get)
    assert _ends(watch, [FlowRun("a", state)], [0, 5]) == [[], [("a", ended, "its process is gone")]]


def test_a_living_process_is_left_alone_whatever_its_heartbeats():
    watch = Watch({"a": True}.get)
    assert _ends(watch, [FlowRun("a", "RUNNING", "beat 1"), FlowRun("a", "PENDING")], range(0, 1000, 5)) == [[]] * 200


def test_heartbeats_decide_where_the_process_cannot_be_seen():
    watch = Watch(ELSEWHERE.get)
    for now in range(0, 400, 5):
        assert not watch.look([FlowRun("elsewhere", "RUNNING", f"beat {now // 30}")], now)
    silent = [FlowRun("elsewhere", "RUNNING", "the last")]
    endings = dict(zip(range(400, 500, 5), _ends(watch, silent, range(400, 500, 5)), strict=True))
    message = "no heartbeat for 90 s: its process is gone"
    assert {now for now, found in endings.items() if found} == {495}  # more than 90 s after it was seen first
    assert endings[495] == [("elsewhere", "CRASHED", message)]


def test_a_run_that_sends_no_heartbeats_is_not_judged_by_them():
    assert not any(_ends(Watch(ELSEWHERE.get), [FlowRun("elsewhere", "RUNNING")], range(0, 1000, 5)))


def test_pending_does_not_last_for_ever():
    found = _ends(Watch(ELSEWHERE.get), [FlowRun("elsewhere", "PENDING")], [0, 105, 115])
    assert found == [[], [], [("elsewhere", "CRASHED", "it did not start within 110 s")]]


def test_after_an_outage_heartbeats_may_settle():
    watch, silent = Watch(ELSEWHERE.get), [FlowRun("elsewhere", "RUNNING", "before the outage")]
    assert not any(_ends(watch, silent, [0, 5]))
    watch = Watch(ELSEWHERE.get)  # after an outage of ten minutes: heartbeats that could not be sent are on their way
    assert not any(_ends(watch, silent, [600, 660]))
    assert not any(_ends(watch, [FlowRun("elsewhere", "RUNNING", "sent late")], [685, 770]))


class Answers:
    """A Prefect server's API, from a dictionary."""

    def __init__(self, runs, accepts=True):
        self.runs, self.accepts, self.set = runs, accepts, []

    def request(self, method, path, json, path_params=None):
        if path == "/flow_runs/filter":
            found = [{"id": id, "state": {"type": state}} for id, state in self.runs.items()]
            going_on = [run for run in found if run["state"]["type"] in ("RUNNING", "PENDING", "CANCELLING")]
            return _Answer(going_on[json["offset"] :][: json["limit"]])
        if path == "/events/filter":
            return _Answer({"events": [{"id": "beat"}]})
        self.set.append((path.format(**path_params), json["state"]["type"]))
        return _Answer({"status": "ACCEPT" if self.accepts else "ABORT"})


class _Answer:
    def __init__(self, value):
        self.value = value

    def json(self):
        return self.value


def _file(folder, flow_run, pid, began=None):
    facts = {"pid": pid, "started": started(pid) if began is None else began, "place": place()}
    (folder / f"{flow_run}.json").write_text(json.dumps(facts))


def test_what_is_looked_at_and_what_follows(tmp_path, capsys):
    _file(tmp_path, "lives", os.getpid())
    _file(tmp_path, "dead", os.getpid(), began="1")  # the pid is another process's now
    _file(tmp_path, "ended", os.getpid(), began="1")
    answers = Answers({"lives": "RUNNING", "dead": "RUNNING", "ended": "COMPLETED"})
    processes = Processes(tmp_path)
    watch, server = Watch(processes.lives), Server(answers, "headway")
    once(watch, server, processes, 0.0)
    assert not answers.set
    assert {path.stem for path in tmp_path.glob("*.json")} == {"lives", "dead"}, (
        "that of a run that has ended is removed"
    )
    once(watch, server, processes, 5.0)
    assert answers.set == [("/flow_runs/dead/set_state", "CRASHED")]
    assert "dead is CRASHED: its process is gone" in capsys.readouterr().out
    assert processes.pids() == {"lives": os.getpid()} and processes.lives("unknown") is None


def test_more_runs_than_the_server_gives_at_once_are_all_watched(tmp_path):
    going_on = {f"run-{n:03}": "RUNNING" for n in range(2 * PAGE + 1)}
    found = Server(Answers(going_on), "headway").flow_runs(Processes(tmp_path).lives)
    assert {run.id for run in found} == set(going_on)


def test_a_run_that_ended_meanwhile_is_not_reported_as_crashed(tmp_path, capsys):
    _file(tmp_path, "dead", os.getpid(), began="1")
    processes = Processes(tmp_path)
    watch, server = Watch(processes.lives), Server(Answers({"dead": "RUNNING"}, accepts=False), "headway")
    for now in (0.0, 5.0):
        once(watch, server, processes, now)
    assert not capsys.readouterr().out


def _python(script, **options):
    environment = os.environ | options.pop("env", {})
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], env=environment, **options)


def test_a_process_writes_itself_down_while_it_lives(tmp_path):
    script = """
        import os, sys
        from flows.orchestration.processes import enlist
        enlist(os.environ)
        print("enlisted", flush=True)
        sys.stdin.read()
    """
    env = {"HEADWAY_FLOW_RUNS": str(tmp_path / "runs"), "PREFECT__FLOW_RUN_ID": "0e0f"}
    processes = Processes(tmp_path / "runs")
    for kill in (False, True):
        process = _python(script, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"enlisted\n"
        assert processes.pids() == {"0e0f": process.pid} and processes.lives("0e0f")
        if kill:
            process.kill()
        process.stdin.close()
        process.wait()
        assert processes.lives("0e0f") is (False if kill else None)


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_printing_outlives_the_reader(closed):
    script = """
        import logging, subprocess, sys
        from flows.orchestration.processes import outlive_reader
        outlive_reader()
        from rich.console import Console
        sys.stdin.readline()
        for _ in range(3):
            print("a line", flush=True)
            Console().print("rich ends a process whose pipe is broken")
            logging.warning("to stderr")
        subprocess.run([sys.executable, "-c", "print(1)"], check=True)
        raise SystemExit(7)
    """
    read, write = os.pipe()
    process = _python(script, stdin=subprocess.PIPE, **{closed: write})
    os.close(write)
    os.close(read)  # the worker died
    process.communicate(b"\n", timeout=60)
    assert process.returncode == 7


def test_signals_of_one_stop_are_one_stop():
    script = """
        import signal, threading, time
        from flows.pipeline.listeners import stop_on_signals
        stop = threading.Event()
        with stop_on_signals(stop, signal.SIGTERM, signal.SIGINT, same_seconds=1.0):
            print("ready", flush=True)
            stop.wait()
            print("stopping", flush=True)
            time.sleep(60)
    """
    process = _python(script, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == b"stopping\n"
    process.send_signal(signal.SIGINT)  # of the terminal, or of a supervisor: the same stop
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == -signal.SIGINT, "interrupted"


def test_a_flow_run_asks_whether_it_may_go_on(monkeypatch):
    states = iter(["RUNNING", None, "CANCELLED"])
    stop = threading.Event()
    stops = StopRequests("0e0f", stop)
    monkeypatch.setattr(StopRequests, "state", lambda self: next(states))
    stops.check()
    stops.check()  # no answer is no cancellation
    with pytest.raises(Cancelled, match="the flow run's state was set to Cancelled"):
        stops.check()
    assert stop.is_set()
    assert asking.SECONDS <= 5


def test_a_flow_run_waits_for_a_server_that_is_away(monkeypatch):
    states = iter([None, None, "RUNNING"])
    monkeypatch.setattr(asking, "SECONDS", 0.01)
    monkeypatch.setattr(StopRequests, "state", lambda self: next(states))
    stops = StopRequests("0e0f")
    stops.wait_for_server()
    assert next(states, "asked until it answered") == "asked until it answered"
    monkeypatch.setattr(StopRequests, "state", lambda self: None)
    stops.stop.set()
    stops.wait_for_server()  # one that is stopped does not wait


def test_a_worker_that_is_started_again_keeps_its_name():
    from flows.orchestration.worker import free_name

    assert free_name(set(), "host") == "host"
    assert free_name({"host", "host-2"}, "host") == "host-3"
