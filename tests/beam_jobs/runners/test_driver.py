"""The way to a cluster: one that cannot be reached is named, a stop cancels the job, and one that never begins ends."""

import socket
import threading
import time

import pytest

from beam_jobs.runners import driver as module
from beam_jobs.runners.config import RunnerConfig
from beam_jobs.runners.driver import run_spans
from beam_jobs.runners.spans import SpanJob
from beam_jobs.runners.watch import Watch
from headway.errors import Cancelled, ConfigError, HeadwayError
from headway.monitor import Monitor
from tests.told import Told

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def job(tmp_path):
    return SpanJob(None, str(tmp_path / "out"))


@pytest.fixture
def mute():
    """The address of a server that accepts whoever comes, and says nothing."""
    with socket.create_server(("localhost", 0)) as server:
        yield f"localhost:{server.getsockname()[1]}"


@pytest.mark.parametrize("name", ["flink", "spark", "portable"])
@pytest.mark.parametrize("options", [{}, {"flink_version": "1.19"}])
def test_a_job_server_has_to_be_named(name, options, job):
    with pytest.raises(ConfigError, match=f"the {name} runner needs the address of a job server\n.*job_endpoint"):
        run_spans([job], Monitor(), RunnerConfig(name=name, options=options))


@pytest.mark.parametrize("endpoint", ["8081", "localhost:1", "localhost:99999", "no.such.host.invalid:80", "mute"])
def test_a_job_server_that_does_not_answer_is_a_config_error(endpoint, job, mute):
    endpoint = mute if endpoint == "mute" else endpoint
    runner = RunnerConfig(name="flink", options={"job_endpoint": endpoint, "job_server_timeout": 1})
    with pytest.raises(ConfigError, match=f"no job server answers at {endpoint}") as error:
        run_spans([job], Monitor(), runner)
    assert error.value.where == "runner.options.job_endpoint" and "host:port" in error.value.fix


def test_a_wait_for_a_job_server_ends_with_a_stop(job, mute):
    monitor = Monitor()
    threading.Timer(1.0, monitor.stop.set).start()
    began = time.monotonic()
    with pytest.raises(Cancelled):
        run_spans([job], monitor, RunnerConfig(name="flink", options={"job_endpoint": mute}))
    assert time.monotonic() - began < 10, "a stop waits for ranges that are under way, and there are none"


def test_a_stop_cancels_the_job_once_even_one_that_is_still_on_its_way():
    for early in (True, False):
        watch, calls, called = Watch(), [], threading.Event()

        def cancel(calls=calls, called=called):
            calls.append(1)
            called.set()

        if early:
            watch.stop()
        watch.on_stop(cancel)
        watch.stop()
        watch.stop()
        assert called.wait(10)
        assert calls == [1]


def test_a_cluster_that_never_begins_is_reported_and_given_up(job, mute, monkeypatch, tmp_path):
    """Beam's own job service, and workers that never come."""
    monitor = Told()
    monkeypatch.setattr(module, "_BEGIN_SECONDS", (1.0, 2.0))
    monkeypatch.setattr(module, "_STOP_SECONDS", 1.0)
    where = {"job_endpoint": "embed", "environment_type": "EXTERNAL", "environment_config": mute}
    with pytest.raises(HeadwayError, match="no worker of the portable runner started within 2 s") as error:
        run_spans([job], monitor, RunnerConfig(name="portable", options=where))
    why = "the output of the worker pool says why, such as a python without Beam"
    assert monitor.lines == [f"no worker of the portable runner has started within 1 s: {why}"]
    assert error.value.where == str(tmp_path / "out")
