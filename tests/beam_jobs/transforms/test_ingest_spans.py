"""IngestSpans writes the files of an ingest, in a pipeline that goes on with them."""

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from beam_jobs.ingest.stage import ingest
from beam_jobs.runners.spans import finish_span, run_range
from beam_jobs.transforms import IngestSpans, ReadRowGroups
from beam_jobs.transforms.ingest_spans import _DescribedJob, _publish
from headway.errors import ConfigError
from headway.monitor import Monitor
from headway.storage.filesystem import below, open_file
from tests.beam_jobs.transforms.pipelines import pipeline


def bytes_of(folder):
    """{file: its bytes}, without the description."""
    found = {}
    for name in below(folder):
        with open_file(name) as file:
            found[name[len(folder) + 1 :]] = file.read()
    found.pop("examples.json", None)
    return found


@pytest.fixture(params=["folder", "bucket"])
def root(request, tmp_path):
    return (
        str(tmp_path / "rows") if request.param == "folder" else f"s3://{request.getfixturevalue('bucket_name')}/rows"
    )


@pytest.mark.long
def test_spans_are_ingested_with_the_bytes_of_an_ingest(root, request_for, write_csv, tmp_path):
    requests = {f"{root}/{name}": request_for(write_csv(900, f"{name}.csv"), range_size=4096) for name in "ab"}
    results = {}
    for number, (folder, each) in enumerate(requests.items()):
        results[folder] = ingest(each, tmp_path / str(number), Monitor())
    with pipeline() as p:
        ingested = p | IngestSpans(requests)
        counts = ingested | beam.MapTuple(lambda folder, result: (folder, result["counts"]["written"]))
        assert_that(counts, equal_to([(folder, result["counts"]["written"]) for folder, result in results.items()]))
    for number, folder in enumerate(requests):
        assert bytes_of(folder) == bytes_of(str(tmp_path / str(number)))
    with pipeline() as p:
        rows = p | ReadRowGroups([*requests]) | beam.Map(lambda batch: batch.num_rows) | beam.CombineGlobally(sum)
        assert_that(rows, equal_to([sum(result["counts"]["written"] for result in results.values())]))
    with pytest.raises(ConfigError, match=r"row groups are there already: it has a examples\.json"):
        IngestSpans(requests)


def test_the_end_of_a_span_may_run_again_after_it_was_published(root, request_for, write_csv):
    request = request_for(write_csv(600), range_size=4096)
    job = _DescribedJob(request, root)
    job.place.prepare(job.id)
    pieces = job.cut()
    done = [run_range(job, piece, len(pieces), lambda rows: None) for piece in pieces]
    assert len(pieces) > 1 and job.published() is None
    ended = finish_span(job, len(pieces), done)
    published = _publish((0, ended), [job])
    files = bytes_of(root)
    # the step behind it failed, and the runner gives the bundle to another worker
    again = finish_span(job, len(pieces), done)
    assert again.failure is None and _publish((0, again), [job]) == published
    assert bytes_of(root) == files
    assert _DescribedJob(request.model_copy(update={"span": "another"}), root).published() is None
    job.place.objects.delete([next(name for name in files if name.startswith("train-"))])
    assert job.published() is None, "it lacks a shard"


def test_a_damaged_file_fails_the_pipeline_and_the_next_one_goes_on(request_for, write_csv, tmp_path):
    path = write_csv(600)
    text = path.read_text()
    asked = request_for(path, range_size=1024)
    path.write_bytes(text.encode()[:2000] + b"\0" * 40)
    with pytest.raises(Exception, match=r"raw\.csv"), pipeline() as p:
        p | IngestSpans({tmp_path / "rows": asked})
    assert not (tmp_path / "rows" / "examples.json").exists()
    path.write_text(text)
    with pipeline() as p:
        assert_that(p | IngestSpans({tmp_path / "rows": asked}) | beam.Keys(), equal_to([str(tmp_path / "rows")]))


def test_a_request_that_does_not_fit_is_refused(request_for, write_csv, tmp_path):
    with pytest.raises(ConfigError, match="zzz"):
        IngestSpans({tmp_path / "rows": request_for(write_csv(10), where="zzz > 1")})
