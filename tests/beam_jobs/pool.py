"""A runner whose workers are processes of their own: Beam's own job service, and a worker pool.

with workers_apart() as runner:
    ingest(request, out, Monitor(), runner=runner)
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from beam_jobs.runners.config import RunnerConfig

POOL = [sys.executable, "-m", "beam_jobs.runners.worker_pool", "--port", "0"]


@contextlib.contextmanager
def pool() -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """The address and the process of a pool."""
    with subprocess.Popen(POOL, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().removeprefix("workers start at ").partition(",")[0], process
        finally:
            process.terminate()


@contextlib.contextmanager
def workers_apart() -> Iterator[RunnerConfig]:
    with pool() as (address, _):
        options = {"job_endpoint": "embed", "environment_type": "EXTERNAL", "environment_config": address}
        yield RunnerConfig(name="portable", options=options)
