"""New spans: when one is complete, and that each starts exactly one retrain."""

import json
import os
import threading
import time

import pytest

from flows.config.pipeline import read_pipeline
from flows.config.production import WatchConfig
from flows.dag.run_spec import RunSpec
from flows.execution.run import run_name
from flows.production.new_spans import MOST_ATTEMPTS, SILENT_SECONDS, landed, look
from flows.production.state_files import WatchState
from flows.progress.reporter import Reporter
from headway.errors import ConfigError, DataError, Locked


def _spec(folder):
    loaded = read_pipeline(folder)
    return RunSpec(loaded, loaded.open_store())


def _ran(spec, *spans, state="promoted"):
    """The record of a run over these spans."""
    spec.store.create()
    run = {"run": f"r-{spans[-1]}", "pipeline": "churn", "started": "2024-05-01T10:00:00Z"}
    spec.store.save_run(run | {"state": state, "last": None, "spans": [*spans]})


class Retrains:
    """Retrains as a server would start them; how they stand is what a test says."""

    def __init__(self, stands="running", fail=None):
        self.started, self.stands, self.fail = [], stands, fail

    def start(self, until, attempt):
        if self.fail is not None:
            raise self.fail
        self.started.append((until, attempt))
        return f"id-{until}-{attempt}"

    def ask(self, id):
        return "unknown" if id is None else self.stands

    def look(self, spec):
        return look(spec, Reporter(), start=self.start, ask=self.ask)


def test_a_span_is_complete_once_its_files_are_quiet(months):
    source, config = read_pipeline(months).pipeline.source, WatchConfig(quiet_minutes=10)
    late = months / "data" / "2024-04.parquet"
    os.utime(late, (5_000, 5_000))
    for name in ("2024-01", "2024-02", "2024-03"):
        os.utime(months / "data" / f"{name}.parquet", (1_000, 1_000))
    found = landed(source, config, seen={}, now=5_300)
    assert found.complete == ["2024-01", "2024-02", "2024-03"]
    assert found.waiting["2024-04"].startswith("its files changed 5 min ago")
    assert landed(source, config, seen={}, now=5_600).complete[-1] == "2024-04"


def test_a_clock_that_is_ahead_does_not_keep_a_span_waiting_for_ever(months):
    source, config = read_pipeline(months).pipeline.source, WatchConfig(quiet_minutes=10)
    os.utime(months / "data" / "2024-04.parquet", (9e9, 9e9))  # of another machine
    first = landed(source, config, seen={}, now=2e9)
    assert "2024-04" in first.waiting
    again = landed(source, config, seen=first.seen, now=2e9 + 300)
    assert "2024-04" in again.waiting and again.seen["2024-04"].since == 2e9
    assert landed(source, config, seen=again.seen, now=2e9 + 601).complete[-1] == "2024-04"
    (months / "data" / "2024-04.parquet").write_bytes(b"longer than before" * 1000)
    os.utime(months / "data" / "2024-04.parquet", (9e9, 9e9))
    assert "2024-04" in landed(source, config, seen=again.seen, now=2e9 + 601).waiting  # it changed meanwhile


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_watcher_whose_clock_is_an_hour_off_waits_as_long_as_the_others(months, monkeypatch, hours):
    retrains, real = Retrains(), time.time
    (months / "pipeline.yaml").write_text(
        (months / "pipeline.yaml").read_text().replace("quiet_minutes: 0", "quiet_minutes: 10")
    )
    spec = _spec(months)
    _ran(spec, "2024-01", "2024-02", "2024-03")
    late = months / "data" / "2024-04.parquet"
    monkeypatch.setattr("time.time", lambda: real() + hours * 3600)
    os.utime(late, (real() - 60.4, real() - 60.4))
    assert "changed 60 s ago" in retrains.look(spec).waiting["2024-04"] and not retrains.started
    os.utime(late, (real() - 660, real() - 660))
    assert retrains.look(spec).state == "started"


def test_a_done_file_says_so(months):
    source = read_pipeline(months).pipeline.source
    config = WatchConfig(done=str(months / "data" / "{span}.done"))
    (months / "data" / "2024-01.done").touch()
    found = landed(source, config, seen={}, now=0)
    assert found.complete == ["2024-01"] and "2024-02.done is not there yet" in found.waiting["2024-02"]


def test_each_new_span_starts_one_retrain(months):
    spec, retrains = _spec(months), Retrains()
    _ran(spec, "2024-01", "2024-02")
    found = retrains.look(spec)
    assert found.state == "started" and found.complete == ("2024-03", "2024-04")
    assert retrains.look(spec).state == "running"
    retrains.stands = "done"
    assert retrains.look(spec).state == "nothing new"
    assert retrains.started == [("2024-04", 1)]


def test_many_watchers_start_one_retrain(months):
    retrains, results, gate = Retrains(), [], threading.Barrier(6)

    def watcher():
        spec = _spec(months)
        gate.wait()
        for _ in range(5):
            results.append(retrains.look(spec).state)

    threads = [threading.Thread(target=watcher) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert retrains.started == [("2024-04", 1)] and results.count("started") == 1
    assert set(results) <= {"started", "running", "busy"}


def test_a_watcher_that_died_is_followed_by_one_that_starts_the_same(months):
    spec, retrains = _spec(months), Retrains(fail=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        retrains.look(spec)
    assert WatchState.load(spec.store, "churn").pending.id is None
    retrains.fail = None
    assert retrains.look(spec).state == "started" and retrains.started == [("2024-04", 1)]


def test_a_retrain_that_was_cancelled_is_started_again_and_not_for_ever(months):
    spec, retrains = _spec(months), Retrains(stands="gone")
    states = [retrains.look(spec).state for _ in range(6)]
    assert [attempt for _, attempt in retrains.started] == list(range(1, MOST_ATTEMPTS + 1))
    assert states[:MOST_ATTEMPTS] == ["started"] * MOST_ATTEMPTS and states[-1] == "nothing new"


def test_a_span_whose_data_are_broken_is_not_tried_for_ever(months, land):
    spec, retrains = _spec(months), Retrains(fail=DataError("broken"))
    with pytest.raises(DataError):
        retrains.look(spec)
    retrains.fail = None
    assert retrains.look(spec).state == "nothing new" and not retrains.started
    land(months / "data", "2024-05")
    assert retrains.look(spec).until == "2024-05"


def test_a_run_that_is_going_on_delays_the_retrain(months):
    spec, retrains = _spec(months), Retrains(fail=Locked("held"))
    with pytest.raises(Locked):
        retrains.look(spec)
    retrains.fail = None
    assert retrains.look(spec).state == "started"


def test_a_span_that_waits_holds_back_the_later_ones(months):
    config = months / "pipeline.yaml"
    config.write_text(config.read_text().replace("{quiet_minutes: 0}", '{done: "data/{span}.done"}'))
    spec, retrains = _spec(months), Retrains()
    _ran(spec, "2024-01")
    for name in ("2024-02", "2024-04"):
        (months / "data" / f"{name}.done").touch()
    assert retrains.look(spec).until == "2024-02"


def test_failed_and_partial_runs_are_no_retrain(months):
    spec, retrains = _spec(months), Retrains()
    _ran(spec, "2024-04", state="failed")
    assert retrains.look(spec).state == "started"


def _begun(spec, *, state="running", until="2024-04"):
    """The record of a retrain that began after it was started; the process that wrote it holds no lock."""
    spec.store.create()
    run = {"run": run_name(spec.store.clock() + 1), "pipeline": "churn", "started": "2024-05-01T10:00:00Z"}
    spec.store.save_run(run | {"state": state, "last": None, "spans": ["2024-03", until]})
    return run["run"]


@pytest.mark.parametrize("said", ["running", None])
def test_a_retrain_whose_process_is_dead_is_started_again_whatever_a_server_says(said, months):
    spec, retrains = _spec(months), Retrains(stands=said)
    assert retrains.look(spec).state == "started" and retrains.look(spec).state == "running"
    run = _begun(spec)  # as it is of a process that was killed: nobody ended it
    found = retrains.look(spec)
    assert found.state == "started" and found.attempt == 2 and retrains.started[-1] == ("2024-04", 2)
    # one that lives is waited for, by the lease of its lock
    run = _begun(spec)
    with spec.store.lock("run-churn", {"run": run}).held():
        assert retrains.look(spec).state == "running"
    assert retrains.look(spec).attempt == 3


@pytest.mark.parametrize(
    ("state", "then"),
    [("failed", "nothing new"), ("overtaken", "nothing new"), ("cancelled", "started"), ("held", "nothing new")],
)
def test_a_retrain_that_ended_is_not_waited_for_where_no_server_says_so(state, then, months):
    spec, retrains = _spec(months), Retrains(stands=None)
    retrains.look(spec)
    _begun(spec, state=state)
    assert retrains.look(spec).state == then


def test_a_flow_run_of_which_nothing_is_heard_is_waited_for_a_while(months, monkeypatch):
    spec, retrains = _spec(months), Retrains(stands=None)
    retrains.look(spec)
    assert retrains.look(spec).state == "running"
    began = WatchState.load(spec.store, "churn").pending.clock
    monkeypatch.setattr(type(spec.store), "clock", lambda store: began + SILENT_SECONDS + 1)
    with spec.store.lock("run-churn", {"run": "another"}).held():  # what holds the pipeline may be it
        monkeypatch.setattr("flows.production.new_spans.gone", lambda owner, clock: False)
        assert retrains.look(spec).state == "running"
    assert retrains.look(spec).attempt == 2
    queued = Retrains(stands="queued")
    assert queued.look(spec).state == "running", "a server that has it in a queue is believed"


def test_headway_watch_does_not_wait_for_a_flow_run_that_no_server_has(months, typed, monkeypatch):
    spec = _spec(months)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    Retrains().look(spec)  # what a watch flow started, before its machine went
    assert "goes on (flow run id-2024-04-1)" in typed("watch", months, "--once", check=0).stdout
    _begun(spec)
    seen = []

    def execute(run_spec, report, **more):
        seen.append(run_spec.until)
        raise DataError("broken")

    monkeypatch.setattr("flows.execution.run.execute", execute)
    said = typed("watch", months, "--once", check=3)
    assert seen == ["2024-04"] and "ended without a result: starting it again" in said.stderr


def test_a_damaged_state_counts_as_none_and_an_old_one_is_read(months):
    spec, retrains = _spec(months), Retrains(stands="running")
    spec.store.create()
    file = WatchState.path(spec.store, "churn")
    file.parent.mkdir()
    file.write_text("{")
    assert retrains.look(spec).state == "started"
    old = {"pending": {"until": "2024-04", "attempt": 2, "id": "x", "since": "2024-05-01T10:00:00Z"}, "seen": {}}
    file.write_text(json.dumps(old | {"handled": "2024-01", "outcome": "done"}))
    assert retrains.look(spec).attempt == 2


def test_a_source_of_one_span_cannot_be_watched(months):
    config = months / "pipeline.yaml"
    config.write_text(config.read_text().replace("{span}", "2024-01").replace("{mode: time}", "{mode: hash}"))
    with pytest.raises(ConfigError, match="all files are one span"):
        Retrains().look(_spec(months))
