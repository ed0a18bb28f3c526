"""The way to a cluster: what is missing is said within seconds, and a job server never outlives its driver."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

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


def _reach(name, **options):
    with job_server.reach(RunnerConfig(name=name, options=options)) as (runner, _):
        return runner


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("flink", {}, "the flink runner needs a job server\n.*flink_job_server_jar"),
        ("spark", {}, "the spark runner needs a job server\n.*spark_job_server_jar"),
        ("portable", {}, "needs the address of a job server\n.*job_endpoint"),
        ("flink", {"flink_job_server_jar": "/no/such.jar"}, "'/no/such.jar' is neither a jar nor a folder of jars"),
        ("flink", {"job_endpoint": "8081"}, "'8081' is not an address"),
        ("flink", {"job_endpoint": "localhost:http"}, "'localhost:http' is not an address"),
        ("flink", {"job_endpoint": "localhost:99999"}, "no job server answers at localhost:99999"),
        ("flink", {"job_endpoint": "localhost:1"}, "no job server answers at localhost:1"),
        ("portable", {"job_endpoint": "no.such.host.invalid:80"}, "no job server answers at no.such.host.invalid:80"),
    ],
)
def test_a_cluster_that_cannot_be_reached_is_a_config_error(name, options, message):
    with pytest.raises(ConfigError, match=message):
        _reach(name, **options)


def test_something_else_that_listens_there_is_not_a_job_server(monkeypatch):
    monkeypatch.setattr(job_server, "_REACH_SECONDS", 0.5)
    with socket.create_server(("localhost", 0)) as server, pytest.raises(ConfigError, match="does not speak gRPC"):
        _reach("flink", job_endpoint=f"localhost:{server.getsockname()[1]}")


def test_runners_without_a_job_server_are_left_as_they_are():
    for name, options in (("direct", {}), ("dataflow", {}), ("portable", {"job_endpoint": "embed"})):
        assert _reach(name, **options) == RunnerConfig(name=name, options=options)


def test_a_job_server_that_does_not_start_is_an_error_with_its_log(tmp_path):
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho this is no Java >&2\nexit 7\n")
    java.chmod(0o755)
    (tmp_path / "a.jar").touch()
    options = {"flink_job_server_jar": str(tmp_path), "job_server_java_launcher": str(java)}
    with pytest.raises(HeadwayError, match="did not start: it ended with 7\nthis is no Java"):
        _reach("flink", **options)
    with pytest.raises(ConfigError, match="there is no /no/java on the PATH"):
        _reach("flink", **options | {"job_server_java_launcher": "/no/java"})


def test_a_job_server_ends_with_its_driver_even_when_that_is_killed(tmp_path):
    (tmp_path / "a.jar").touch()
    java = tmp_path / "java"
    listen = "import os,socket,sys,time; open('pid','w').write(str(os.getpid())); a=sys.argv; "
    listen += "s=socket.create_server(('localhost', int(a[a.index('--job-port')+1]))); time.sleep(600)"
    java.write_text(f'#!/bin/sh\ncd {tmp_path}\nexec {sys.executable} -c "{listen}" "$@"\n')
    java.chmod(0o755)
    code = f"""
import time
from beam_jobs.runners import job_server
from beam_jobs.runners.config import RunnerConfig
options = {{"flink_job_server_jar": {str(tmp_path)!r}, "job_server_java_launcher": {str(java)!r}}}
with job_server.start(RunnerConfig(name="flink", options=options)):
    print("started", flush=True)
    time.sleep(600)
"""
    driver = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert driver.stdout.readline() == "started\n"
    server = int((tmp_path / "pid").read_text())
    os.kill(server, 0)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    _gone(server)


def _gone(pid):
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError(f"process {pid} lives")


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
