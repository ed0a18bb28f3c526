"""Whole spans through Beam: same bytes however it is run, nothing lost, nothing left behind, errors as they were."""

import contextlib
import errno
import hashlib
import json
import logging
import os
import pickle
import sys
import tempfile
import threading
import time
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_jobs.ingest import range_worker, stage
from beam_jobs.ingest.stage import ingest, ingest_many
from beam_jobs.runners import pipeline
from beam_jobs.runners.config import RunnerConfig
from beam_jobs.runners.pipeline import CutSpan, FinishSpan, ProcessRange
from beam_jobs.runners.place import FolderPlace
from beam_jobs.runners.spans import Stopped
from beam_jobs.runners.watch import Watch
from headway.errors import Cancelled, ConfigError, DataError, HeadwayError, StoreError
from headway.monitor import Monitor
from headway.process import is_own_process
from headway.records.tfrecord import ShardWriter
from headway.sources.spans import open_source
from headway.stages.stage_class import json_value
from headway.statistics.split_statistics import SplitStatistics
from headway.storage import manifest
from headway.storage.bucket import Bucket
from headway.tabular import quarantine
from tests.beam_jobs.pool import workers_apart
from tests.told import Told
from tfcore.runtime.tensorflow_process import Child

ONE, TWO = RunnerConfig(workers=1), RunnerConfig(workers=2)


@pytest.fixture
def out(tmp_path):
    made = tmp_path / "out"
    made.mkdir()
    return made


@pytest.fixture
def dirty(tmp_path):
    """Two files of one span, several ranges each, with bad values and broken lines at known places."""
    folder = tmp_path / "raw"
    folder.mkdir()
    bad = {("a.csv", 3): "3,oops,s,1", ("a.csv", 150): "broken", ("b.csv", 0): "x,1,s,1", ("b.csv", 199): "1,2,3,4,5"}
    for name in ("a.csv", "b.csv"):
        lines = [bad.get((name, i), f"{i},{i / 4},s{i % 3},{i % 3 - 1}") for i in range(200)]
        (folder / name).write_text("\n".join(["id,x,s,y", *lines]) + "\n")
    return folder, [(name, row + 1) for name, row in bad]


def test_a_span_becomes_shards_statistics_and_a_result(request_for, write_csv, out, rows_of):
    request = request_for(write_csv(300), where="x > 1", range_size=2048)
    result = ingest(request, out, Monitor(), runner=TWO)
    json.dumps(result)
    assert result["span"] == "all"
    assert [column["name"] for column in result["columns"]] == ["id", "x", "s", "label"]
    counts = result["counts"]
    assert counts["read"] == 300 == counts["written"] + counts["filtered"]
    assert counts["quarantined"] == 0
    assert set(result["splits"]) == {"train", "eval", "test"}
    seen = set()
    for name, split in result["splits"].items():
        rows = rows_of(out, result, name)
        assert len(rows) == split["rows"]
        assert SplitStatistics.load(out / split["statistics"]).rows == split["rows"]
        seen |= {row["id"] for row in rows}
    assert seen == {i for i in range(300) if i % 7 and i / 8 > 1}
    files = {path.name for path in out.iterdir()}
    shards = {shard["file"] for split in result["splits"].values() for shard in split["shards"]}
    assert files == shards | {"statistics", "splits"}
    ranges = int(next(iter(shards)).split("-of-")[1].split(".")[0])
    assert ranges > 1
    assert f"train-00000-of-{ranges:05d}.tfrecord" in shards


def test_the_bytes_do_not_depend_on_workers_or_company(request_for, write_csv, tmp_path, digests):
    first = request_for(write_csv(600, "a.csv"), range_size=1024)
    second = request_for(write_csv(80, "b.csv", first=1000), range_size=1024)
    outs = {name: tmp_path / name for name in ("one", "two", "again", "many_a", "many_b", "alone_b")}
    one = ingest(first, outs["one"], Monitor(), runner=ONE)
    two = ingest(first, outs["two"], Monitor(), runner=TWO)
    many = ingest_many([first, second], [outs["many_a"], outs["many_b"]], Monitor(), runner=TWO)
    alone = ingest(second, outs["alone_b"], Monitor(), runner=ONE)
    entries = [entry.model_dump(mode="json") for entry in manifest.entries(outs["many_a"])]
    assert many[0].pop("files") == entries and many[1].pop("files")
    assert one == two == many[0]
    assert alone == many[1]
    assert digests(outs["one"]) == digests(outs["two"]) == digests(outs["many_a"])
    assert digests(outs["alone_b"]) == digests(outs["many_b"])
    # and again into a folder that holds it all already
    assert ingest(first, outs["two"], Monitor(), runner=ONE) == one
    assert digests(outs["two"]) == digests(outs["one"])


def test_quarantine_names_file_and_row_in_file_order(request_for, dirty, tmp_path, digests):
    folder, bad = dirty
    results = []
    for name, runner in (("one", ONE), ("two", TWO)):
        results.append(ingest(request_for(folder, range_size=1024), tmp_path / name, Monitor(), runner=runner))
    counts = results[0]["counts"]
    assert counts == {"read": 400, "written": 396, "quarantined": 4, "filtered": 0}
    table = quarantine.read(tmp_path / "one").to_pylist()
    assert [(row["file"], row["row"]) for row in table] == bad
    assert [row["column"] for row in table] == ["x", None, "id", None]
    assert digests(tmp_path / "one") == digests(tmp_path / "two")


def test_a_file_without_rows_is_a_span_without_rows(request_for, write_csv, out):
    empty = ingest(request_for(write_csv(0)), out, Monitor(), runner=ONE)
    assert empty["counts"] == {"read": 0, "written": 0, "quarantined": 0, "filtered": 0}
    assert empty["splits"]["train"] == {"rows": 0, "shards": [], "statistics": "statistics/train"}
    assert SplitStatistics.load(out / "statistics" / "train").rows == 0


# --- progress, errors, stopping


def test_progress_is_reported_in_rows_on_the_callers_thread(request_for, write_csv, tmp_path, out):
    table = {"id": list(range(90)), "x": [1.0] * 90, "s": ["a"] * 90, "y": [1.0] * 90}
    pq.write_table(pa.table(table), tmp_path / "raw.parquet", row_group_size=30)
    monitor = Told()
    ingest(request_for(tmp_path / "raw.parquet", range_size=30), out, monitor, runner=TWO)
    assert monitor.done[-1] == (90, 90, "rows")
    assert [done for done, _, _ in monitor.done] == sorted(done for done, _, _ in monitor.done)
    assert monitor.threads == {threading.current_thread()}


def test_errors_keep_their_kind_and_words_and_leave_nothing(request_for, write_csv, out, caplog, capfd):
    path = write_csv(300)
    request = request_for(path, range_size=1024, where="s > 1")
    with caplog.at_level(logging.DEBUG), pytest.raises(DataError) as caught:
        ingest(request, out, Monitor(), runner=TWO)
    assert "expression 's > 1'" in str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert list(out.iterdir()) == []
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert capfd.readouterr() == ("", "")
    with pytest.raises(ConfigError, match="there is no column"):
        ingest(request_for(path, where="q > 1"), out, Monitor(), runner=TWO)


def test_a_damaged_file_is_named(request_for, tmp_path, out):
    path = tmp_path / "raw.parquet"
    table = {"id": list(range(5000)), "x": [1.0] * 5000, "s": ["a"] * 5000, "y": [1.0] * 5000}
    pq.write_table(pa.table(table), path, row_group_size=1000)
    request = request_for(path, range_size=1000)
    data = bytearray(path.read_bytes())
    data[10:40] = b"\xff" * 30
    path.write_bytes(data)
    with pytest.raises(DataError, match="not a whole Parquet file") as caught:
        ingest(request, out, Monitor(), runner=TWO)
    assert caught.value.where == str(path)


def test_a_folder_that_cannot_be_written_is_a_store_error(request_for, write_csv, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        ingest(request_for(write_csv(5)), tmp_path / "file" / "out", Monitor(), runner=ONE)


def full(*args):
    raise OSError(errno.ENOSPC, "no room")


@pytest.mark.parametrize("takes_errors", [True, False])
def test_a_full_disk_is_a_store_error_with_a_fix_also_where_it_takes_no_error_either(
    request_for, write_csv, out, monkeypatch, takes_errors
):
    for kind, method in [(ShardWriter, "_append"), *([] if takes_errors else [(FolderPlace, "write")])]:
        monkeypatch.setattr(kind, method, full)
    with pytest.raises(StoreError, match="make room"):
        ingest(request_for(write_csv(300), range_size=1024), out, Monitor(), runner=TWO)


def replaced(path, reverse):
    """Another file of the same size takes its place."""
    first, *others = path.read_text().splitlines(keepends=True)
    path.write_text("".join([first, *(others[::-1] if reverse else others)]))
    os.utime(path, (1, 1))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (Path.unlink, "there is no such file"),
        (lambda path: path.write_text(path.read_text() + "6,1.0,a,1.0\n"), r"it has \d+ bytes, and had \d+"),
        (lambda path: replaced(path, reverse=True), "changed while it was read: its size is the same"),
        (lambda path: replaced(path, reverse=False), None),  # the same bytes
    ],
)
def test_a_file_that_goes_away_or_changes_after_its_checksum_is_a_data_error(
    request_for, write_csv, out, monkeypatch, change, said
):
    path = write_csv(5)
    request, original = request_for(path), stage.run_spans
    monkeypatch.setattr(stage, "run_spans", lambda *args: (change(path), original(*args))[1])
    if said is None:
        assert ingest(request, out, Monitor(), runner=ONE)["counts"]["read"] == 5
        return
    with pytest.raises(DataError, match=rf"raw\.csv: .*{said}"):
        ingest(request, out, Monitor(), runner=ONE)
    assert not any(out.iterdir())


def test_a_file_that_another_of_its_size_replaces_is_noticed_in_a_process_that_gets_the_request_as_json(
    request_for, write_csv, out
):
    path = write_csv(5)
    request = request_for(path)
    [file] = request.files
    again = type(request).model_validate_json(request.model_dump_json())
    assert file.changed is not None and again.files[0].changed == file.changed
    timeless = request.model_copy(update={"files": (file.model_copy(update={"changed": None}),)})
    assert again == request == timeless and again.fingerprint == request.fingerprint == timeless.fingerprint
    assert json_value(request.files) == json_value(timeless.files)
    replaced(path, reverse=True)
    with (
        Child(preload=()) as child,
        pytest.raises(DataError, match=r"raw\.csv: changed while it was read: its size is the same"),
    ):
        child.call(request.runs, request, out, Monitor())


def test_only_a_process_that_a_runner_started_for_headway_is_its_own(monkeypatch):
    monkeypatch.setattr("headway.process._OWN", [])
    work = ProcessRange([], "a job")
    work.setup()
    assert not is_own_process()
    monkeypatch.setattr(pipeline, "_PROCESS", "another process")
    ProcessRange([], "").setup()
    assert not is_own_process(), "IngestSpans runs in the workers of a user's own pipeline"
    work.setup()
    assert is_own_process()


def interrupted(*args, **facts):
    raise KeyboardInterrupt


@pytest.mark.parametrize("end", [Cancelled, KeyboardInterrupt])
def test_a_stop_or_a_ctrl_c_is_prompt_and_leaves_nothing(request_for, write_csv, out, monkeypatch, end):
    original = range_worker.ingest_range
    started = threading.Event()

    def slow(request, piece, folder, tick):
        facts = original(request, piece, folder, tick)
        started.set()
        for _ in range(600):  # as many batches still to come
            time.sleep(0.05)
            tick(1)
        return facts

    monkeypatch.setattr(range_worker, "ingest_range", slow)
    monitor = Monitor()
    if end is Cancelled:
        threading.Thread(target=lambda: (started.wait(), monitor.stop.set()), daemon=True).start()
    else:
        monitor.progress = interrupted  # a signal is heard on the caller's thread
    begun = time.perf_counter()
    with pytest.raises(end):
        ingest(request_for(write_csv(300), range_size=1024), out, monitor, runner=TWO)
    assert time.perf_counter() - begun < 10
    assert list(out.iterdir()) == []


def test_a_monitor_that_was_stopped_before_starts_nothing(request_for, write_csv, tmp_path):
    monitor = Monitor()
    monitor.stop.set()
    with pytest.raises(Cancelled):
        ingest(request_for(write_csv(3)), tmp_path / "out", monitor)
    assert not (tmp_path / "out").exists()


# --- what a runner may do to us


def test_a_lost_range_is_an_error_and_never_a_short_output(request_for, write_csv, out, monkeypatch):
    process = ProcessRange.process
    monkeypatch.setattr(ProcessRange, "process", lambda self, each: [] if each[0][1] == 1 else process(self, each))
    with pytest.raises(HeadwayError, match=r"lost 1 of \d+ ranges: it ended without an error") as error:
        ingest(request_for(write_csv(300), range_size=1024), out, Monitor(), runner=TWO)
    assert error.value.where == "span all, range 1" and list(out.iterdir()) == []


def test_a_span_whose_number_of_ranges_was_lost_is_an_error(request_for, write_csv, out, monkeypatch):
    cut = CutSpan.process

    def without_counts(self, span):
        return [each for each in cut(self, span) if not isinstance(each, beam.pvalue.TaggedOutput)]

    monkeypatch.setattr(CutSpan, "process", without_counts)
    with pytest.raises(HeadwayError, match="the runner lost all of its ranges"):
        ingest(request_for(write_csv(900), range_size=8192), out, Monitor())
    assert not any(out.iterdir())


def test_workers_whose_driver_has_left_this_process_do_nothing_more():
    with Watch() as watch:
        step = pickle.loads(pickle.dumps(ProcessRange([], watch.name)))
        assert not step._stopped()
    assert step._stopped()
    assert not ProcessRange([], "")._stopped(), "IngestSpans has no driver"
    step._process = "another process"
    assert not step._stopped()


def test_an_error_is_the_users_also_where_the_job_ends_before_its_outcome(request_for, write_csv, out, monkeypatch):
    monkeypatch.setattr(FinishSpan, "process", lambda self, element: [])  # as on a cluster that is cancelled first
    path = write_csv(900)
    request = request_for(path)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(DataError, match="ends at byte"):
        ingest(request, out, Monitor())


@pytest.mark.parametrize("step", [CutSpan, FinishSpan])
def test_a_lost_span_is_an_error(step, request_for, write_csv, out, monkeypatch):
    monkeypatch.setattr(step, "process", lambda self, element: iter(()))
    with pytest.raises(HeadwayError, match="lost all of its ranges"):
        ingest(request_for(write_csv(4)), out, Monitor(), runner=ONE)


def test_attempts_too_many_change_nothing(request_for, write_csv, tmp_path, monkeypatch, digests):
    request = request_for(write_csv(400), range_size=1024)
    want = ingest(request, tmp_path / "whole", Monitor(), runner=ONE)
    process, tries = ProcessRange.process, []

    def three_times(self, element):
        for _ in range(3):
            tries.append(element[0][1])
            yield from process(self, element)

    monkeypatch.setattr(ProcessRange, "process", three_times)
    assert ingest(request, tmp_path / "retried", Monitor(), runner=ONE) == want
    assert len(tries) == 3 * len({*tries})
    assert digests(tmp_path / "retried") == digests(tmp_path / "whole")


def test_a_bug_in_a_range_is_not_swallowed_and_stops_the_others(request_for, write_csv, out, monkeypatch):
    request = request_for(write_csv(400), range_size=1024)
    work, failed, begun = range_worker.ingest_range, threading.Event(), []

    def first_fails(request, piece, folder, tick):
        begun.append(piece.index)
        if len(begun) == 1:
            failed.set()
            raise RuntimeError("a bug")
        assert failed.wait(60)
        time.sleep(0.2)
        return work(request, piece, folder, tick)

    monkeypatch.setattr(range_worker, "ingest_range", first_fails)
    with pytest.raises(RuntimeError, match="a bug"):
        ingest(request, out, Monitor(), runner=TWO)
    assert list(out.iterdir()) == [] and len(begun) <= 2 < len(open_source(request.source).ranges(request.files))


def test_of_two_bad_ranges_the_lower_is_named_though_the_other_failed_first(request_for, write_csv, out, monkeypatch):
    request = request_for(write_csv(300), range_size=4096)
    assert len(open_source(request.source).ranges(request.files)) == 2
    begun = threading.Event()

    def bad(request, piece, folder, tick):
        if piece.index:
            assert begun.wait(60)
        else:
            begun.set()
            with contextlib.suppress(Stopped):
                for _ in range(1200):
                    time.sleep(0.05)
                    tick(0)
        raise DataError("is bad", where=f"range {piece.index}")

    monkeypatch.setattr(range_worker, "ingest_range", bad)
    with pytest.raises(DataError) as error:
        ingest(request, out, Monitor(), runner=TWO)
    assert error.value.where == "range 0"


def test_what_goes_wrong_in_putting_a_span_together_is_reported_as_it_is(request_for, write_csv, tmp_path, monkeypatch):
    def merge_ranges(request, done, merging):
        raise StoreError("the disk is full", where=str(merging.out))

    monkeypatch.setattr(stage, "merge_ranges", merge_ranges)
    with pytest.raises(StoreError, match="the disk is full"):
        ingest(request_for(write_csv(40)), tmp_path / "out", Monitor(), runner=TWO)


def test_ranges_are_dealt_evenly(request_for, write_csv, tmp_path, monkeypatch):
    request = request_for(write_csv(2000), range_size=1024)
    work, threads, both = range_worker.ingest_range, {}, threading.Barrier(2)

    def counted(request, piece, folder, tick):
        mine = threads.setdefault(threading.current_thread(), [])
        if not mine:
            both.wait(60)  # or the first worker could be done before the second begins
        mine.append(piece.end - piece.start)
        return work(request, piece, folder, tick)

    monkeypatch.setattr(range_worker, "ingest_range", counted)
    ingest(request, tmp_path / "out", Monitor(), runner=TWO)
    first, second = (sum(sizes) for sizes in threads.values())
    assert abs(first - second) <= 1024 * 1.5


@pytest.mark.parametrize("mode", ["in_memory", "multi_threading"])
def test_the_pipeline_on_beams_own_local_runner_writes_the_same(mode, request_for, write_csv, tmp_path, digests):
    request = request_for(write_csv(300), range_size=4096)
    want = ingest(request, tmp_path / "threads", Monitor(), runner=TWO)
    other = RunnerConfig(workers=2, options={"direct_running_mode": mode})
    assert ingest(request, tmp_path / "beam", Monitor(), runner=other) == want
    assert digests(tmp_path / "beam") == digests(tmp_path / "threads")


@pytest.fixture(scope="module")
def apart(s3):
    """Its workers know the endpoint of the bucket that one test writes to."""
    with workers_apart() as runner:
        yield runner


def test_workers_in_other_processes_write_the_same_into_a_folder_and_a_bucket(
    apart, request_for, write_csv, tmp_path, bucket_name, digests
):
    paths = [write_csv(100, f"{name}/{number}.csv", 100 * number) for name in "ab" for number in range(3)]
    for path in paths:
        path.write_text(path.read_text() + "x,1,s,1\n")  # is rejected
    requests = [request_for(path.parent) for path in paths[::3]]
    folder, stored = tmp_path / "processes", Bucket(f"s3://{bucket_name}/b")
    outs, places = [tmp_path / "a", tmp_path / "b"], [str(folder), stored.url]
    want = ingest_many(requests, outs, Monitor(), runner=TWO)
    assert ingest_many(requests, [tmp_path / "none"] * 2, Monitor(), runner=apart, places=places) == want
    assert not (tmp_path / "none").exists(), "nothing goes through the driver's disk"
    assert digests(folder) == digests(tmp_path / "a")
    found = {name: hashlib.sha256(stored.read(name)).hexdigest() for name in stored.listing()}
    assert found == digests(tmp_path / "b")


def test_errors_come_back_from_other_processes(apart, request_for, write_csv, out, monkeypatch):
    with pytest.raises(DataError, match="expression 's > 1'"):
        ingest(request_for(write_csv(300), range_size=1024, where="s > 1"), out, Monitor(), runner=apart)
    assert list(out.iterdir()) == []
    monkeypatch.setattr(pipeline, "_versions", lambda: "Headway 0.0.1 on Python 3.1")
    with pytest.raises(ConfigError, match=r"a worker runs Headway .*, and the driver Headway 0.0.1 on Python 3.1"):
        ingest(request_for(write_csv(30)), out, Monitor(), runner=apart)


def test_nothing_stays_behind(request_for, write_csv, out, tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    before = pa.cpu_count(), sys.getswitchinterval(), logging.getLogger("apache_beam").level
    threads = []
    for _ in range(3):
        ingest(request_for(write_csv(30)), out, Monitor(), runner=TWO)
        threads.append(threading.active_count())
    assert list(scratch.iterdir()) == []
    assert (pa.cpu_count(), sys.getswitchinterval(), logging.getLogger("apache_beam").level) == before
    assert threads[2] <= threads[0] + 2


GOLDEN = Path(__file__).parent / "golden" / "ingest.json"
"""SHA-256 of each file below, by the stage's VERSION: other bytes mean raising VERSION, then `make golden`."""


@pytest.mark.long
def test_golden_bytes(request_for, write_csv, out, digests):
    ingest(request_for(write_csv(200), range_size=1024), out, Monitor(), runner=TWO)
    # Arrow files aside: their bytes are up to the version of Arrow
    found = {name: digest for name, digest in digests(out).items() if name.endswith((".tfrecord", ".json", ".u64"))}
    if os.environ.get("HEADWAY_RENEW_GOLDEN"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(json.dumps({"version": stage.VERSION, "files": found}, indent=1) + "\n")
    assert {"version": stage.VERSION, "files": found} == json.loads(GOLDEN.read_text())
