"""The pool that starts Beam workers: in its own interpreter, with reasons when it cannot, and none outlive it."""

import signal
import socket
import subprocess
import sys

import grpc
import pytest
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc, endpoints_pb2

from beam_jobs.runners.worker_pool import Pool

pytestmark = pytest.mark.filterwarnings("ignore")


def _ask(pool, control="localhost:1"):
    request = beam_fn_api_pb2.StartWorkerRequest(
        worker_id="1-1", control_endpoint=endpoints_pb2.ApiServiceDescriptor(url=control)
    )
    with grpc.insecure_channel(pool.address) as channel:
        return beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(channel).StartWorker(request, timeout=60)


class _Control(beam_fn_api_pb2_grpc.BeamFnControlServicer):
    """A cluster that has nothing to do for its workers."""

    def Control(self, answers, context):
        yield from ()
        context.wait = list(answers)


@pytest.fixture
def control():
    from concurrent.futures import ThreadPoolExecutor

    server = grpc.server(ThreadPoolExecutor(4))
    beam_fn_api_pb2_grpc.add_BeamFnControlServicer_to_server(_Control(), server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    yield f"localhost:{port}"
    server.stop(0)


def test_a_worker_that_dies_at_once_is_an_answer_with_the_reason(monkeypatch, capfd):
    with Pool() as pool:
        monkeypatch.setattr(sys, "executable", "/bin/false")
        said = _ask(pool).error
    assert said.startswith("worker 1-1 did not come up: exit 1 (/bin/false)")
    assert said in capfd.readouterr().err


def test_a_worker_without_beam_says_what_it_lacks(monkeypatch, tmp_path):
    (tmp_path / "apache_beam.py").write_text("raise ImportError('no Beam here')")
    with Pool() as pool:
        monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
        assert "ImportError: no Beam here" in _ask(pool).error


def test_workers_run_in_the_pools_interpreter_whatever_the_path_says(monkeypatch, control):
    monkeypatch.setenv("PATH", "/nonexistent")
    with Pool() as pool:
        assert not _ask(pool, control).error
        (worker,) = pool._workers.values()
        assert worker.args[0] == sys.executable
    assert worker.poll() is not None


def test_a_taken_port_is_reported():
    with Pool() as pool, pytest.raises(OSError, match=f"port {pool.port} of localhost cannot be had"):
        Pool(pool.port)


def test_only_this_machine_reaches_it_unless_it_is_told_an_address():
    with Pool() as pool, pytest.raises(OSError):
        socket.create_connection(("127.0.0.2", pool.port), timeout=5)
    with Pool(host="0.0.0.0") as pool, socket.create_connection(("127.0.0.2", pool.port), timeout=5):
        pass


def test_typed_with_an_address_of_the_network_it_says_what_that_opens():
    command = [sys.executable, "-m", "beam_jobs.runners.worker_pool", "--port", "0", "--host", "0.0.0.0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("workers start at 0.0.0.0:")
        assert "can run code as this user" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)


def test_typed_it_says_where_it_listens_and_ends_on_a_signal():
    command = [sys.executable, "-m", "beam_jobs.runners.worker_pool", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().startswith("workers start at localhost:")
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=20) == ("", "")
        assert process.returncode == 0
    finally:
        process.kill()
