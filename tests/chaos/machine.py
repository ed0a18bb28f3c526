"""A worker on what the store takes for another machine: a host name and a clock of its own, and the same disk.

    with Machine(host, folder, "ahead", hours=1):          # polls the pool `ahead`
        run = host.start("retrain/churn-ahead")            # of a deployment that `lend` made for that pool

The clock of its flow runs is the system's, moved by a library that is loaded before any other. The worker's own is right, as
Prefect schedules by it; and what the disk's clock says, files' times, stays true, as that of a file server does.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.host import Host
from tests.waiting import until

CLOCK = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long ahead(void) { const char *text = getenv("CLOCK_AHEAD"); return text ? atol(text) : 0; }
int clock_gettime(clockid_t id, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, id, now);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += ahead();
    return failed;
}
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *into) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (into) *into = exact.tv_sec;
    return exact.tv_sec;
}
"""


def clock_library(folder: Path) -> Path:
    """The library that moves the clock; the test is skipped where it cannot be made."""
    compiler = shutil.which("gcc") or shutil.which("cc") or shutil.which("g++")
    if compiler is None or not shutil.which("unshare"):
        pytest.skip("no C compiler, or no unshare: a machine with another clock cannot be made")
    library = folder / "clock.so"
    (folder / "clock.c").write_text(CLOCK)
    command = [compiler, "-x", "c", "-shared", "-fPIC", "-O1", "-o", str(library), str(folder / "clock.c")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a library cannot be made here: {done.stderr[:200]}")
    return library


class Machine:
    """See the module; the worker ends with the block.

    Args:
        library: that of `clock_library`.
        name: of the machine, and of the pool that its worker polls.
        hours: how far the clock of its flow runs is ahead of the server's and the store's.
    """

    def __init__(self, host: Host, library: Path, name: str, hours: float):
        self.name, self._host, self._log = name, host, library.with_name(f"{name}.log")
        server = f"http://127.0.0.1:{host.port}/api"
        self._clock = {"LD_PRELOAD": str(library), "CLOCK_AHEAD": str(int(hours * 3600))}
        self._env = host.env | {"PREFECT_HOME": str(library.with_name(name)), "PREFECT_API_URL": server}
        self._env |= {"PREFECT_WORKER_QUERY_SECONDS": "1"}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Machine:
        pool = {"name": self.name, "type": "process", "base_job_template": self._template()}
        self._host.ask("/work_pools/", pool)
        worker = [sys.executable, "-P", "-m", "flows.orchestration.worker", "--pool", self.name, "--name", self.name]
        named = ["unshare", "--uts", "sh", "-c", f'hostname {self.name} && exec "$@"', "sh", *worker]
        with self._log.open("wb") as out:
            self._process = subprocess.Popen(named, env=self._env, stdout=out, stderr=out, cwd=self._log.parent)
        try:
            until(lambda: self._online() or self._process.poll() is not None, 120, self.said)
            if self._process.poll() is not None and "ermitted" in self.said():
                pytest.skip(f"a machine of another name cannot be made: {self.said()}")
            assert self._process.poll() is None, self.said()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(90)
        finally:
            self._process.kill()

    def said(self) -> str:
        """What its worker printed."""
        return self._log.read_text()

    def lend(self, pipeline: str) -> str:
        """A deployment retrain/<pipeline>-<machine> for its pool, beside the pipeline's own; its name."""
        there = self._host.ask(f"/deployments/name/retrain/{pipeline}")
        fields = ("flow_id", "entrypoint", "parameters", "job_variables", "parameter_openapi_schema", "pull_steps")
        name = f"{pipeline}-{self.name}"
        body = {field: there[field] for field in fields} | {"name": name, "work_pool_name": self.name}
        body["job_variables"] |= {"env": body["job_variables"]["env"] | self._clock}
        self._host.ask("/deployments/", body)
        return f"retrain/{name}"

    def _template(self) -> object:
        return self._host.ask("/work_pools/headway")["base_job_template"]

    def _online(self) -> bool:
        found = self._host.ask(f"/work_pools/{self.name}/workers/filter", {})
        return any(worker["status"] == "ONLINE" for worker in found)
