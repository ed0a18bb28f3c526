"""Objects put, got and listed at a real S3 endpoint, through connections that break."""

from __future__ import annotations

import importlib
import socket
import time

import google_crc32c
import pytest

from headway import files
from headway.bucket import Bucket
from headway.errors import DataError, StoreError
from headway.manifest import checksum


@pytest.fixture
def bucket(bucket_name):
    return Bucket(f"s3://{bucket_name}/deep/store")


def crc(data: bytes) -> str:
    return f"{google_crc32c.value(data):08x}"


def test_what_was_put_is_got_and_listed(bucket, tmp_path):
    data = {f"a/{n}": bytes([n]) * (n * 7_000_003) for n in range(3)}
    for key, value in data.items():
        (tmp_path / key.replace("/", "-")).write_bytes(value)
    bucket.put_all((key, tmp_path / key.replace("/", "-"), crc(value)) for key, value in data.items())
    assert {key: found.bytes for key, found in bucket.listing("a").items()} == {k: len(v) for k, v in data.items()}
    bucket.get_all((key, tmp_path / "got" / key, len(value), crc(value)) for key, value in data.items())
    assert all((tmp_path / "got" / key).read_bytes() == value for key, value in data.items())
    assert bucket.read("a/1") == data["a/1"] and bucket.read("a/9") is None and bucket.listing("b") == {}
    assert abs(bucket.listing("a")["a/1"].changed / 1e9 - time.time()) < 60
    bucket.delete(["a/1", "a/9"])
    assert sorted(bucket.listing("")) == ["a/0", "a/2"]
    bucket.delete_folder("a")
    bucket.delete_folder("never")
    assert bucket.listing("") == {}


def test_an_object_with_other_bytes_is_named(bucket, tmp_path):
    bucket.write("x/shard", b"abcdef")
    with pytest.raises(StoreError, match=r"deep/store/x/shard: has crc32c .* instead of .*its bytes changed"):
        bucket.get("x/shard", tmp_path / "a", 6, crc(b"abcdeg"))
    with pytest.raises(StoreError, match="has 6 bytes instead of 7"):
        bucket.get("x/shard", tmp_path / "a", 7, crc(b"abcdefg"))
    with pytest.raises(StoreError, match=r"x/none: is gone"):
        bucket.get("x/none", tmp_path / "a", 7, crc(b"abcdefg"))


def test_a_file_that_changed_before_its_put_is_refused(bucket, tmp_path):
    (tmp_path / "a").write_bytes(b"other")
    with pytest.raises(StoreError, match="changed on the disk"):
        bucket.put("a", tmp_path / "a", crc(b"bytes"))


def test_there_is_no_such_bucket(s3, tmp_path):
    bucket = Bucket("s3://headway-never/store")
    with pytest.raises(StoreError, match="there is no bucket 'headway-never'"):
        bucket.check()
    with pytest.raises(StoreError, match=r"s3://headway-never/store/a"):
        bucket.write("a", b"1")


def test_a_cut_connection_is_tried_again(proxy, bucket_name, tmp_path):
    bucket = Bucket(f"s3://{bucket_name}/store")
    (tmp_path / "a").write_bytes(b"x" * 3_000_000)
    proxy.limit, proxy.cuts = 1_000_000, 2
    size, digest = checksum(tmp_path / "a")
    bucket.put("a", tmp_path / "a", digest)
    assert proxy.cut == 2
    bucket.get("a", tmp_path / "b", size, digest)


def test_a_put_that_is_cut_every_time_leaves_nothing(proxy, bucket_name, tmp_path):
    bucket = Bucket(f"s3://{bucket_name}/store")
    (tmp_path / "a").write_bytes(b"x" * 3_000_000)
    digest = checksum(tmp_path / "a")[1]
    proxy.limit, proxy.cuts = 1_000_000, 10**9
    with pytest.raises(StoreError, match=r"s3://.*/store/a: .*\n  fix: check the bucket"):
        bucket.put("a", tmp_path / "a", digest)
    assert proxy.cut > 2
    assert bucket.listing("") == {}
    proxy.cuts = 0
    bucket.put("a", tmp_path / "a", digest)
    assert bucket.listing("")["a"].bytes == 3_000_000


@pytest.mark.slow
def test_ten_thousand_objects_are_listed_a_thousand_a_request(proxy, bucket_name):
    names = [f"many/{n % 100:02d}/{n:05d}" for n in range(10_000)]
    # into the server's own memory, since its puts take a minute and a half
    behind = importlib.import_module("moto.s3.models").s3_backends["123456789012"]["aws"]
    for name in names:
        behind.put_object(bucket_name, f"store/{name}", b"1")
    bucket = Bucket(f"s3://{bucket_name}/store")
    proxy.requests = 0
    found = bucket.listing("many")
    assert sorted(found) == sorted(names) and {f.bytes for f in found.values()} == {1}
    assert proxy.requests <= 12
    assert len(bucket.children("many")) == 100
    assert len(files.matches(bucket.name("many/0?/*"))) == 1000
    proxy.requests = 0
    assert len(files.below(bucket.name("many"))) == 10_000
    assert proxy.requests <= 12


def test_cloud_storage_that_cannot_be_reached_is_named(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
    monkeypatch.setattr(files, "_GCS_RETRY_SECONDS", 0.2)
    files._filesystem.cache_clear()
    try:
        bucket = Bucket("gs://team/store")
        with pytest.raises(StoreError, match=r"gs://team/store/stages: .*\n  fix: check the bucket"):
            bucket.listing("stages")
        with pytest.raises(DataError, match=r"gs://team/a.csv: cannot be read: "):
            files.size("gs://team/a.csv")
    finally:
        files._filesystem.cache_clear()
