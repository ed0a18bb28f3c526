"""Predict answers as the job of `headway predict` does, of batches and of raw files, by a model on a disk or in a bucket."""

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.testing.util import assert_that

from beam_jobs.predict.request import CopiedColumn, PredictRequest
from beam_jobs.predict.stage import predict
from beam_jobs.transforms import Predict
from headway.errors import ConfigError, DataError, StoreError
from headway.monitor import Monitor
from headway.sources.config import FORMATS, SourceConfig
from headway.sources.spans import ONE_SPAN, files
from headway.storage.bucket import Bucket
from headway.storage.manifest import checksum
from headway.tabular import quarantine
from tests.beam_jobs.transforms.pipelines import has_rows, pipeline, rows_of
from tests.small_ranges import small_ranges
from tfcore.export.metadata import describe_model

ROWS = 200
TABLE = pa.table(
    {
        "id": range(ROWS),
        "dep delay": [None if i % 7 == 0 else i / 4 for i in range(ROWS)],
        "hour": [None if i in (30, 130) else i % 24 for i in range(ROWS)],
        "carrier": [("AA", "UA", None, "DL")[i % 4] for i in range(ROWS)],
        "taste": [[i, 1.0, -1.0] for i in range(ROWS)],
        "tags": [["a", "b"][: i % 3] for i in range(ROWS)],
    }
)


@pytest.fixture(autouse=True, scope="module")
def _short_ranges():
    before = dict(FORMATS)
    small_ranges(50, "parquet")
    yield
    FORMATS.update(before)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw")
    pq.write_table(TABLE, folder / "new.parquet", row_group_size=50)
    return SourceConfig(format="parquet", path=str(folder / "new.parquet"))


@pytest.fixture(scope="module")
def of_the_job(served_once, source, tmp_path_factory):
    """The rows that the job writes of a model, by its name."""

    def job(name):
        model, out = served_once / f"store/models/{name}/1/saved_model", tmp_path_factory.mktemp("out")
        request = PredictRequest(
            files=files(source, ONE_SPAN),
            source=source,
            columns=describe_model(model).columns,
            model=str(model),
            digest="1",
            loader="tfcore.export.predictor:load",
            passthrough=(CopiedColumn(name="id"),),
        )
        result = predict(request, out / "out", Monitor(), max_quarantined=0.5)
        parts = [pq.read_table(out / "out" / part["file"]) for part in result["parts"]]
        return rows_of(parts), quarantine.read(out / "out").to_pylist()

    return job


def without(rows, *names):
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


@pytest.mark.long
@pytest.mark.parametrize("name", ["flights", "flowers"])
def test_batches_and_files_are_predicted_as_by_the_job(name, served_once, source, of_the_job):
    expected, quarantined = of_the_job(name)
    assert len(expected) == ROWS - 2 and "prediction" in expected[0]
    version = served_once / "store" / "models" / name / "1"
    with pipeline() as p:
        batches = p | beam.Create(TABLE.to_batches(max_chunksize=33))
        predictions, rejected = batches | Predict(version, passthrough=["id"])
        assert_that(predictions, has_rows(without(expected, "source_file", "source_row")), "batches")
        bad = [{"id": row["row"] - 1, **row} for row in quarantined]
        assert_that(rejected, has_rows(without(bad, "file", "row")), "rejected")
        predictions, rejected = p | "files" >> Predict(version / "saved_model", passthrough=["id"], source=source)
        assert_that(predictions, has_rows(expected), "rows of files")
        named = [{"source_file": row["file"], "source_row": row["row"], **row} for row in quarantined]
        assert_that(rejected, has_rows(without(named, "file", "row")), "rejected of files")


@pytest.mark.long
def test_model_and_files_may_lie_in_a_bucket(served_once, of_the_job, bucket_name, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    bucket = Bucket(f"s3://{bucket_name}")
    bucket.publish(served_once / "store/models/flights/1", "store/models/flights/1", lambda key: False)
    pq.write_table(TABLE, tmp_path / "new.parquet")
    bucket.put("raw/new.parquet", tmp_path / "new.parquet", checksum(tmp_path / "new.parquet")[1])
    source = SourceConfig(format="parquet", path=f"s3://{bucket_name}/raw")
    with pipeline() as p:
        model = f"s3://{bucket_name}/store/models/flights/1"
        predictions, _ = p | Predict(model, passthrough=["id"], source=source)
        assert_that(predictions, has_rows(of_the_job("flights")[0]))


def test_mistakes_are_errors(served_once, source, tmp_path, bucket_name):
    with pytest.raises(StoreError, match="is not a SavedModel"):
        Predict(tmp_path)
    with pytest.raises(StoreError, match="is not a SavedModel"):
        Predict(f"s3://{bucket_name}/nothing")
    model = served_once / "store/models/flights/1"
    with pytest.raises(ConfigError, match="there is no column 'idd'"):
        Predict(model, passthrough=["idd"], source=source)
    with pytest.raises(ConfigError, match=r"none\.parquet"):
        Predict(model, source=SourceConfig(format="parquet", path=str(tmp_path / "none.parquet")))
    with pytest.raises(DataError, match="there is no column 'hour'"), pipeline() as p:
        p | beam.Create(TABLE.drop_columns(["hour"]).to_batches()) | Predict(model)
