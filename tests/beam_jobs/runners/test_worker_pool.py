"""The pool that starts Beam workers: in its own interpreter, for this machine alone, and none outlive it."""

import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc, endpoints_pb2

from tests.beam_jobs.pool import POOL, pool
from tests.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore")


class _Control(beam_fn_api_pb2_grpc.BeamFnControlServicer):
    """A cluster that has nothing to do for its workers."""

    def __init__(self):
        self.come, self.gone = [], []

    def Control(self, answers, context):
        name = dict(context.invocation_metadata())["worker_id"]
        self.come.append(name)
        context.add_callback(lambda: self.gone.append(name))
        yield from ()
        list(answers)


@pytest.fixture
def control():
    server = grpc.server(ThreadPoolExecutor(4))
    beam_fn_api_pb2_grpc.add_BeamFnControlServicer_to_server(cluster := _Control(), server)
    cluster.address = f"localhost:{server.add_insecure_port('localhost:0')}"
    server.start()
    yield cluster
    server.stop(0)


def _start_worker(address, control):
    where = endpoints_pb2.ApiServiceDescriptor(url=control)
    request = beam_fn_api_pb2.StartWorkerRequest(worker_id="1-1", control_endpoint=where)
    with grpc.insecure_channel(address) as channel:
        return beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(channel).StartWorker(request, timeout=60)


@pytest.mark.long
def test_workers_run_in_the_pools_interpreter_whatever_the_path_says_and_end_with_it(monkeypatch, control):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pool() as (address, process):
        assert not _start_worker(address, control.address).error
        until(lambda: control.come == ["1-1"])
        assert not control.gone
        process.terminate()
        assert process.wait(20) == 0
        until(lambda: control.gone == ["1-1"])


@pytest.mark.parametrize(
    "lacks",
    [
        "sys.modules['apache_beam'] = None",
        # beside an interpreter of another name, whose python is another one
        "'-c' in sys.orig_argv and sys.modules.update(apache_beam=None); sys.executable = '/nowhere/bin/python3'",
    ],
)
def test_an_interpreter_whose_python_lacks_beam_or_headway_starts_no_pool(monkeypatch, tmp_path, lacks):
    (tmp_path / "sitecustomize.py").write_text(f"import sys\n{lacks}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = subprocess.run(POOL, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.splitlines()[-1].startswith("workers cannot start: there is no python in ")


def test_a_beam_that_fails_as_it_is_imported_is_no_port_that_is_taken(monkeypatch, tmp_path):
    (tmp_path / "apache_beam.py").write_text("raise RuntimeError('made for another protobuf')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = subprocess.run(POOL, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.splitlines() == [done.stderr.strip()], "no traceback"
    assert done.stderr.startswith("workers cannot start: ") and "made for another protobuf" in done.stderr


def test_typed_with_an_address_of_the_network_it_says_what_that_opens():
    with subprocess.Popen([*POOL, "--host", "0.0.0.0"], stdout=subprocess.PIPE, text=True) as process:
        said = process.stdout.readline()
        assert said.startswith("workers start at 0.0.0.0:")
        assert "can run code as this user" in process.stdout.readline()
        port = int(said.partition(",")[0].rpartition(":")[2])
        socket.create_connection(("127.0.0.2", port), timeout=5).close()
        process.send_signal(signal.SIGTERM)


@pytest.fixture
def interruptible():
    """What is started hears SIGINT, which tests that a script runs in its background ignore and hand on."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.long
def test_typed_it_says_where_it_listens_for_this_machine_alone_and_ends_on_a_signal(interruptible):
    with subprocess.Popen(POOL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        said = process.stdout.readline()
        assert said.endswith(f", in {sys.executable}\n")
        port = said.partition(",")[0].rpartition(":")[2]
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.2", int(port)), timeout=5)
        other = subprocess.run([*POOL[:-1], port], capture_output=True, text=True, check=False)
        assert other.returncode == 1 and f"cannot listen on localhost:{port}" in other.stderr
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20) == ("", "")
        assert process.returncode == 0
