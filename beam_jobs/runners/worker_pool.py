"""Starts Beam workers on a cluster's machine whenever a job there asks for them: `environment_type: EXTERNAL`.

    python -m beam_jobs.runners.worker_pool --port 50000        # beside every task manager; Ctrl-C or SIGTERM ends it

A worker is a process of this very interpreter, so it has the code that the pool has. Beam's own pool runs whatever
`python` the PATH leads to and never looks whether that lives: without Beam there, the job waits for its worker for
ever. Here a worker that does not come up is an answer with the reason, which makes the job fail, and none outlives
the pool.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
from types import FrameType
from typing import Any

from beam_jobs.runners.beam_import import load_beam
from headway.process import own

_READY = "ready"
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1", "[::1]")


class Pool:
    """Serves a cluster's requests for workers; see the module.

        with Pool(port) as pool:
            pool.address            # localhost:50000

    Whoever reaches the pool's port can start workers, which run code that a job sends: it has no password.

    Args:
        port: where to listen; 0 takes a free one.
        host: the address to listen on; a task manager on this machine reaches localhost.

    Raises:
        OSError: the port is taken, or the machine has no such address.
    """

    def __init__(self, port: int = 0, host: str = "localhost"):
        self.host = host
        load_beam()
        import grpc
        from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc
        from apache_beam.utils import thread_pool_executor

        self._messages = beam_fn_api_pb2
        self._workers: dict[str, subprocess.Popen[str]] = {}
        self._lock = threading.Lock()
        # Flink pings far more often than gRPC puts up with by default; a port is not to be shared with another pool
        options = [
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.max_ping_strikes", 0),
            ("grpc.so_reuseport", 0),
        ]
        self._server = grpc.server(thread_pool_executor.shared_unbounded_instance(), options=options)
        try:
            self.port = self._server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise OSError(f"port {port} of {host} cannot be had: {error}") from None
        beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(self, self._server)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def __enter__(self) -> Pool:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(0)
        with self._lock:
            workers, self._workers = [*self._workers.values()], {}
        for worker in workers:
            _end(worker)

    def StartWorker(self, request: Any, context: Any) -> Any:
        """Start one worker; answer when it has reached the cluster, or with the reason why it could not."""
        name, control = request.worker_id, request.control_endpoint.url
        command = [sys.executable, "-m", "beam_jobs.runners.worker_pool", "--worker", name, "--control", control]
        # a session of its own: a Ctrl-C is for the pool, which ends its workers
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        worker = subprocess.Popen(command, start_new_session=True, **pipes)
        with self._lock:
            self._workers[name] = worker
        assert worker.stdout is not None
        answer = worker.stdout.readline().strip()
        if answer == _READY:
            print(f"worker {name}: process {worker.pid} serves {control}", flush=True)
            return self._messages.StartWorkerResponse()
        _end(worker)
        problem = f"worker {name} did not come up: {answer or f'exit {worker.returncode}'} ({sys.executable})"
        print(problem, file=sys.stderr, flush=True)
        return self._messages.StartWorkerResponse(error=problem)

    def StopWorker(self, request: Any, context: Any) -> Any:
        with self._lock:
            worker = self._workers.pop(request.worker_id, None)
        if worker is not None:
            _end(worker)
        return self._messages.StopWorkerResponse()


def _end(worker: subprocess.Popen[str]) -> None:
    from apache_beam.runners.worker.worker_pool_main import kill_process_gracefully

    with worker:  # closes its pipes
        kill_process_gracefully(worker)


def _work(name: str, control: str) -> int:
    """Run a worker process: it prints `ready` on its first line, or what went wrong."""
    own()
    try:
        load_beam()
        from apache_beam.runners.worker.sdk_worker import SdkHarness

        import beam_jobs.runners.pipeline  # noqa: F401 - the code that jobs are made of can be had

        harness = SdkHarness(control, worker_id=name, state_cache_size=0, data_buffer_time_limit_ms=-1)
    except Exception as error:
        print(f"{type(error).__name__}: {error}".splitlines()[0], flush=True)
        return 1
    print(_READY, flush=True)
    os.dup2(2, 1)  # nobody reads the pipe any more
    threading.Thread(target=_end_with_the_pool, daemon=True).start()
    harness.run()
    return 0


def _end_with_the_pool() -> None:
    os.read(0, 1)  # nothing is ever written there
    os._exit(1)


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=50000)
    parser.add_argument(
        "--host", default="localhost", help="the address to listen on (default: localhost, so only this machine)"
    )
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--control", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return _work(args.worker, args.control)
    signal.signal(signal.SIGTERM, _stop)
    try:
        with Pool(args.port, args.host) as pool:
            print(f"workers start at {pool.address}, in {sys.executable}", flush=True)
            if args.host not in _THIS_MACHINE:
                print(
                    f"whoever reaches {pool.address} can run code as this user: let only the cluster reach it",
                    flush=True,
                )
            threading.Event().wait()
    except KeyboardInterrupt:
        return 0
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
