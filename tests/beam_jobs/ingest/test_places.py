"""Spans ingested straight into a bucket: the bytes of a folder."""

import hashlib

import pytest

from beam_jobs.ingest.stage import ingest_many
from beam_jobs.runners.config import RunnerConfig
from headway.errors import DataError, StoreError
from headway.monitor import Monitor
from headway.storage.bucket import Bucket


@pytest.fixture
def requests_of(request_for, write_csv):
    """Two spans, of several ranges and of one, with rows that are rejected."""
    paths = [write_csv(400, "a.csv"), write_csv(30, "b.csv", first=1000)]
    for path in paths:
        path.write_text(path.read_text() + "x,1,s,1\n")
    return [request_for(path, range_size=2048) for path in paths]


def _digests(bucket):
    return {name: hashlib.sha256(bucket.read(name)).hexdigest() for name in bucket.listing()}


@pytest.mark.parametrize("bucket_url", ["gs"], indirect=True)  # of the other kind, from workers apart: test_stage.py
def test_a_bucket_gets_the_bytes_of_a_folder(requests_of, bucket_url, tmp_path, digests):
    outs, places = [tmp_path / "a", tmp_path / "b"], [f"{bucket_url}/a", f"{bucket_url}/b"]
    wanted = ingest_many(requests_of, outs, Monitor(), runner=RunnerConfig(workers=2))
    found = ingest_many(requests_of, [tmp_path / "none"] * 2, Monitor(), runner=RunnerConfig(workers=2), places=places)
    assert not (tmp_path / "none").exists(), "nothing goes through the driver's disk"
    for out, place, want, result in zip(outs, places, wanted, found, strict=True):
        files = {entry["path"]: entry for entry in result.pop("files")}
        assert files == {entry["path"]: entry for entry in want.pop("files")} and result == want
        assert _digests(Bucket(place)) == digests(out) and files.keys() == digests(out).keys()
        for name, stored in Bucket(place).listing().items():
            assert files[name]["bytes"] == stored.bytes
            assert Bucket(place).checksums([name]) == [(stored.bytes, files[name]["crc32c"])]


def test_a_mistake_is_named_and_a_bucket_that_is_gone_is_a_store_error(request_for, write_csv, bucket_url, tmp_path):
    request = request_for(write_csv(300), range_size=1024, where="s > 1")
    with pytest.raises(DataError, match="expression 's > 1'"):
        ingest_many([request], [tmp_path], Monitor(), places=[f"{bucket_url}/a"])
    assert not [name for name in Bucket(f"{bucket_url}/a").listing() if ".ranges" in name]
    with pytest.raises(StoreError) as error:
        ingest_many([request_for(write_csv(30))], [tmp_path], Monitor(), places=[f"{bucket_url}-gone/a"])
    assert error.value.where.startswith(f"{bucket_url}-gone/a") and error.value.fix
