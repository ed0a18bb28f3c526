"""The worker asks for the flow runs whose time has come by the server's clock, whatever its own says."""

import asyncio
import datetime
import inspect
import ipaddress
import ssl
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import anyio
import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from prefect import flow_engine
from prefect.settings import PREFECT_API_SSL_CERT_FILE, PREFECT_API_TLS_INSECURE_SKIP_VERIFY, temporary_settings
from prefect.utilities.services import critical_service_loop
from prefect.workers.process import ProcessWorker

from flows.orchestration.deploying.connection import health
from flows.orchestration.prefect_internals import go_on_without_lease
from flows.orchestration.worker import Worker, check_program, server_time
from headway.errors import ConfigError

DAY = datetime.timedelta(days=1)


@pytest.fixture
def worker(monkeypatch):
    """worker(hours=1): one whose server's clock is an hour ahead."""

    def make(hours=0):
        monkeypatch.setattr("flows.orchestration.worker.server_time", lambda url: time.time() + hours * 3600)
        return Worker("http://127.0.0.1/api", work_pool_name="headway", work_queues=["gpu"])

    return make


@pytest.mark.parametrize(("hours", "said"), [(1, "60 min behind"), (-1, "60 min ahead of"), (0, None)])
def test_runs_are_asked_for_by_the_servers_clock(worker, monkeypatch, capsys, hours, said):
    """By the private name _prefetch_seconds: it fails where a version of Prefect goes by another."""
    now, asked = datetime.datetime.now(datetime.UTC), []

    async def runs(**request):
        asked.append(request)
        return []

    monkeypatch.setattr(Worker, "client", SimpleNamespace(get_scheduled_flow_runs_for_work_pool=runs))
    made = worker(hours)
    made._has_successfully_synced = True
    for _ in range(2):
        assert asyncio.run(made.get_and_submit_flow_runs()) == []
    before = now + datetime.timedelta(hours=hours, seconds=10)
    assert abs((asked[0]["scheduled_before"] - before).total_seconds()) < 5
    assert (asked[0]["work_pool_name"], asked[0]["work_queue_names"]) == ("headway", ["gpu"])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ([] if said is None else [f"headway worker: this machine's clock is {said} the server's"])


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


def test_a_flow_run_goes_on_without_the_lease_of_its_slot(monkeypatch):
    """By the private name flow_engine.maintain_concurrency_lease: it fails where a version's engine calls another."""
    given = []
    monkeypatch.setattr(flow_engine, "maintain_concurrency_lease", lambda *arguments, **options: given.append(options))
    go_on_without_lease()
    flow_engine.maintain_concurrency_lease("a lease", 300, raise_on_lease_renewal_failure=True)
    assert given == [{"raise_on_lease_renewal_failure": False}]
    body = inspect.getsource(flow_engine.FlowRunEngine.setup_run_context)
    assert "maintain_concurrency_lease(" in body and "raise_on_lease_renewal_failure" in body


def test_a_command_whose_program_is_gone_is_named(tmp_path):
    program = tmp_path / "python"
    program.touch(mode=0o755)
    environ = {"PATH": str(tmp_path)}
    for command in (None, "", f"{program} -m x", "python -P -m flows.launcher prefect.engine"):
        check_program(command, environ)
    program.unlink()
    for command in (f"{program} -m x", "python -P -m flows.launcher prefect.engine"):
        with pytest.raises(ConfigError, match=r"there is no program .*python") as error:
            check_program(command, environ)
        assert "headway deploy" in error.value.fix


def test_a_server_says_its_time_and_one_that_is_away_does_not():
    class Health(BaseHTTPRequestHandler):
        def date_time_string(self, timestamp=None):
            return "Wed, 21 Oct 2015 07:28:00 GMT"

        def do_GET(self):
            self.send_response(200 if self.path == "/api/health" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Health)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/api"
    assert server_time(url) == 1445412480.0
    server.shutdown()
    server.server_close()
    with pytest.raises(OSError, match="does not say its time"):
        server_time(url)


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
    assert capsys.readouterr().out.splitlines() == [
        "headway worker: the server does not answer: 500",
        "headway worker: the server answers again",
    ]


def test_a_worker_that_the_server_refuses_says_so_and_ends(worker, monkeypatch):
    request = httpx.Request("GET", "http://127.0.0.1/api")
    refused = httpx.HTTPStatusError("401", request=request, response=httpx.Response(401, request=request))

    async def asked(worker):
        raise refused

    monkeypatch.setattr(ProcessWorker, "get_and_submit_flow_runs", asked)
    with pytest.raises(httpx.HTTPStatusError):
        asyncio.run(worker().get_and_submit_flow_runs())


@pytest.fixture
def https(tmp_path):
    """The API's address on a server with a certificate of its own, and the file of that certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "private")]), datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now - DAY).not_valid_after(now + DAY)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    at = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate, both = tmp_path / "ca.pem", tmp_path / "both.pem"
    certificate.write_bytes(builder.add_extension(at, critical=False).sign(key, SHA256()).public_bytes(Encoding.PEM))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    both.write_bytes(private + certificate.read_bytes())
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)  # answers 501, with its date
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://127.0.0.1:{server.server_port}/api", certificate
    server.shutdown()
    server.server_close()


def test_a_server_with_certificates_of_its_own_is_reached_as_prefects_client_reaches_it(https, tmp_path):
    url, certificate = https
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        server_time(url)
    with temporary_settings({PREFECT_API_SSL_CERT_FILE: str(certificate)}):
        assert abs(server_time(url) - time.time()) < 60
    with temporary_settings({PREFECT_API_TLS_INSECURE_SKIP_VERIFY: True}):
        assert abs(server_time(url) - time.time()) < 60
    missing = {PREFECT_API_SSL_CERT_FILE: str(tmp_path / "none.pem")}
    with temporary_settings(missing), pytest.raises(ConfigError, match=r"none\.pem cannot be read: No such file"):
        health(url)


def test_a_server_behind_a_proxy_is_reached_by_it(monkeypatch):
    """The proxy answers for a host that there is not."""
    asked = []

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("no_proxy", "")
    assert abs(server_time("http://prefect.invalid/api") - time.time()) < 60
    assert asked == ["http://prefect.invalid/api/health"]
    server.shutdown()
    server.server_close()
