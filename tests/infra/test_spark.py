"""Ingest and predict on a real Spark, with workers in processes of their own: the bytes of the local runner."""

import subprocess
import sys
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]


def test_ingest_and_predict_write_the_bytes_of_the_local_runner(flights, tmp_path):
    january = tmp_path / "2013-01.parquet"
    pq.write_table(flights.filter(pc.equal(flights["month"], 1)), january, row_group_size=4096)
    command = [sys.executable, "-P", str(Path(__file__).with_name("same_bytes.py")), str(january), "--spark"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    if done.returncode == 3:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("byte-identical to the local runner's") == 2
    assert done.stdout.startswith("ingest: 27004 rows, ")
