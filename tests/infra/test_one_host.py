"""The topology on one host: PostgreSQL, server and two workers come up, come up once, and go."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from headway.storage.process_identity import alive
from tests.ports import free_port
from tests.waiting import until

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "infra" / "one_host.py"
_SPEC = importlib.util.spec_from_file_location("infra_postgres", ROOT / "infra" / "postgres.py")
postgres = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(postgres)

needs_postgres = pytest.mark.skipif(
    not (shutil.which("initdb") or [*Path("/usr/lib/postgresql").glob("*/bin/initdb")]),
    reason="PostgreSQL is not installed",
)


def _type(folder, *arguments):
    command = [sys.executable, "-P", str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


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
    port = free_port()
    home = tmp_path / ".headway" / "prefect"
    database, probed = postgres.Postgres(home), []

    def ask(path):
        login = tuple((home / "auth").read_text().strip().split(":", 1))
        answer = httpx.get(f"http://127.0.0.1:{port}/api{path}", auth=login, timeout=10, trust_env=False)
        return answer.raise_for_status().json()

    def pids():
        return {path.stem: json.loads(path.read_text())["pid"] for path in home.glob("*.pid")}

    try:
        done = _type(tmp_path, "up", ROOT / "examples" / "flights", "--port", port)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Prefect is up" in done.stdout and "one_host.py down" in done.stdout
        before = pids()
        assert before.keys() == {"server", "worker", "worker-2"}
        assert ask("/deployments/name/retrain/flights")["name"] == "flights"
        assert not [*home.rglob("*.db")], "the server keeps nothing in SQLite"
        assert database.file.stat().st_mode & 0o077 == 0

        assert _type(tmp_path, "up", "--port", port).returncode == 0
        assert pids() == before

        # as the containers start them, with what their health checks look at: healthy also while the database is away
        login, health = (home / "auth").read_text().strip(), free_port()
        env = os.environ | {"PREFECT_API_URL": f"http://127.0.0.1:{port}/api", "PREFECT_API_AUTH_STRING": login}
        env |= {"PREFECT_HOME": str(tmp_path / "probed"), "PREFECT_WORKER_WEBSERVER_PORT": str(health)}
        module = [sys.executable, "-P", "-m"]
        worker = [*module, "flows.orchestration.worker", "--name", "probed", "--with-healthcheck"]
        probed = [subprocess.Popen(worker, env=env, cwd=tmp_path)]

        def healthy():
            return httpx.get(f"http://127.0.0.1:{health}/health", trust_env=False).status_code == 200

        assert until(healthy)
        database.stop()
        with pytest.raises(httpx.HTTPError):
            ask("/deployments/name/retrain/flights")
        assert healthy()
        database.start()
        assert until(lambda: ask("/deployments/name/retrain/flights")["name"]) == "flights"
    finally:
        for process in probed:
            process.terminate()
        done = _type(tmp_path, "down", "--remove")
    assert done.returncode == 0 and "worker-2" in done.stdout and "postgres" in done.stdout, done.stdout + done.stderr
    assert not database.data.exists() and not database.file.exists()
    assert not [pid for pid in before.values() if alive(pid)]
