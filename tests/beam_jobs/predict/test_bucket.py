"""Predictions into a folder of a bucket: one at a time, whole or not there, and never over what others put.

Each kind of bucket where it is about the bucket, and one of them where it is about what is put there: that what a bucket
promises holds for both is in tests/headway/storage.
"""

import errno
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from beam_jobs.predict import stage
from beam_jobs.predict.model import local_model, model_digest
from beam_jobs.predict.stage import predict
from beam_jobs.runners.config import RunnerConfig
from beam_jobs.runners.place import as_store_errors
from headway.errors import Locked, StoreError
from headway.monitor import Monitor
from headway.storage.bucket import Bucket
from headway.storage.manifest import checksum
from tests.beam_jobs.predict.test_stage import _bytes, _request, _rows, short_ranges

__all__ = ["short_ranges"]


@pytest.fixture
def data(tmp_path):
    (tmp_path / "data").mkdir()
    pq.write_table(_rows(450, (7,)), tmp_path / "data" / "a.parquet", row_group_size=100)
    pacsv.write_csv(_rows(450), tmp_path / "data" / "a.csv")
    return tmp_path / "data"


@pytest.mark.parametrize(
    ("bucket_url", "format", "write"),
    [("s3", "parquet", "parquet"), ("gs", "csv", "jsonl")],  # a format does not know the kind of bucket
    indirect=["bucket_url"],
)
def test_the_bytes_are_those_of_a_folder_and_nothing_else_is_left(data, model, bucket_url, tmp_path, format, write):
    request = _request(data / f"a.{format}", model, format=format, write=write)
    here = predict(request, tmp_path / "out", Monitor())
    there = predict(request, f"{bucket_url}/scored", Monitor(), runner=RunnerConfig(workers=1))
    assert here == there and len(there["parts"]) > 2
    bucket = Bucket(f"{bucket_url}/scored")
    written = bucket.listing()
    assert {name: bucket.read(name) for name in written} == _bytes(tmp_path / "out")
    assert predict(request, f"{bucket_url}/scored", Monitor())["cached"]
    assert Bucket(f"{bucket_url}/scored").listing() == written


def test_a_second_prediction_into_a_folder_fails_and_changes_nothing(data, model, bucket_url, monkeypatch):
    url, request = f"{bucket_url}/scored", _request(data / "a.parquet", model)
    inside, go, cut = threading.Event(), threading.Event(), stage.run_spans

    def wait(*arguments):
        inside.set()
        assert go.wait(60)
        return cut(*arguments)

    monkeypatch.setattr(stage, "run_spans", wait)
    first = threading.Thread(target=predict, args=(request, url, Monitor()))
    first.start()
    assert inside.wait(60)
    with pytest.raises(Locked, match=r"another prediction into this folder is going on.* process") as error:
        predict(request, url, Monitor())
    assert error.value.where == url and "name another folder" in error.value.fix
    go.set()
    first.join()
    assert predict(request, url, Monitor())["cached"]


@pytest.mark.parametrize("bucket_url", ["s3"], indirect=True)
def test_what_a_killed_look_at_the_bucket_left_is_no_file_of_others_and_goes(data, model, bucket_url, monkeypatch):
    bucket, request = Bucket(f"{bucket_url}/scored"), _request(data / "a.parquet", model)
    for name in (".probe-0123456789ab", ".clock-0123456789ab"):
        bucket.write(name, b"1")
    result = predict(request, bucket.url, Monitor())
    assert result["parts"] and ".probe-0123456789ab" in bucket.listing(), "it may be another process's, at work"
    monkeypatch.setattr(stage, "_PROBE_SECONDS", -10.0)
    predict(_request(data / "a.parquet", model, write="jsonl"), bucket.url, Monitor())
    assert not [name for name in bucket.listing() if name.startswith((".probe", ".clock"))]


@pytest.mark.parametrize("bucket_url", ["s3"], indirect=True)
def test_numbering_the_rows_of_a_text_file_holds_one_part_at_a_time_on_the_disk(data, model, bucket_url, monkeypatch):
    files, write = [], stage._renumbered

    def renumbered(source, path, *arguments):
        write(source, path, *arguments)
        files.append([file for file in source.parents[2].rglob("*") if file.is_file()])

    monkeypatch.setattr(stage, "_renumbered", renumbered)
    request = _request(data / "a.csv", model, format="csv")
    predict(request, f"{bucket_url}/scored", Monitor(), runner=RunnerConfig(workers=1))
    assert len(files) > 2 and {len(each) for each in files} == {2}, "the part, and the part with its rows' numbers"


def test_a_full_disk_of_a_worker_is_named_and_not_the_bucket(bucket_url):
    with pytest.raises(StoreError, match="no space left on device") as error, as_store_errors(f"{bucket_url}/scored"):
        raise OSError(errno.ENOSPC, "no room")
    assert error.value.where == tempfile.gettempdir()


def test_a_folder_of_others_is_left_as_it_is(data, model, bucket_url):
    bucket = Bucket(f"{bucket_url}/theirs")
    bucket.write("notes.txt", b"x")
    with pytest.raises(StoreError, match="no prediction wrote"):
        predict(_request(data / "a.parquet", model), f"{bucket_url}/theirs", Monitor())
    assert set(bucket.listing()) == {"notes.txt"}


@pytest.mark.parametrize("bucket_url", ["gs"], indirect=True)
def test_a_worker_without_the_models_folder_fetches_it_once_and_keeps_it_until_its_end(bucket_url, tmp_path):
    model, bucket = tmp_path / "model" / "saved", Bucket(f"{bucket_url}/model")
    (model / "variables").mkdir(parents=True)
    for name in ("saved_model.pb", "variables/data"):
        (model / name).write_text(name)
        bucket.put(name, model / name, checksum(model / name)[1])
    digest = model_digest(model)
    assert local_model(str(model), bucket.url, digest) == local_model(str(model), None, digest) == str(model)
    there = Path(local_model("/not/here", bucket.url, digest))
    assert _bytes(there) == _bytes(model)
    bucket.delete(bucket.listing())
    assert local_model("/not/here", bucket.url, digest) == str(there)
    with pytest.raises(StoreError, match="is not the model that was asked for"):
        local_model("/not/here", bucket.url, "another")
    program = (
        "import sys; from beam_jobs.predict.model import local_model; print(local_model('/not/here', *sys.argv[1:]))"
    )
    bucket.put("saved_model.pb", model / "saved_model.pb", checksum(model / "saved_model.pb")[1])
    (model / "variables" / "data").unlink()
    command = [sys.executable, "-c", program, bucket.url, model_digest(model)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() and not Path(done.stdout.strip()).exists()
