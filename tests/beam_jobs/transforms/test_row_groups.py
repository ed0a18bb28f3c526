"""The public transforms over row groups: the rows that went in come out, whatever the bundles and wherever they lie."""

import itertools
import json
import pickle
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.testing.util import assert_that, equal_to

from beam_jobs.transforms import ComputeStatistics, ReadRowGroups, WriteRowGroups
from beam_jobs.transforms.write_row_groups import _publish, _Writer
from headway.errors import ConfigError, HeadwayError
from headway.records.encode import feature_spec
from headway.schema.columns import Column
from headway.stages.stage_class import run
from headway.statistics.split_statistics import SplitStatistics
from headway.storage import manifest as manifests
from headway.storage.bucket import Bucket
from headway.storage.filesystem import below, open_file
from tests.beam_jobs.transforms.pipelines import has_rows, pipeline, rows_of

COLUMNS = (
    Column(name="id", type="int64", nullable=False),
    Column(name="x", type="float32", nullable=True),
    Column(name="s", type="bytes", nullable=True, encoding="dictionary"),
    Column(name="v", type="float32", nullable=False, shape=(2,)),
    Column(name="tags", type="bytes", nullable=True, shape=(None,)),
)


def batch(first, rows):
    """Rows in types that become the stored ones."""
    numbers = range(first, first + rows)
    return pa.record_batch(
        {
            "id": pa.array(numbers, pa.int32()),
            "x": pa.array([None if i % 7 == 0 else i / 8 for i in numbers]),
            "s": pa.array([None if i % 11 == 0 else f"s{i % 5}" for i in numbers]),
            "v": pa.array([[i / 2, -i] for i in numbers]),
            "tags": pa.array([None if i % 3 == 0 else ["a", "b"][: i % 3] for i in numbers]),
            "other": pa.array(numbers),
        }
    )


BATCHES = [batch(first, 40) for first in range(0, 400, 40)]


def stored(value):
    """Texts are stored as bytes."""
    if isinstance(value, list):
        return [*map(stored, value)]
    return value.encode() if isinstance(value, str) else value


def expected():
    return [{column.name: stored(row[column.name]) for column in COLUMNS} for row in rows_of(BATCHES)]


def write(folder, batches=BATCHES, columns=COLUMNS, check=None, **options):
    """What the transform says of the folder. `check` sees it as it is in the pipeline."""
    with pipeline() as p:
        described = p | beam.Create(batches) | WriteRowGroups(folder, columns, **options)
        if check is not None:
            assert_that(described, check)
    with open_file(f"{str(folder).rstrip('/')}/examples.json") as file:
        return json.loads(file.read())


def check_files(folder, described):
    """The folder has the shards that it describes, their checksums, and nothing else."""
    shards = described["splits"]["train"]["shards"]
    names = {name.rpartition("/")[2]: name for name in below(str(folder))}
    assert {*names} == {shard["file"] for shard in shards} | {"examples.json"}
    for shard in shards:
        with open_file(names[shard["file"]]) as file:
            assert manifests.crc32c([file.read()]) == (shard["bytes"], shard["crc32c"])


@pytest.mark.parametrize("options", [{}, {"shards": 3}, {"rows_per_record": 7, "shards": 2}, {"rows_per_record": 1}])
def test_the_rows_that_were_written_are_read(tmp_path, options):
    check = None if options else lambda found: found[0]["splits"].keys() == {"train"} or pytest.fail(f"{found}")
    described = write(tmp_path / "rows", check=check, **options)
    check_files(tmp_path / "rows", described)
    assert described["splits"]["train"]["rows"] == 400 and described["feature_spec"] == feature_spec(COLUMNS)
    if "shards" in options:
        assert len(described["splits"]["train"]["shards"]) == options["shards"]
    of = len(described["splits"]["train"]["shards"])
    assert described["splits"]["train"]["shards"][0]["file"] == f"train-00000-of-{of:05d}.tfrecord"
    with pipeline() as p:
        assert_that(p | ReadRowGroups(tmp_path / "rows"), has_rows(expected()))


@pytest.mark.parametrize("bucket_url", ["gs"], indirect=True)  # of the other kind is the ingest output below
def test_rows_lie_in_a_bucket_as_well(bucket_url):
    described = write(f"{bucket_url}/rows/", shards=2)
    check_files(f"{bucket_url}/rows", described)
    with pipeline() as p:
        read = p | ReadRowGroups(f"{bucket_url}/rows", split="train", columns=["s", "id"])
        assert_that(read, has_rows([{"s": row["s"], "id": row["id"]} for row in expected()]))


def test_no_rows_are_a_folder_without_shards(tmp_path):
    described = write(tmp_path / "rows", [batch(0, 0)])
    assert described["splits"] == {"train": {"rows": 0, "shards": []}}
    check_files(tmp_path / "rows", described)
    with pipeline() as p:
        assert_that(p | ReadRowGroups(tmp_path / "rows"), has_rows([]))


def test_groups_of_a_batch_share_a_record(tmp_path):
    columns = (Column(name="query", type="int64", nullable=False, role="group"),)
    rows = pa.record_batch({"query": np.repeat(np.arange(40), 5)})
    described = write(tmp_path / "rows", [rows], columns, rows_per_record=12)
    assert described["splits"]["train"]["shards"][0]["rows"] == [[10, 20]]


@pytest.fixture
def ingested(request_for, write_csv, tmp_path):
    """An ingest output of several ranges, as a store has it, and its request."""
    request = request_for(write_csv(3000), range_size=4096)
    result = run(request, tmp_path / "ingest")
    files = manifests.entries(tmp_path / "ingest")
    made = manifests.Manifest(
        stage="ingest",
        fingerprint="f",
        key={},
        files=files,
        created="2026-01-01",
        seconds=0,
        tools={},
        result=result.model_dump(mode="json"),
    )
    manifests.write(tmp_path / "ingest", made)
    assert len(result.splits["train"].shards) > 5
    return tmp_path / "ingest", result


def test_an_ingest_output_is_read_by_split_and_column(ingested, rows_of, bucket_name):
    folder, result = ingested
    value = result.model_dump(mode="json")
    rows = {split: sorted(rows_of(folder, value, split), key=lambda row: row["id"]) for split in value["splits"]}
    Bucket(f"s3://{bucket_name}/store").publish(folder, "stages/ingest/f", lambda key: False)
    with pipeline() as p:
        assert_that(p | ReadRowGroups(folder, split="eval"), has_rows(rows["eval"]), "eval")
        everything = sorted(itertools.chain(*rows.values()), key=lambda row: row["id"])
        assert_that(p | "all" >> ReadRowGroups([folder]), has_rows(everything), "all splits")
        train = p | "bucket" >> ReadRowGroups(
            f"s3://{bucket_name}/store/stages/ingest/f", split="train", columns=["id"]
        )
        assert_that(train, has_rows([{"id": row["id"]} for row in rows["train"]]), "bucket")
        twice = p | "twice" >> ReadRowGroups([folder, folder], split="train", columns=["id"])
        assert_that(
            twice | beam.Map(lambda b: b.num_rows) | beam.CombineGlobally(sum), equal_to([2 * len(rows["train"])])
        )


def files_of(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


@pytest.mark.long
def test_statistics_of_the_shards_are_those_of_ingest(ingested):
    folder, result = ingested

    def same(found):
        ours, theirs = found[0], SplitStatistics.load(folder / result.splits["train"].statistics)
        assert len(found) == 1 and ours.rows == theirs.rows
        for name, column in theirs.columns.items():
            mine = ours.columns[name]
            names = "rows missing distinct minimum maximum zeros bytes_total shortest longest"
            for what in names.split():
                assert getattr(mine, what) == getattr(column, what), (name, what)
            assert mine.top() == column.top()
            assert (mine.mean, mine.std) == pytest.approx((column.mean, column.std))
        assert ours.sample.table().num_rows == theirs.sample.table().num_rows

    with pipeline() as p:
        rows = p | ReadRowGroups(folder, split="train") | beam.Reshuffle()
        assert_that(rows | beam.CombineGlobally(ComputeStatistics(result.columns)), same, "globally")
        keyed = rows | beam.Map(lambda each: (each.column("id")[0].as_py() % 2, each))
        by_key = (
            keyed | beam.CombinePerKey(ComputeStatistics(result.columns)) | beam.MapTuple(lambda key, s: (key, s.rows))
        )
        total = by_key | beam.Values() | "sum" >> beam.CombineGlobally(sum)
        assert_that(total, equal_to([result.splits["train"].rows]), "per key")


def test_statistics_pickle_with_more_text_than_is_loaded(tmp_path):
    columns = (
        Column(name="day", type="int64", nullable=False, temporal="date"),
        Column(name="s", type="bytes", nullable=False),
    )
    compute = ComputeStatistics(columns)
    texts = pa.array([f"text {i}" for i in range(300_000)])
    rows = pa.record_batch({"day": pa.array(range(300_000)), "s": texts})
    statistics = compute.add_input(compute.create_accumulator(), rows)
    again = pickle.loads(pickle.dumps(statistics))
    assert again.columns["day"].temporal == "date"
    assert again.columns["s"].distinct == 300_000
    for name, each in (("one", statistics), ("other", again)):
        each.save(tmp_path / name)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "other")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda f: ReadRowGroups(f / "none"), "the folder does not describe shards of row groups"),
        (lambda f: ReadRowGroups(f / "bad"), "the folder does not describe shards of row groups"),
        (lambda f: ReadRowGroups(f / "rows", split="trian"), "there is no split 'trian'\n  fix: did you mean 'train'"),
        (lambda f: ReadRowGroups(f / "rows", columns=["idd"]), "there is no column 'idd'"),
        (lambda f: WriteRowGroups(f / "rows", COLUMNS), "row groups are there already"),
        (lambda f: WriteRowGroups(f / "new", ()), "there are no columns"),
        (lambda f: WriteRowGroups(f / "new", COLUMNS, shards=0), "shards is 0"),
        (lambda f: WriteRowGroups(f / "new", COLUMNS, rows_per_record=-1), "rows_per_record is -1"),
        (lambda f: ComputeStatistics(()), "there are no columns"),
    ],
)
def test_a_mistake_is_an_error_as_the_pipeline_is_built(tmp_path, call, says):
    described = {"columns": [COLUMNS[0].model_dump(mode="json")], "rows_per_record": 4}
    for name, text in (("rows", json.dumps(described | {"splits": {"train": {"shards": []}}})), ("bad", "{}")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "examples.json").write_text(text)
    with pytest.raises(ConfigError) as error:
        call(tmp_path)
    assert says in str(error.value)
    assert error.value.fix


@pytest.mark.parametrize(
    ("rows", "shards", "says"),
    [
        (pa.record_batch({"id": [1], "x": [0.5], "v": [[1.0, 2.0]], "tags": [["a"]]}), None, "there is no column 's'"),
        (batch(0, 1).set_column(0, "id", pa.array([None], pa.int64())), 2, "column 'id': 1 row of 1 do not fit"),
        (batch(0, 1).set_column(0, "id", pa.array(["seven"])), None, "the first: 'seven' is not an integer"),
        (batch(0, 1).set_column(3, "v", pa.array([[1.0]])), 2, "column 'v'"),
    ],
)
def test_a_batch_that_does_not_fit_fails_the_pipeline_and_leaves_nothing(tmp_path, rows, says, shards):
    with pytest.raises(Exception, match=says):
        write(tmp_path / "rows", [batch(0, 40), rows, batch(40, 40)], shards=shards)
    assert not [path for path in (tmp_path / "rows").iterdir() if not path.name.startswith(".writing-")]
    if says != "column 'v'":
        return
    write(tmp_path / "rows", shards=shards)  # and the next one needs no hand
    with pipeline() as p:
        assert_that(p | ReadRowGroups(tmp_path / "rows"), has_rows(expected()))


def test_a_damaged_or_missing_shard_is_named(tmp_path):
    write(tmp_path / "rows", shards=1)
    (path,) = (tmp_path / "rows").glob("*.tfrecord")
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    with pytest.raises(Exception, match=rf"{path}: the checksum of a record does not hold \(record at byte 0\)"):
        read_all(tmp_path / "rows")
    path.unlink()
    with pytest.raises(Exception, match=f"{path}: there is no such file"):
        read_all(tmp_path / "rows")


def read_all(folder):
    with pipeline() as p:
        p | ReadRowGroups(folder)


def test_publishing_goes_on_where_it_was_cut_off(tmp_path, monkeypatch):
    """A runner may run it again."""
    attempt = tmp_path / "rows" / ".writing-1"
    attempt.mkdir(parents=True)
    shards = []
    for number in range(3):
        (attempt / f"{number}.tfrecord").write_bytes(b"x" * number)
        shards.append({"file": f"{number}.tfrecord", "rows": [[1, number]], "bytes": number, "crc32c": "0"})
    (attempt / "of-a-failed-bundle.tfrecord").write_bytes(b"x")
    (attempt / "0.tfrecord").rename(tmp_path / "rows" / "train-00000-of-00003.tfrecord")
    arguments = (str(tmp_path / "rows"), "train", _Writer(str(attempt), COLUMNS, 4))
    described = _publish(shards, *arguments)
    assert described["splits"]["train"]["rows"] == 3
    assert _publish(shards, *arguments) == described
    wanted = ["examples.json", *(f"train-{i:05d}-of-00003.tfrecord" for i in range(3))]
    assert sorted(path.name for path in (tmp_path / "rows").iterdir()) == wanted
    (tmp_path / "rows" / "train-00001-of-00003.tfrecord").unlink()
    with pytest.raises(HeadwayError, match="has None bytes, and 1 were written"):
        _publish(shards, *arguments)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Exception, match=rf"{tmp_path}/file/rows/.writing-\w+: cannot be written"):
        write(tmp_path / "file" / "rows")


def test_a_shard_that_is_not_as_described_is_an_error(tmp_path):
    write(tmp_path / "rows", shards=1)
    spec = tmp_path / "rows" / "examples.json"
    spec.write_text(spec.read_text().replace('"name": "x"', '"name": "y"'))
    said = "record 0 is not as the folder describes it: the record has no feature 'y/present'"
    with pytest.raises(Exception, match=said):
        read_all(tmp_path / "rows")
