"""Ingest on a real Flink, with workers in processes of their own, writes what the local runner writes."""

import importlib.util
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_jobs.ingest import ingest
from headway.monitor import Monitor

pytestmark = [pytest.mark.slow, pytest.mark.flink, pytest.mark.filterwarnings("ignore")]

_SPEC = importlib.util.spec_from_file_location("infra_flink", Path(__file__).parents[2] / "infra" / "flink.py")
flink = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(flink)


def test_flink_writes_the_bytes_of_the_local_runner(tmp_path):
    try:
        flink.jars()
    except flink.Unavailable as error:
        pytest.skip(str(error))
    rows = 20_000
    table = {
        "carrier": pa.array([None if i % 11 == 0 else f"c{i % 7}" for i in range(rows)]),
        "dep_delay": pa.array([None if i % 13 == 0 else i % 90 - 20.0 for i in range(rows)]),
        "distance": pa.array([float(i) for i in range(rows)]),
        "arr_delay": pa.array([None if i % 17 == 0 else i % 60 - 20.0 for i in range(rows)]),
    }
    pq.write_table(pa.table(table), tmp_path / "flights.parquet", row_group_size=2048)
    request = flink.request(tmp_path / "flights.parquet")
    local, there = tmp_path / "local", tmp_path / "flink"
    local.mkdir(), there.mkdir()
    expected = ingest(request, local, Monitor())
    with flink.cluster() as runner:
        assert not runner.in_process
        assert ingest(request, there, Monitor(), runner=runner) == expected
    assert flink.digests(there) == flink.digests(local)
    assert expected["counts"]["read"] == rows
    assert len([path for path in local.iterdir() if path.name.startswith("train-")]) > 1
    assert not (there / ".ranges").exists()
