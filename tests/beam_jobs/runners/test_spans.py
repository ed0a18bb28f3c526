"""Jobs that share a place one after the other: an old one's workers change nothing of the next, and what is kept is whole."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from beam_jobs.ingest.stage import IngestJob
from beam_jobs.predict.stage import PredictJob, predict
from beam_jobs.runners import spans
from beam_jobs.runners.spans import Failure, Outcome, Stopped, finish_span, run_range
from headway.errors import DataError, StoreError
from headway.monitor import Monitor
from headway.storage.bucket import Bucket
from headway.storage.filesystem import is_remote
from headway.storage.objects import Folder
from tests.beam_jobs.predict.test_stage import _request, _rows


def tripled(model, digest):
    """The loader of the next run's model."""
    return lambda batch: pa.RecordBatch.from_arrays([pc.multiply(batch.column("x"), 3.0)], names=["prediction"])


@pytest.fixture
def old(tmp_path):
    """The request of the first run: five ranges, and one row that goes to the quarantine."""
    (tmp_path / "model").mkdir()
    pq.write_table(_rows(450, (7,)), tmp_path / "a.parquet", row_group_size=100)
    return _request(tmp_path / "a.parquet", tmp_path / "model")


@pytest.fixture(params=["folder", "bucket"])
def out(request, tmp_path):
    return tmp_path / "out" if request.param == "folder" else f"s3://{request.getfixturevalue('bucket_name')}/out"


def there(out):
    """{key: bytes} of all in the place."""
    objects = Bucket(out) if is_remote(str(out)) else Folder(out)
    return {key: objects.read(key) for key in objects.listing()}


def begin(job):
    """The ranges of a job that takes its place over."""
    job.place.prepare(job.id)
    return job.cut()


def run(job, pieces, total):
    return [run_range(job, piece, total, lambda rows: None) for piece in pieces]


def test_the_workers_of_an_old_job_leave_the_next_run_in_its_folder_alone(old, out, tmp_path):
    new = old.model_copy(update={"digest": "2", "loader": f"{__name__}:tripled"})
    predict(new, tmp_path / "alone", Monitor())
    before = PredictJob(old, str(out))
    *first, late = begin(before)
    total = len(first) + 1
    done = run(before, first, total)
    after = PredictJob(new, str(out))
    made = run(after, begin(after), total)
    assert not any(each.kept for each in made), "of another model"
    now = there(out)
    with pytest.raises(Stopped):
        run_range(before, late, total, lambda rows: None)
    failed = Failure(0, DataError("is damaged", where="a.parquet").facts)
    for ends in ([*done, failed], done):
        assert finish_span(before, total, ends).failure is not None
        assert there(out) == now and Outcome.read(after) is None
    assert finish_span(after, total, made).failure is None
    assert Outcome.read(after).result["key"] and Outcome.read(before) is None
    result = predict(new, out, Monitor())
    assert result["kept"] == total and there(out) == there(tmp_path / "alone")


def test_an_old_job_that_ends_after_the_next_one_s_commit_removes_nothing(old, out):
    before = PredictJob(old, str(out))
    pieces = begin(before)
    done = run(before, pieces, len(pieces))
    assert predict(old, out, Monitor())["kept"] == len(pieces)
    committed = there(out)
    failure = finish_span(before, len(pieces), done).failure
    assert "another job works in this folder now" in failure.error["problem"]
    with pytest.raises((Stopped, StoreError)):
        run_range(before, pieces[0], len(pieces), lambda rows: None)
    assert there(out) == committed


@pytest.mark.parametrize("what", ["quarantine.parquet", "part.parquet"])
def test_a_kept_range_of_which_any_file_is_torn_is_made_anew(old, out, tmp_path, what):
    whole = predict(old, tmp_path / "alone", Monitor())
    job = PredictJob(old, str(out))
    pieces = begin(job)
    torn = f".ranges/{run(job, pieces, len(pieces))[0].folder}/{what}"
    job.place.write(torn, job.place.objects.read(torn)[:-9])
    assert predict(old, out, Monitor()) == whole | {"kept": len(pieces) - 1}
    assert there(out) == there(tmp_path / "alone")


@pytest.mark.parametrize("what", ["train/shard.tfrecord", "train/statistics/statistics.json", "splits/notes.json"])
def test_every_file_of_an_ingest_s_range_is_checked(request_for, write_csv, tmp_path, what):
    job = IngestJob(request_for(write_csv(300)), str(tmp_path / "out"), "of the request")
    [piece] = begin(job)
    [made] = run(job, [piece], 1)
    folder = tmp_path / "out" / ".ranges" / made.folder
    assert {*made.files} == {*there(folder)} - {"facts.json"}
    path, good = folder / what, (folder / what).read_bytes()
    assert run(job, [piece], 1)[0].kept
    path.write_bytes(good[:-1])
    assert not run(job, [piece], 1)[0].kept and path.read_bytes() == good


def test_ranges_that_other_versions_of_the_tools_made_are_made_anew(old, out, monkeypatch):
    job = PredictJob(old, str(out))
    pieces = begin(job)
    folder = run(job, pieces, len(pieces))[0].folder
    ours = spans.tools()
    monkeypatch.setattr(spans, "tools", lambda: {**ours, "tensorflow": "another"})
    [again] = run(job, pieces[:1], len(pieces))
    assert not again.kept and again.folder != folder
