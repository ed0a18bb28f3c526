"""The topology on one host: PostgreSQL, server and two workers come up, come up once, and go."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from headway.storage.process_identity import is_alive
from tests.ports import free_port
from tests.prefect_server import PrefectServer, infra
from tests.waiting import until

FLIGHTS = Path(__file__).parents[2] / "examples" / "flights"
postgres = infra("postgres")

needs_postgres = pytest.mark.skipif(
    not (shutil.which("initdb") or [*Path("/usr/lib/postgresql").glob("*/bin/initdb")]),
    reason="PostgreSQL is not installed",
)


def test_without_postgresql_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(postgres, "_VERSIONS", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(postgres.ConfigError, match=r"there is no initdb(?s:.*)apt-get install postgresql") as error:
        postgres._program("initdb")
    assert error.value.exit_code == 2


@needs_postgres
@pytest.mark.slow
@pytest.mark.server
@pytest.mark.timeout(600)
def test_it_comes_up_once_outlives_a_restart_of_its_database_and_goes(tmp_path):
    server = PrefectServer(tmp_path)
    server.pauses = ()
    database, probed = postgres.Postgres(server.home), []

    def pids():
        return {path.stem: json.loads(path.read_text())["pid"] for path in server.home.glob("*.pid")}

    def deployment():
        return server.ask("/deployments/name/retrain/flights")["name"]

    try:
        said = server.up(FLIGHTS).stdout
        assert "Prefect is up" in said and "one_host.py down" in said
        before = pids()
        assert before.keys() == {"server", "worker", "worker-2"}
        assert deployment() == "flights"
        assert not [*server.home.rglob("*.db")], "the server keeps nothing in SQLite"
        assert database.file.stat().st_mode & 0o077 == 0

        server.up()
        assert pids() == before

        # as the containers start them, with what their health checks look at: healthy also while the database is away
        health = free_port()
        env = server.env | {"PREFECT_HOME": str(tmp_path / "probed"), "PREFECT_WORKER_WEBSERVER_PORT": str(health)}
        module = [sys.executable, "-P", "-m"]
        worker = [*module, "flows.orchestration.worker", "--name", "probed", "--with-healthcheck"]
        probed = [subprocess.Popen(worker, env=env, cwd=tmp_path)]

        def healthy():
            return httpx.get(f"http://127.0.0.1:{health}/health", trust_env=False).status_code == 200

        assert until(healthy)
        database.stop()
        with pytest.raises(httpx.HTTPError):
            deployment()
        assert healthy()
        database.start()
        assert until(deployment) == "flights"
    finally:
        for process in probed:
            process.terminate()
        said = server.down("--remove").stdout
    assert "worker-2" in said and "postgres" in said, said
    assert not database.data.exists() and not database.file.exists()
    assert not [pid for pid in before.values() if is_alive(pid)]
