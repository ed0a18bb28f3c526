"""Batch prediction against a model of our own, without TensorFlow: order, sources, counts, restart, refusals."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from beam_jobs.predict import request as request_module
from beam_jobs.predict.part_writer import json_lines
from beam_jobs.predict.request import CopiedColumn, PredictRequest
from beam_jobs.predict.stage import MANIFEST, predict
from beam_jobs.runners.config import RunnerConfig
from headway.errors import ConfigError, DataError, Locked, StoreError
from headway.monitor import Monitor
from headway.schema.columns import Column
from headway.schema.parse_rules import Parse
from headway.sources.base import Range
from headway.sources.config import SourceConfig
from headway.sources.spans import ONE_SPAN, files
from tests.small_ranges import small_ranges
from tests.waiting import until

COLUMNS = (
    Column(name="x", type="float32", nullable=False),
    Column(name="s", type="bytes", nullable=True, encoding="dictionary"),
)
ID = Column(name="id", type="int64", nullable=True)


def doubled(model, digest):
    """The loader of these tests: twice x, and one more where s is present."""
    folder = Path(model)

    def call(batch):
        if (folder / "slow").exists():
            time.sleep(0.3)
        with (folder / f"calls.{os.getpid()}").open("a") as file:
            file.write("call\n")
        known = batch.column("s").is_valid().cast(pa.float32())
        value = pc.add(pc.multiply(batch.column("x"), pa.scalar(2.0, pa.float32())), known)
        return pa.RecordBatch.from_arrays([value], names=["prediction"])

    return call


@pytest.fixture(autouse=True)
def short_ranges(usual_ranges):
    small_ranges(1024, "csv", "jsonl")
    small_ranges(100, "parquet")


def _request(path, model, *, format="parquet", write="parquet", passthrough=("id",), **changes):
    source = SourceConfig(format=format, path=str(path))
    typed = format == "parquet"
    return PredictRequest(
        files=files(source, ONE_SPAN),
        source=source,
        columns=COLUMNS,
        model=str(model),
        digest="1",
        loader=f"{__name__}:doubled",
        passthrough=tuple(CopiedColumn(name=name, column=None if typed else ID) for name in passthrough),
        write=write,
        **changes,
    )


def _rows(n, bad=()):
    s = [None if i % 3 == 0 else f"s{i % 5}" for i in range(n)]
    x = [None if i in bad else i * 0.5 for i in range(n)]
    return pa.table({"id": np.arange(n) + 1000, "x": x, "s": s})


@pytest.fixture
def data(tmp_path):
    """Two files of several ranges each; rows 7 and 250 of the first cannot be predicted."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name, rows, bad in (("a", 450, (7, 250)), ("b", 330, ())):
        pq.write_table(_rows(rows, bad), folder / f"{name}.parquet", row_group_size=100)
    return folder


def _bytes(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _found(out, write="parquet"):
    parts = sorted(out.glob(f"part-*.{write}"))
    if write == "jsonl":
        return [json.loads(line) for path in parts for line in path.read_text().splitlines()]
    return [row for path in parts for row in pq.read_table(path).to_pylist()]


def _check(rows):
    for name, count, bad in (("a", 450, (7, 250)), ("b", 330, ())):
        mine = [(r["source_row"], r["id"], r["prediction"]) for r in rows if Path(r["source_file"]).stem == name]
        assert mine == [(i + 1, i + 1000, i + (i % 3 != 0)) for i in range(count) if i not in bad]
    assert [Path(r["source_file"]).stem for r in rows] == ["a"] * 448 + ["b"] * 330


@pytest.mark.parametrize("write", ["parquet", "jsonl"])
@pytest.mark.parametrize("format", ["parquet", "csv", "jsonl"])
def test_rows_come_out_in_order_with_their_source_and_bad_ones_are_quarantined(tmp_path, data, model, format, write):
    import pyarrow.csv as pacsv

    if format != "parquet":
        for path in sorted(data.glob("*.parquet")):
            table = pq.read_table(path)
            if format == "csv":
                pacsv.write_csv(table, path.with_suffix(".csv"))
            else:
                lines = "".join(json.dumps(row) + "\n" for row in table.to_pylist())
                path.with_suffix(".jsonl").write_text(lines)
    result = predict(
        _request(data, model, format=format, write=write), tmp_path / "out", Monitor(), runner=RunnerConfig(workers=2)
    )
    assert len(result["parts"]) > 4
    assert result["counts"] == {"read": 780, "predicted": 778, "quarantined": 2}
    _check(_found(tmp_path / "out", write))
    bad = pq.read_table(tmp_path / "out" / "quarantine.parquet").to_pylist()
    assert [(Path(b["file"]).stem, b["row"], b["column"]) for b in bad] == [("a", 8, "x"), ("a", 251, "x")]
    assert not (tmp_path / "out" / ".ranges").exists()


@pytest.mark.parametrize("write", ["parquet", "jsonl"])
def test_the_bytes_do_not_hang_on_the_number_of_workers(tmp_path, data, model, write):
    for workers in (1, 3):
        out = tmp_path / str(workers)
        predict(_request(data, model, write=write), out, Monitor(), runner=RunnerConfig(workers=workers))
    assert _bytes(tmp_path / "1") == _bytes(tmp_path / "3")


def test_nothing_is_done_twice_and_what_changed_is_done_again(tmp_path, data, model):
    out = tmp_path / "out"
    first = predict(_request(data, model), out, Monitor())
    before = _bytes(out)
    calls = sum(path.read_text().count("call") for path in model.glob("calls.*"))
    again = predict(_request(data, model), out, Monitor())
    assert not first["cached"] and again["cached"] and _bytes(out) == before
    assert sum(path.read_text().count("call") for path in model.glob("calls.*")) == calls

    pq.write_table(_rows(200), data / "b.parquet", row_group_size=100)
    changed = predict(_request(data, model), out, Monitor())
    assert not changed["cached"] and changed["counts"]["read"] == 650 and len(_found(out)) == 648
    (out / changed["parts"][0]["file"]).unlink()
    assert not predict(_request(data, model), out, Monitor())["cached"] and len(_found(out)) == 648


KILLED = """
    import sys
    from pathlib import Path
    from tests.beam_jobs.predict.test_stage import _request
    from beam_jobs.predict.stage import predict
    from beam_jobs.runners.config import RunnerConfig
    from headway.monitor import Monitor
    from tests.small_ranges import small_ranges
    small_ranges(100, "parquet")
    small_ranges(1024, "csv")
    data, model, out = map(Path, sys.argv[1:])
    predict(_request(data, model), out, Monitor(), runner=RunnerConfig(workers=1))
"""


def test_a_killed_job_goes_on_with_the_ranges_that_were_not_finished(tmp_path, data, model, monkeypatch):
    whole, out = tmp_path / "whole", tmp_path / "out"
    predict(_request(data, model), whole, Monitor())
    (model / "slow").touch()
    root = Path(__file__).parents[3]
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(KILLED), data, model, out], cwd=root, start_new_session=True
    )
    try:
        until(lambda: len([*(out / ".ranges").glob("?????-*")]) >= 2 or process.poll() is not None)
        assert process.poll() is None
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not (out / MANIFEST).exists() and not list(out.glob("part-*"))
    (model / "slow").unlink()
    result = predict(_request(data, model), out, Monitor())
    assert 2 <= result["kept"] < len(result["parts"])
    assert _bytes(out) == _bytes(whole)


def test_a_key_costs_the_same_whatever_the_number_of_files(tmp_path, data, model, monkeypatch):
    one = _request(data, model)
    file = one.files[0]
    many = tuple(file.model_copy(update={"path": f"/in/{i}.csv", "crc32c": f"{i:08x}"}) for i in range(300))
    asked = []
    names_of = request_module.file_names
    monkeypatch.setattr(request_module, "file_names", lambda files: asked.append(files) or names_of(files))
    request = PredictRequest(**dict(one) | {"files": many})
    pieces = [Range(i, f.path, i, 0, 10) for i, f in enumerate(many)]
    keys = [request.key(piece) for piece in pieces]
    assert len(set(keys)) == 300 and len(asked) == 1
    # a range's key hangs on its own file alone, and a run of small files on all of its files
    other = (*many[:7], many[7].model_copy(update={"crc32c": "x"}), *many[8:])
    changed = PredictRequest(**dict(one) | {"files": other})
    assert [i for i, piece in enumerate(pieces) if changed.key(piece) != keys[i]] == [7]
    runs = [Range(i, many[i * 10].path, i * 10, i * 10, i * 10 + 10, row_per_file=True) for i in range(30)]
    assert [i for i, piece in enumerate(runs) if changed.key(piece) != request.key(piece)] == [0]


def test_two_processes_do_not_predict_into_one_folder(tmp_path, data, model):
    out = tmp_path / "out"
    out.mkdir()
    folder = os.open(out, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)  # as another process would hold it: a lock of its own open folder
    try:
        with pytest.raises(Locked, match="another process") as caught:
            predict(_request(data / "*.parquet", model), out, Monitor())
        assert caught.value.where == str(out)
    finally:
        os.close(folder)
    assert predict(_request(data / "*.parquet", model), out, Monitor())["parts"]


def test_too_many_rejected_rows_are_an_error_and_leave_no_output(tmp_path, data, model):
    out = tmp_path / "out"
    said = r"2 of 780 rows \(0.26%\).* the first is .*a.parquet row 8: column 'x': null is null"
    with pytest.raises(DataError, match=said):
        predict(_request(data, model), out, Monitor(), max_quarantined=0.001)
    assert not (out / MANIFEST).exists() and pq.read_table(out / "quarantine.parquet").num_rows == 2
    assert predict(_request(data, model), out, Monitor(), max_quarantined=0.01)["kept"] > 4


@pytest.mark.parametrize(("parse", "good", "bad"), [(None, "2.5", "2,5"), ("decimal_comma", "2,5", None)])
def test_numbers_have_the_decimal_sign_of_the_files_that_the_model_was_trained_on(tmp_path, model, parse, good, bad):
    def predicted(text):
        (tmp_path / "a.csv").write_text(f'id,x,s\n1,"{text}",\n')
        request = _request(tmp_path / "a.csv", model, format="csv")
        rule = None if parse is None else Parse.model_validate(parse)
        columns = (COLUMNS[0].model_copy(update={"parse": rule}), *COLUMNS[1:])
        predict(request.model_copy(update={"columns": columns}), tmp_path / f"out {text}", Monitor())
        return [row["prediction"] for row in _found(tmp_path / f"out {text}")]

    assert predicted(good) == [5.0]
    if bad is not None:
        with pytest.raises(DataError, match="row 1: column 'x': '2,5' is not a number") as info:
            predicted(bad)
        assert "write numbers as the model's training files do, 2.5" in info.value.fix


def test_what_is_copied_is_not_rounded(tmp_path, model):
    """Neither an input of the model nor another column."""
    (tmp_path / "a.csv").write_text("id,x,s\n100000499690645,100000499690645,\n0.1,1600000001.5,a\n")
    request = _request(tmp_path / "a.csv", model, format="csv")
    number = Column(name="id", type="float32", nullable=True)
    passed = (
        CopiedColumn(name="id", column=number),
        CopiedColumn(name="x", column=COLUMNS[0]),
        CopiedColumn(name="s", column=COLUMNS[1]),
    )
    predict(request.model_copy(update={"passthrough": passed}), tmp_path / "out", Monitor())
    found = [(row["id"], row["x"], row["s"]) for row in _found(tmp_path / "out")]
    assert found == [(100000499690645.0, 100000499690645.0, None), (0.1, 1600000001.5, "a")]


def test_mistakes_are_named(tmp_path, data, model):
    with pytest.raises(ConfigError, match="no column 'idd'"):
        predict(_request(data, model, passthrough=("idd",)), tmp_path / "out", Monitor())
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.txt").write_text("mine")
    with pytest.raises(StoreError, match="not empty"):
        predict(_request(data, model), tmp_path / "foreign", Monitor())
    assert (tmp_path / "foreign" / "thesis.txt").read_text() == "mine"
    pq.write_table(_rows(10).drop_columns(["x"]), data / "c.parquet")
    with pytest.raises(DataError, match="no column 'x', which the model needs"):
        predict(_request(data, model), tmp_path / "out", Monitor())


def test_json_lines_say_what_the_columns_hold():
    batch = pa.RecordBatch.from_pydict(
        {
            'a "name"': pa.array([1, None, -3]),
            "text": pa.array(['q"\n', None, "ü"]),
            "number": pa.array([0.1, float("nan"), None], pa.float32()),
            "truth": pa.array([True, None, False]),
            "list": pa.array([[1.5], None, []], pa.list_(pa.float32())),
            "pair": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)),
            "texts": pa.array([["a", None], [], ["b"]]),
        }
    )
    lines = [json.loads(line) for line in bytes(json_lines(batch)).decode().splitlines()]
    wanted = batch.to_pylist()
    wanted[0]["number"], wanted[1]["number"] = 0.1, None
    assert lines == wanted
    assert [json.loads(line) for line in bytes(json_lines(batch.slice(1, 2))).decode().splitlines()] == wanted[1:]
