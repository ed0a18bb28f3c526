"""Predictions into a folder of a bucket: one at a time, whole or not there, and never over what others put."""

import json
import threading

import pytest

from beam_jobs.predict import bucket_output
from beam_jobs.predict.bucket_output import into_bucket
from beam_jobs.predict.stage import MANIFEST
from headway.errors import Locked, StoreError
from headway.storage.bucket import Bucket
from headway.storage.manifest import checksum


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A working copy of its own for each call, as on machines of their own."""
    calls = iter(range(100))
    monkeypatch.setattr(bucket_output, "default_cache", lambda name: tmp_path / f"machine-{next(calls)}")


def predicting(text, before=lambda: None):
    def predict(folder):
        before()
        folder.mkdir(parents=True)
        (folder / "part-0.parquet").write_text(text)
        size, crc32c = checksum(folder / "part-0.parquet")
        result = {"parts": [{"file": "part-0.parquet", "bytes": size, "crc32c": crc32c}]}
        (folder / MANIFEST).write_text(json.dumps(result))
        return result

    return predict


def test_a_second_prediction_into_a_folder_fails_and_changes_nothing(bucket_url):
    url = f"{bucket_url}/scored"
    inside, go = threading.Event(), threading.Event()

    def wait():
        inside.set()
        assert go.wait(60)

    first = threading.Thread(target=into_bucket, args=(url, predicting("first", wait)))
    first.start()
    assert inside.wait(60)
    with pytest.raises(Locked, match=r"another prediction into this folder is going on.* process") as error:
        into_bucket(url, predicting("second"))
    assert error.value.where == url and "name another folder" in error.value.fix
    into_bucket(f"{bucket_url}/other", predicting("beside"))
    go.set()
    first.join()
    bucket = Bucket(url)
    assert bucket.read("part-0.parquet") == b"first" and set(bucket.listing()) == {"part-0.parquet", MANIFEST}
    into_bucket(url, predicting("second"))
    assert bucket.read("part-0.parquet") == b"second" and set(bucket.listing()) == {"part-0.parquet", MANIFEST}


def test_a_prediction_that_failed_frees_its_folder(bucket_url):
    def fail(folder):
        raise StoreError("the disk is full")

    with pytest.raises(StoreError, match="the disk is full"):
        into_bucket(f"{bucket_url}/scored", fail)
    into_bucket(f"{bucket_url}/scored", predicting("then"))
    assert Bucket(f"{bucket_url}/scored").read("part-0.parquet") == b"then"


def test_a_folder_of_others_is_left_as_it_is(bucket_url):
    bucket = Bucket(f"{bucket_url}/theirs")
    bucket.write("notes.txt", b"x")
    with pytest.raises(StoreError, match="no prediction wrote"):
        into_bucket(f"{bucket_url}/theirs", predicting("first"))
    assert set(bucket.listing()) == {"notes.txt"}
