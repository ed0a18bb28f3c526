"""The way to a cluster: what is missing is said within seconds, a stop cancels the job, and one that never begins ends."""

import socket
import threading

import pytest

from beam_jobs.runners import driver as module
from beam_jobs.runners import job_server
from beam_jobs.runners.config import RunnerConfig
from beam_jobs.runners.pipeline import BeamRunner
from beam_jobs.runners.spans import SpanJob
from beam_jobs.runners.watch import Watch
from headway.errors import ConfigError, HeadwayError
from headway.monitor import Monitor

pytestmark = pytest.mark.filterwarnings("ignore")


def _check(name, **options):
    job_server.check(RunnerConfig(name=name, options=options))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("flink", {}, "the flink runner needs the address of a job server\n.*job_endpoint"),
        ("flink", {"flink_job_server_jar": "a.jar"}, "the flink runner needs the address of a job server"),
        ("spark", {}, "the spark runner needs the address of a job server\n.*job_endpoint"),
        ("portable", {}, "the portable runner needs the address of a job server\n.*job_endpoint"),
        ("flink", {"job_endpoint": "8081"}, "'8081' is not an address"),
        ("flink", {"job_endpoint": "localhost:http"}, "'localhost:http' is not an address"),
        ("flink", {"job_endpoint": "localhost:99999"}, "no job server answers at localhost:99999"),
        ("flink", {"job_endpoint": "localhost:1"}, "no job server answers at localhost:1"),
        ("portable", {"job_endpoint": "no.such.host.invalid:80"}, "no job server answers at no.such.host.invalid:80"),
    ],
)
def test_a_cluster_that_cannot_be_reached_is_a_config_error(name, options, message):
    with pytest.raises(ConfigError, match=message):
        _check(name, **options)


def test_something_else_that_listens_there_is_not_a_job_server(monkeypatch):
    monkeypatch.setattr(job_server, "_REACH_SECONDS", 0.5)
    with socket.create_server(("localhost", 0)) as server, pytest.raises(ConfigError, match="does not speak gRPC"):
        _check("flink", job_endpoint=f"localhost:{server.getsockname()[1]}")


def test_runners_without_a_job_server_need_none():
    for name, options in (("direct", {}), ("dataflow", {}), ("portable", {"job_endpoint": "embed"})):
        _check(name, **options)


def test_a_stop_cancels_the_job_once_even_one_that_is_still_on_its_way():
    for early in (True, False):
        runner, calls, called = BeamRunner(RunnerConfig(name="flink")), [], threading.Event()

        def cancel(calls=calls, called=called):
            calls.append(1)
            called.set()
            raise ConnectionError("the server is gone")

        if early:
            runner.cancel()
        runner.submitted(cancel)
        runner.cancel()
        runner.cancel()
        assert called.wait(10)
        assert calls == [1]


def test_a_cluster_that_never_begins_is_reported_and_given_up(tmp_path, monkeypatch):
    lines = []

    class Loud(Monitor):
        def log(self, line):
            lines.append(line)

    job = SpanJob(None, str(tmp_path / "out"))
    job.place.prepare(job.id)
    monkeypatch.setattr(module, "_ASK_SECONDS", 0.0)
    cluster = module._Cluster([job], watch := Watch(), RunnerConfig(name="flink"), Loud())
    cluster.check()
    assert not lines
    monkeypatch.setattr(module, "_SAY_SECONDS", 0.0)
    cluster.check(), cluster.check()
    assert lines == ["no worker of the flink runner has started within 0 s"]
    monkeypatch.setattr(module, "_BEGIN_SECONDS", 0.0)
    with pytest.raises(HeadwayError, match="no worker of the flink runner started within 0 s") as error:
        cluster.check()
    assert error.value.where == str(tmp_path / "out")
    other = module._Cluster([job], watch, RunnerConfig(name="flink"), Loud())
    job.place.begin()
    cluster.check()
    job.place.prepare(job.id)
    watch.cut(0, [])  # a worker that is a thread of the driver, as with LOOPBACK
    other.check()
