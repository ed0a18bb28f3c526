"""Beam's own worker pool, for this machine alone and with workers of this interpreter: `environment_type: EXTERNAL`.

    python -m beam_jobs.runners.worker_pool --port 50000        # beside every task manager; Ctrl-C or SIGTERM ends it

Started by itself, Beam's pool listens on every address, runs whatever `python` the PATH leads to and never looks whether
that lives: without Beam there, a job waits for its worker for ever.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from beam_jobs.runners.beam_import import load_beam

_TRIED = "beam_jobs.runners.pipeline", "apache_beam.runners.worker.sdk_worker"
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1", "[::1]")


def serve(host: str, port: int) -> None:
    """Start worker processes for the cluster that asks for them, until a KeyboardInterrupt; then end them.

    Raises:
        RuntimeError: the port cannot be bound.
    """
    load_beam()
    import grpc
    from apache_beam.portability.api import beam_fn_api_pb2_grpc
    from apache_beam.runners.worker import worker_pool_main
    from apache_beam.utils import thread_pool_executor

    pool = worker_pool_main.BeamFnExternalWorkerPoolServicer(use_process=True, data_buffer_time_limit_ms=-1)
    # Flink pings far more often than gRPC puts up with by default; a port is not to be shared with another pool
    options = [("grpc.http2.max_pings_without_data", 0), ("grpc.http2.max_ping_strikes", 0), ("grpc.so_reuseport", 0)]
    server = grpc.server(thread_pool_executor.shared_unbounded_instance(), options=options)
    address = f"{host}:{server.add_insecure_port(f'{host}:{port}')}"
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    server.start()
    print(f"workers start at {address}, in {sys.executable}", flush=True)
    if host not in _THIS_MACHINE:
        print(f"whoever reaches {address} can run code as this user: let only the cluster reach it", flush=True)
    try:
        signal.pause()
    finally:
        server.stop(0)
        for worker in pool._worker_processes.values():
            worker_pool_main.kill_process_gracefully(worker)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=50000, help="0 takes a free one")
    parser.add_argument("--host", default="localhost", help="the address to listen on; default: only this machine's")
    args = parser.parse_args()
    folder = Path(sys.executable).parent
    os.environ["PATH"] = os.pathsep.join([str(folder), os.environ.get("PATH", os.defpath)])
    if sys.flags.safe_path:
        os.environ["PYTHONSAFEPATH"] = "1"
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if (folder / "python").exists() and (folder / "python").samefile(sys.executable):
            try:
                load_beam()
                for name in _TRIED:
                    importlib.import_module(name)
            except Exception as error:  # not only that it is missing: of packages that do not fit together
                raise ImportError(str(error)) from None
        else:  # whichever the PATH leads to
            subprocess.run(["python", "-c", f"import {', '.join(_TRIED)}"], check=True)
        serve(args.host, args.port)
    except KeyboardInterrupt:
        return 0
    except (ImportError, OSError, subprocess.CalledProcessError) as error:
        problem = f"there is no python in {folder} that has Beam and Headway: {error}"
        print(f"workers cannot start: {problem}", file=sys.stderr)
    except RuntimeError as error:
        print(f"the worker pool cannot listen on {args.host}:{args.port}: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
