"""A Beam job server never outlives its driver, and one that does not start says why; neither needs a Java."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headway.storage.process_identity import is_alive
from tests.waiting import until

sys.path.insert(0, str(Path(__file__).parents[2] / "infra"))  # scripts, no package
from java_process import job_server

INFRA = sys.path[0]


@pytest.fixture
def java(tmp_path, monkeypatch):
    """Makes a shell script the first `java` of the PATH."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def write(script):
        path = tmp_path / "java"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return write


def test_a_job_server_that_does_not_start_is_an_error_with_its_log(tmp_path, java):
    java("echo this is no Java >&2\nexit 7")
    with (
        pytest.raises(RuntimeError, match="the job server does not come up:\nthis is no Java"),
        job_server("flink", {"flink_master": "[local]"}, tmp_path),
    ):
        pass


def test_a_job_server_ends_with_its_driver_even_when_that_is_killed(tmp_path, java):
    listen = "import os,socket,sys,time; open('pid','w').write(str(os.getpid())); a=sys.argv; "
    listen += "s=socket.create_server(('localhost', int(a[a.index('--job-port')+1]))); time.sleep(600)"
    java(f'cd {tmp_path}\nexec {sys.executable} -c "{listen}" "$@"')
    code = f"""
import sys, time
from pathlib import Path
sys.path.insert(0, {INFRA!r})
from java_process import job_server
with job_server("flink", {{"flink_master": "[local]"}}, Path({str(tmp_path)!r})):
    print("started", flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout.readline() == "started\n"
        server = int((tmp_path / "pid").read_text())
        os.kill(server, 0)
        driver.kill()
        assert driver.wait() == -signal.SIGKILL
    until(lambda: not is_alive(server), 30)
