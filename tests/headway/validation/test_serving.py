"""Serving rows held against the train rows."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pytest

from headway.errors import DataError
from headway.records.encode import encode_classic
from headway.records.tfrecord import ShardWriter
from headway.schema.columns import Column
from headway.validation.config import ValidateConfig
from headway.validation.drift import check_drift
from headway.validation.serving import checksum, serving_rows
from tests.headway.statistics.made import statistics_of

COLUMNS = (
    Column(name="carrier", type="bytes", nullable=True),
    Column(name="distance", type="float32", nullable=True),
    Column(name="hour", type="int64", nullable=True),
)


def batch(rows=2000, share=0.5):
    random = np.random.default_rng(3)
    carriers = pa.array([b"AA" if u < share else b"UA" for u in random.random(rows)], pa.binary())
    distance = pa.array(random.normal(size=rows).astype(np.float32), mask=random.random(rows) < 0.1)
    return pa.record_batch([carriers, distance, pa.array(random.integers(0, 24, rows))], [c.name for c in COLUMNS])


def drifted(served):
    """What serving rows are told of beside the train rows."""
    return [
        *check_drift(
            served,
            statistics_of(COLUMNS, batch()),
            "the train rows",
            ValidateConfig(),
            rows="serving rows",
            where="serving",
        )
    ]


def write(path, kind, rows):
    if kind == "lines":
        texts = [{k: v.decode() if isinstance(v, bytes) else v for k, v in row.items()} for row in rows.to_pylist()]
        path.write_text("".join(json.dumps(row) + "\n" for row in texts))
    else:
        with ShardWriter(path) as shard:
            shard.write_many(encode_classic(rows, COLUMNS))
    return path


@pytest.mark.parametrize("kind", ["lines", "tfrecord"])
def test_each_way_to_log_gives_the_same_statistics(tmp_path, kind):
    served = serving_rows(write(tmp_path / "log", kind, batch()), COLUMNS)
    assert served.rows == 2000 and served.unfit == (0, "")
    for name, column in statistics_of(COLUMNS, batch()).columns.items():
        found = served.statistics.columns[name]
        assert (found.missing, found.distinct, found.top(3)) == (column.missing, column.distinct, column.top(3))
    assert drifted(served.statistics) == []


def test_columns_distributed_differently_in_serving_rows_are_reported(tmp_path):
    asked = batch(share=0.9).drop_columns(["hour"])
    served = serving_rows(write(tmp_path / "log", "lines", asked), COLUMNS)
    first, second = drifted(served.statistics)
    assert (first.kind, first.column, first.where) == ("drift", "carrier", "serving")
    assert first.message.startswith("column 'carrier' has drifted from the train rows: '")
    assert "of its values in the serving rows, and was " in first.message
    said = "send it in serving, computed as in the source; if it is right, raise validation.drift.l_infinity"
    assert first.fix.startswith(said)
    assert second.message == "column 'hour' is missing in all of the serving rows, and was in 0.00% of the train rows"


def test_values_that_do_not_fit_are_counted(tmp_path):
    path = tmp_path / "log"
    path.write_text('{"carrier": "AA", "distance": "far"}\n{"carrier": "UA", "distance": "12.5"}\n')
    served = serving_rows(path, COLUMNS)
    assert served.unfit[0] == 1 and "'distance': 'far'" in served.unfit[1]
    assert served.statistics.rows == 1
    [few] = drifted(served.statistics)
    assert few.severity == "info"


@pytest.mark.parametrize("zipped", [False, True])
def test_a_broken_line_is_skipped_alone_and_reported_with_its_number(tmp_path, zipped):
    good = b'{"carrier": "AA", "distance": 1.5, "hour": 3}\n'
    lines = b"\xef\xbb\xbf" + good * 2 + b"\n" + b'{"carrier": "AA", \n' + good * 3 + b"[1]\n" + b'{"hour": [3]}\n'
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(lines) if zipped else lines)
    served = serving_rows(path, COLUMNS)
    assert served.rows == 8 and served.statistics.rows == 5
    assert served.unfit[0] == 3 and served.unfit[1].startswith("row 3: not JSON")
    assert "byte" not in served.unfit[1]


@pytest.mark.parametrize("zipped", [False, True])
def test_a_record_that_is_no_example_is_counted(tmp_path, zipped):
    with ShardWriter(tmp_path / "log") as shard:
        shard.write_many([*encode_classic(batch(3), COLUMNS), b"\xff\xff"])
    if zipped:
        (tmp_path / "log").write_bytes(gzip.compress((tmp_path / "log").read_bytes()))
    served = serving_rows(tmp_path / "log", COLUMNS)
    assert (served.rows, served.unfit[0]) == (4, 1) and served.unfit[1].startswith("row 4: ")


@pytest.mark.parametrize(
    "content", [b"", b'{"carrier": \n', b"nonsense", b"\x1f\x8b\x08", b"[{}]", b"\x03" + bytes(20)]
)
def test_a_file_of_something_else_is_named(tmp_path, content):
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(DataError, match="log"):
        serving_rows(path, COLUMNS)
    with pytest.raises(DataError):
        checksum(tmp_path / "nothing")
