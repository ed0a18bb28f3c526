"""A Flink on several machines, with an S3 server that they reach and no folder that two of them see.

with FlinkMachines(scratch, jars) as cluster:
    cluster.runner                  # leads there
    cluster.bucket()                # a new bucket's name; cluster.s3 is its filesystem
    cluster.managers[0].kill()      # and restart(); of a task manager
    cluster.pools[1].begin([...])   # another worker pool
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

import pyarrow.fs as pafs

from beam_jobs.runners.config import RunnerConfig
from beam_jobs.runners.flink_rest import call_rest
from tests.infra.machines import Machine, Network
from tests.waiting import until

sys.path.insert(0, str(Path(__file__).parents[2] / "infra"))  # scripts, no package
from flink_session import await_slots, command, configure
from java_process import free_port, job_server, tail

ROOT = Path(__file__).parents[2]
POOL = 50000
"""The port of each machine's worker pool."""
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
KEYS |= {"AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}


class Process:
    """A process of a machine that can be killed and started again."""

    def __init__(self, machine: Machine, line: Sequence[object], log: Path, ready: str):
        self._machine, self._line, self.log, self._ready = machine, line, log, ready
        self.begin()

    def begin(self, line: Sequence[object] | None = None) -> None:
        """Start it, with another command line if one is given."""
        at = self.log.stat().st_size if self.log.exists() else 0
        self._process = self._machine.start(line or self._line, self.log)
        if self._ready:
            until(lambda: self._ready in self.log.read_text()[at:] or self._process.poll() is not None, about=self.tail)
            assert self._process.poll() is None, self.tail()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def tail(self) -> str:
        return tail(self.log)


class FlinkMachines:
    """See the module.

    Raises:
        NoMachines: namespaces cannot be made here.
    """

    def __init__(self, scratch: Path, jars: Path, machines: int = 2):
        self._scratch, self._jars, self._count = scratch, jars, machines
        self._ends = contextlib.ExitStack()
        self.managers: list[Process] = []
        self.pools: list[Process] = []

    def __enter__(self) -> FlinkMachines:
        with contextlib.ExitStack() as ends:
            network = ends.enter_context(Network(hidden=[ROOT]))
            self._serve_s3(ends, network.address)
            self.site = code(self._scratch / "site")
            self._begin_manager(ends, network.address)
            for number in range(self._count):
                self._begin_machine(network, number)
            await_slots(self.rest, self._count, [], [each.log for each in self.managers])
            options = {"flink_master": self.rest, "parallelism": self._count}
            address, _ = ends.enter_context(job_server("flink", options, self._jars))
            options |= {"job_endpoint": address, "environment_type": "EXTERNAL"}
            self.runner = RunnerConfig(name="flink", options=options | {"environment_config": f"localhost:{POOL}"})
            self._ends = ends.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ends.close()

    def _serve_s3(self, ends: contextlib.ExitStack, address: str) -> None:
        from moto.server import ThreadedMotoServer  # not while tests are collected

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        server = ThreadedMotoServer(ip_address=address, port=0, verbose=False)
        server.start()
        ends.callback(server.stop)
        self.env = KEYS | {"AWS_ENDPOINT_URL": "http://{}:{}".format(*server.get_host_and_port())}
        self.s3 = pafs.S3FileSystem(
            access_key="test",
            secret_key="test",
            region="us-east-1",
            endpoint_override=self.env["AWS_ENDPOINT_URL"],
            allow_bucket_creation=True,
        )

    def bucket(self) -> str:
        name = f"headway-{uuid.uuid4().hex[:12]}"
        self.s3.create_dir(name)
        return name

    def _begin_manager(self, ends: contextlib.ExitStack, address: str) -> None:
        """The job manager, on this machine."""
        folder, rest = self._scratch / "jobmanager", free_port()
        folder.mkdir()
        self._settings = {"jobmanager.rpc.address": address, "jobmanager.rpc.port": free_port()}
        self._settings |= {"rest.address": address, "rest.port": rest, "taskmanager.numberOfTaskSlots": 1}
        # a task manager that is lost is noticed within seconds, and the job's part on it runs again
        self._settings |= {"heartbeat.interval": 1000, "heartbeat.timeout": 5000}
        self._settings |= {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": 3}
        configure(folder, self._settings)
        self.rest = f"{address}:{rest}"
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command(self._jars, "jobmanager", folder), stdout=log, stderr=log)
        ends.callback(lambda: (process.kill(), process.wait()))

    def _begin_machine(self, network: Network, number: int) -> None:
        """A machine with a task manager and a worker pool beside it."""
        folder = self._scratch / f"machine-{number}"
        folder.mkdir()
        keep = [folder, self._jars, self.site]
        machine = network.machine(keep, self.env | {"PYTHONPATH": str(self.site)})
        there = Path("/tmp")
        configure(folder, self._settings | {"taskmanager.host": machine.address, "io.tmp.dirs": there})
        pool = [sys.executable, "-P", "-m", "beam_jobs.runners.worker_pool", "--port", POOL]
        self.pools.append(Process(machine, pool, self._scratch / f"pool-{number}.log", "workers start at"))
        line = command(self._jars, "taskmanager", folder, temporary=there)
        self.managers.append(Process(machine, line, self._scratch / f"taskmanager-{number}.log", ""))

    def slots(self) -> int:
        return int(call_rest(self.rest, "overview")["slots-total"])


def code(folder: Path) -> Path:
    """Headway's packages in a folder, as the wheel has them."""
    for package in ("headway", "beam_jobs", "tfcore", "flows"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder
