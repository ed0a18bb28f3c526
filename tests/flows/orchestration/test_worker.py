"""The worker lets its runs save, outlives the server, and reports the runs that died with the worker before it."""

import asyncio
import os
import subprocess
import sys
import uuid
from types import SimpleNamespace

import anyio
import httpx
import pytest
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.responses import SetStateStatus
from prefect.utilities.services import critical_service_loop
from prefect.workers.process import ProcessWorker

from flows.orchestration import worker as module
from flows.orchestration.deploy import COMMAND
from flows.orchestration.worker import Worker, check_command_on_path, end_lost_runs
from headway.errors import ConfigError
from headway.storage.process_identity import process_name


@pytest.fixture
def worker():
    return lambda: Worker(work_pool_name="headway", work_queues=["gpu"])


def test_a_worker_that_is_stopped_waits_for_a_run_that_is_just_being_started(worker, monkeypatch):
    """By the private name _submitting_flow_run_ids: it fails where a version of Prefect notes them elsewhere."""
    made, ended = worker(), []
    run = SimpleNamespace(id=uuid.uuid4(), name="a run", deployment_id=None)

    async def pending(self, flow_run):
        await asyncio.sleep(0.5)
        ended.append(flow_run.id)
        return False

    class Logger:
        def __getattr__(self, name):
            return lambda *words: None

    monkeypatch.setattr(ProcessWorker, "_propose_pending_state", pending)
    monkeypatch.setattr(ProcessWorker, "get_flow_run_logger", lambda self, flow_run: Logger())

    async def stopped():
        async with anyio.create_task_group() as made._runs_task_group:
            await made._submit_scheduled_flow_runs([SimpleNamespace(flow_run=run)])
            await made.drain(30)
            assert ended == [run.id]

    asyncio.run(stopped())


def test_a_command_whose_program_is_gone_is_named(tmp_path):
    program = tmp_path / "python"
    program.touch(mode=0o755)
    environ = {"PATH": str(tmp_path)}
    for command in (None, "", f"{program} -m x", COMMAND):
        check_command_on_path(command, environ)
    program.unlink()
    for command in (f"{program} -m x", COMMAND):
        with pytest.raises(ConfigError, match=r"there is no program .*python") as error:
            check_command_on_path(command, environ)
        assert "headway deploy" in error.value.fix


@pytest.mark.parametrize("workload", ["get_and_submit_flow_runs", "sync_with_backend"])
def test_a_worker_outlives_any_outage_of_the_server_or_its_database(worker, monkeypatch, capsys, workload):
    request = httpx.Request("GET", "http://127.0.0.1/api")
    away = [
        httpx.HTTPStatusError("500", request=request, response=httpx.Response(500, request=request)),
        httpx.ConnectError("refused"),
    ]
    answers = iter([*away * 50, ["a run"], asyncio.CancelledError()])

    async def asked(worker):
        if isinstance(answer := next(answers), BaseException):
            raise answer
        return answer

    monkeypatch.setattr(ProcessWorker, workload, asked)
    with pytest.raises(asyncio.CancelledError):  # Prefect's own loop gives up with a RuntimeError after twelve
        asyncio.run(critical_service_loop(getattr(worker(), workload), interval=0, backoff=4))
    wanted = ["headway worker: the server does not answer: 500", "headway worker: the server answers again"]
    assert capsys.readouterr().out.splitlines() == wanted


def test_a_worker_that_the_server_refuses_says_so_and_ends(worker, monkeypatch):
    request = httpx.Request("GET", "http://127.0.0.1/api")
    refused = httpx.HTTPStatusError("401", request=request, response=httpx.Response(401, request=request))

    async def asked(worker):
        raise refused

    monkeypatch.setattr(ProcessWorker, "get_and_submit_flow_runs", asked)
    with pytest.raises(httpx.HTTPStatusError):
        asyncio.run(worker().get_and_submit_flow_runs())


@pytest.fixture
def dead():
    """The name of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    name = process_name(process.pid)
    process.communicate(b"\n")
    return name


class Server:
    """A server with these flow runs, which accepts what it is told of them, or has heard it before."""

    def __init__(self, runs, status=SetStateStatus.ACCEPT):
        self.runs, self.status, self.set = runs, status, {}

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    def request(self, method, path, *, json):
        assert json["work_pools"] == {"name": {"any_": ["headway"]}}
        return httpx.Response(200, json=self.runs)

    def set_flow_run_state(self, id, state):
        self.set[str(id)] = (state.type, state.message)
        return SimpleNamespace(status=self.status)


def _run(process, state):
    ids = {"id": str(uuid.uuid4()), "state_id": str(uuid.uuid4())}
    return ids | {"name": "a run", "state": {"type": state}, "infrastructure_pid": process}


def test_a_worker_that_starts_reports_the_runs_of_its_host_whose_process_is_gone(monkeypatch, capsys, dead):
    gone, stopping = _run(dead, "RUNNING"), _run(dead, "CANCELLING")
    others = [
        _run(process_name(os.getpid()), "RUNNING"),
        _run("elsewhere@12.34.abc", "RUNNING"),
        _run("12", "RUNNING"),  # Prefect's own workers do not say on which host
        _run(None, "RUNNING"),
        _run(dead, "PENDING"),  # it may be about to start again
    ]
    server = Server([*others, gone, stopping])
    monkeypatch.setattr(module, "get_client", lambda **options: server)
    assert end_lost_runs("headway")
    said = "its process is gone"
    assert server.set == {gone["id"]: (StateType.CRASHED, said), stopping["id"]: (StateType.CANCELLED, said)}
    assert "headway worker: a run is Crashed: its process is gone" in capsys.readouterr().out


def test_a_worker_that_goes_on_reports_the_runs_whose_process_was_gone_at_two_looks(monkeypatch, capsys, dead):
    pending, running = _run(dead, "PENDING"), _run(dead, "RUNNING")
    server = Server([pending, running])
    monkeypatch.setattr(module, "get_client", lambda **options: server)
    known = end_lost_runs("headway", set())
    assert not server.set and known == {pending["state_id"], running["state_id"]}
    running["state_id"] = str(uuid.uuid4())  # somebody has changed its state meanwhile
    end_lost_runs("headway", known)
    assert server.set == {pending["id"]: (StateType.CRASHED, "its process is gone")} and capsys.readouterr().out
    server.status = SetStateStatus.ABORT  # it ended meanwhile
    assert end_lost_runs("headway", known) and not capsys.readouterr().out
