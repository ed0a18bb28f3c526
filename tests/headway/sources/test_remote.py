"""The same files in a bucket, behind a real S3 endpoint: listed, checked, cut and read as on a disk."""

import gzip

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from headway.errors import ConfigError, DataError
from headway.sources.config import SourceConfig
from headway.sources.spans import files, open_source, spans
from headway.storage import filesystem as storage
from tests.headway.sources.conftest import in_format

TABLE = pa.table({"id": range(100), "s": [f"x{i}" for i in range(100)]})


@pytest.mark.parametrize(
    ("format", "name"),
    [
        ("csv", "a.csv"),
        ("csv", "a.csv.gz"),
        ("jsonl", "a.jsonl"),
        ("jsonl", "a.json.gz"),
        ("parquet", "a.parquet"),
        ("arrow", "a.arrow"),
        ("examples", "a.tfrecord-00000-of-00001"),
        ("images", "cat/a.png"),
    ],
)
def test_a_bucket_is_read_like_a_disk(s3, bucket_name, format, name):
    data, raw = in_format(format, TABLE), pafs.S3FileSystem(endpoint_override=s3)
    for day in ("05", "06"):
        with raw.open_output_stream(f"{bucket_name}/2013/01/{day}/{name}", compression=None) as out:
            out.write(gzip.compress(data) if name.endswith(".gz") else data)
    config = SourceConfig(format=format, path=f"s3://{bucket_name}/{{year}}/{{month}}/{{day}}")
    assert spans(config) == ["2013-01-05", "2013-01-06"]
    found = files(config, "2013-01-06")
    source = open_source(config)
    assert len(found) == 1 and found[0].path.startswith(f"s3://{bucket_name}/")
    names = source.names(found[0])
    assert source.sample(found, 10).table.column_names == names
    chunks = [chunk for piece in source.ranges(found) for chunk in source.read(piece, names, {})]
    assert sum(chunk.batch.num_rows for chunk in chunks) == (1 if format == "images" else 100)
    if format == "images":
        assert chunks[0].batch.column("path").to_pylist() == ["cat/a.png"]
    else:
        assert [int(i) for chunk in chunks for i in chunk.batch.column("id").to_pylist()] == [*range(100)]


def test_what_is_not_there_is_named(bucket_name):
    with pytest.raises(ConfigError, match=f"no file matches s3://{bucket_name}/none"):
        spans(SourceConfig(format="csv", path=f"s3://{bucket_name}/none/{{span}}.csv"))
    with pytest.raises(DataError, match=rf"s3://{bucket_name}/gone\.csv"):
        storage.open_file(f"s3://{bucket_name}/gone.csv").read()
