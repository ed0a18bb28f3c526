"""Ingest and predict on a real Flink, with workers in processes of their own: the same bytes, and ends that are clean."""

import contextlib
import glob
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from tests.infra import same_bytes as flink
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.flink, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module", autouse=True)
def short_lived():
    """Each Java lives for seconds: to compile its code well, and to collect it with threads, costs more than it saves."""
    own = os.environ.get("JAVA_TOOL_OPTIONS", "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {own}".strip())
        yield


@pytest.fixture(scope="module")
def jars():
    try:
        return flink.jars()
    except flink.Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def january(flights, tmp_path_factory):
    path = tmp_path_factory.mktemp("january") / "2013-01.parquet"
    pq.write_table(flights.filter(pc.equal(flights["month"], 1)), path, row_group_size=4096)
    return path


@pytest.fixture(scope="module")
def long(january, tmp_path_factory):
    """A file whose ingest takes a while: 60 Januaries, in 400 ranges."""
    path = tmp_path_factory.mktemp("long") / "2013-01.parquet"
    pq.write_table(pa.concat_tables([pq.read_table(january)] * 60), path, row_group_size=4096)
    return path


def test_ingest_and_predict_write_the_bytes_of_the_local_runner(jars, january):
    # no python of the PATH knows Beam: workers run in the interpreter of whoever starts them
    here = str(Path(sys.executable).parent)
    path = os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if p != here)
    command = [sys.executable, "-P", flink.__file__, str(january)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=os.environ | {"PATH": path})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("byte-identical to the local runner's") == 2
    assert done.stdout.startswith("ingest: 27004 rows, ")


def test_a_ctrl_c_cancels_the_job_on_a_cluster_of_its_own(jars, january, long, tmp_path):
    with flink.session(jars) as rest, flink.cluster(master=rest) as runner:
        with _ingesting(tmp_path, long, runner) as process:
            assert [*until(lambda: flink.jobs(rest)).values()] == ["RUNNING"]
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=60)
        assert process.returncode == 130, output
        _nothing_is_left(tmp_path)
        # ranges end by themselves, so that the job may have come to its end before it could be cancelled
        until(lambda: not {"RUNNING", "CANCELLING"} & {*flink.jobs(rest).values()}, about=lambda: flink.jobs(rest))

        # a job that gets no worker has nobody to look for the stop: Flink itself has to cancel it
        with socket.create_server(("localhost", 0)) as mute:
            where = {"environment_config": f"localhost:{mute.getsockname()[1]}"}
            stuck = runner.model_copy(update={"options": runner.options | where})
            flink.project(tmp_path / "again" / "flights", january, stuck)
            process = _ingest(tmp_path / "again")
            until(lambda: "RUNNING" in flink.jobs(rest).values())
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=60)
        assert process.returncode == 130, output
        until(lambda: "CANCELED" in flink.jobs(rest).values(), about=lambda: flink.jobs(rest))
        assert "CANCELLED" in _states(runner)


def test_a_job_whose_workers_die_is_an_error_with_its_reason(jars, long, tmp_path):
    with contextlib.ExitStack() as stack:
        options = {"flink_master": "[local]", "parallelism": 2}
        address, _ = stack.enter_context(flink.job_server("flink", options, jars))
        where, pool = stack.enter_context(flink.pool())
        options |= {"job_endpoint": address, "environment_type": "EXTERNAL", "environment_config": where}
        runner = flink.RunnerConfig(name="flink", options=options)
        with _ingesting(tmp_path, long, runner) as process:
            workers = _processes("SdkHarness")
            assert workers
            pool.kill()
            for worker in workers:
                os.kill(worker, signal.SIGKILL)
            output, _ = process.communicate(timeout=100)
        assert process.returncode == 1 and "the job failed on the flink runner: " in output, output
        assert "Traceback" not in output
        _nothing_is_left(tmp_path)
        # and without a pool no job begins at all
        again = _ingest(tmp_path)
        output, _ = again.communicate(timeout=100)
        assert again.returncode == 1 and "Connection refused" in output, output
        own = ("  ingest 2013-01: ", "report: ", "headway run: ", "  fix: ")
        assert all(line.startswith(own) for line in output.splitlines()), f"Beam's own messages are kept back: {output}"


def test_a_job_server_that_dies_is_an_error(jars, long, tmp_path):
    before = _processes()
    with flink.cluster() as runner:
        (server,) = {pid for pid in _processes("FlinkJobServerDriver") - before if "java" in _name(pid)}
        with _ingesting(tmp_path, long, runner) as process:
            os.kill(server, signal.SIGKILL)
            output, _ = process.communicate(timeout=100)
        assert process.returncode == 1 and "its job server is gone" in output, output
        _nothing_is_left(tmp_path)


def _ingest(folder):
    command = [sys.executable, "-P", "-m", "flows.cli", "run", "--to", "ingest", str(folder / "flights" / "flink.yaml")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@contextlib.contextmanager
def _ingesting(folder, data, runner):
    """An ingest on Flink that has written its first ranges."""
    flink.project(folder / "flights", data, runner)
    process = _ingest(folder)
    try:
        until(lambda: _ranges(folder) or process.poll() is not None)
        assert process.poll() is None, process.stdout.read()
        yield process
    finally:
        process.kill()
        process.wait()


def _ranges(folder):
    """The ranges that are written; glob.glob allows that an attempt's folder goes away meanwhile, which Path.rglob does not."""
    return glob.glob(f"{folder}/flights/store-flink/**/.ranges/[0-9]*", recursive=True, include_hidden=True)


def _nothing_is_left(folder):
    time.sleep(1)  # a worker that goes on would write now
    assert not _ranges(folder)
    assert not [*(folder / "flights" / "store-flink" / "stages").rglob("*.tfrecord")]


def _states(runner):
    with grpc.insecure_channel(runner.options["job_endpoint"]) as channel:
        stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
        jobs = stub.GetJobs(beam_job_api_pb2.GetJobsRequest()).job_info
        return [beam_job_api_pb2.JobState.Enum.Name(job.state) for job in jobs]


def _name(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").split(" ")[0]
    return ""


def _processes(what="FlinkJobServerDriver"):
    """Processes of this test's own family whose command line holds a word."""
    found, parents = set(), {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if what.encode() in (path / "cmdline").read_bytes():
                found.add(int(path.name))

    def ours(pid):
        while pid > 1 and pid != os.getpid():
            pid = parents.get(pid, 0)
        return pid == os.getpid()

    return {pid for pid in found if ours(pid)}
