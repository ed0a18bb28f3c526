"""A secret in a pipeline's ${NAME} shows in nothing that a run prints or leaves behind."""

import json
import shutil
import zlib

import pyarrow.parquet as pq
import pytest

from headway import redaction
from headway.tabular.quarantine import read as read_quarantine

SECRET = "hunter2-of-the-landing-zone"


@pytest.fixture(autouse=True)
def forgotten():
    yield
    redaction.forget()


def texts_of(folder):
    """(file, text) of every file below a folder: as it is and unpacked, Parquet columns decoded."""
    for path in folder.rglob("*"):
        if path.suffix == ".parquet":
            yield path, str(pq.read_table(path).to_pydict())
        elif path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            yield path, data.decode("latin-1")
            if data[:2] in (b"\x1f\x8b", b"\x78\x9c"):
                yield path, zlib.decompress(data, 47).decode("latin-1")


def test_a_secret_is_neither_in_the_output_nor_in_the_store(project, typed):
    landing = project / SECRET
    shutil.move(project / "data", landing)
    config = project / "pipeline.yaml"
    config.write_text(config.read_text().replace("data/{span}", "${LANDING_ZONE}/{span}"))
    env = {"LANDING_ZONE": SECRET}

    done = typed("run", "--to", "ingest", project, "--json", env=env, check=0)
    record = json.loads(done.stdout)
    assert record["spans"] == ["2013-01", "2013-02", "2013-03", "2013-04"]
    said = [done.stdout, done.stderr]

    (landing / "2013-03.parquet").write_bytes(b"not Parquet")
    done = typed("run", "--to", "ingest", project, env=env, check=3)
    assert "${LANDING_ZONE}/2013-03.parquet" in done.stderr
    said += [done.stdout, done.stderr]
    said.append(typed("plan", project, "--until", "2019-01", env=env).stderr)
    said.append(typed("runs", project, "--json", env=env, check=0).stdout)

    assert not [text for text in said if SECRET in text]
    store = project / "store"
    assert len(list((store / "runs").glob("*.json"))) == 2
    assert not [path for path, text in texts_of(store) if SECRET in text]
    for folder in (store / "stages" / "ingest").iterdir():
        assert SECRET not in str(read_quarantine(folder).to_pydict())
