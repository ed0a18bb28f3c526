"""Checks that a Beam job server answers before a job is made: Beam itself would wait minutes for one that is not there.

check(RunnerConfig(name="flink", options={"job_endpoint": "jobs:8099"}))
"""

from __future__ import annotations

import socket

from beam_jobs.runners.config import RunnerConfig
from headway.errors import ConfigError

_REACH_SECONDS = 30.0
_NAMES = ("flink", "spark", "portable")
"""The runners that hand their jobs to a job server."""


def check(runner: RunnerConfig) -> None:
    """Raise a ConfigError unless the job server that a runner needs is named, and answers within 30 s."""
    endpoint = runner.options.get("job_endpoint")
    if runner.name not in _NAMES or endpoint == "embed" or runner.options.get(f"{runner.name}_submit_uber_jar"):
        return
    where, fix = "runner.options.job_endpoint", "start the job server, or name where it listens: host:port"
    if not endpoint:
        fix = "start one, and give job_endpoint, such as localhost:8099; see docs/runners.md"
        raise ConfigError(f"the {runner.name} runner needs the address of a job server", where=where, fix=fix)
    host, _, port = str(endpoint).rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"{endpoint!r} is not an address", where=where, fix="host:port, such as localhost:8099")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(f"no job server answers at {endpoint}: {error}", where=where, fix=fix) from None
    import grpc

    with grpc.insecure_channel(str(endpoint)) as channel:
        try:
            grpc.channel_ready_future(channel).result(_REACH_SECONDS)
        except grpc.FutureTimeoutError:
            problem = f"what answers at {endpoint} is not a job server: it does not speak gRPC"
            raise ConfigError(problem, where=where, fix=fix) from None
