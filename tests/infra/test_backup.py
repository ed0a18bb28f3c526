"""What docs/operations.md types to back up and restore a PostgreSQL database."""

import os
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.infra.test_one_host import needs_postgres, postgres

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")


@needs_postgres
@pytest.mark.slow
def test_a_dump_of_the_database_brings_its_rows_back(tmp_path):
    (dump,) = [line.strip() for line in PAGE.splitlines() if line.startswith("pg_dump ")]
    (restore,) = [line.strip() for line in PAGE.splitlines() if line.startswith("pg_restore ")]
    database = postgres.Postgres(tmp_path / "home")
    (tmp_path / "backup").mkdir()
    tools = str(postgres._program("psql").parent)

    def type(line):
        address = urlsplit(database.url)
        env = os.environ | {
            "HOME": str(tmp_path),
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PGPASSWORD": address.password,
        }
        env["DATABASE"] = f"postgresql://{address.username}@{address.hostname}:{address.port}{address.path}"
        done = subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        database.start()
        type("""psql "$DATABASE" -c "CREATE TABLE flow_run AS SELECT 7 AS id, 'churn: promoted 2' AS name" """)
        type(dump)
        type("""psql "$DATABASE" -c "DELETE FROM flow_run" """)
        type(restore)
        assert "7|churn: promoted 2" in type("""psql "$DATABASE" -At -c "SELECT * FROM flow_run" """)
    finally:
        database.remove()
