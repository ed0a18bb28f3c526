"""One range, without a runner: what becomes of each row, against the same rules written out row by row."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_jobs.ingest.range_worker import SHARD, STATISTICS, ingest_range
from headway.errors import DataError
from headway.records.decode import decode
from headway.records.encode import unpacked
from headway.records.tfrecord import read_records
from headway.schema.columns import Column
from headway.schema.pbtxt import from_tags
from headway.sources.spans import open_source
from headway.statistics.split_statistics import SplitStatistics
from headway.tabular import quarantine
from headway.tabular.splits import SplitConfig


def run(request, folder, tick=lambda rows: None):
    """(facts, rows of each split, quarantine as rows) of the first range."""
    request.check()
    folder.mkdir(parents=True, exist_ok=True)
    facts = ingest_range(request, open_source(request.source).ranges(request.files)[0], folder, tick)
    splits = {}
    for split, records in facts["records"].items():
        found = list(read_records(folder / split / SHARD))
        batches = [decode(record, request.columns()) for record in found]
        assert [batch.num_rows for batch in batches] == unpacked(records).tolist()
        splits[split] = [row for batch in batches for row in batch.to_pylist()]
    return facts, splits, quarantine.read(folder).to_pylist()


def test_rows_land_where_they_belong(request_for, tmp_path):
    path = tmp_path / "raw.csv"
    path.write_text(
        "id,x,s,y\n"
        "1,0.5,a,1\n"  # good
        "2,oops,b,1\n"  # x is no number
        "3,1.5,c\n"  # a column short
        "4,2.5,,\n"  # no label: filtered
        ",3.5,d,1\n"  # id may not be null
        "6,9.5,e,1\n"  # where is false
        "7,,f,-1\n"  # where is null
        "8,0.25,NA,-1\n"  # good, with a null string
    )
    facts, splits, rejected = run(request_for(path, where="x < 5", split=SplitConfig(mode="time")), tmp_path / "out")
    assert facts == {"rows": 8, "filtered": 3, "quarantined": 3, "records": {"all": [[2, 1]]}}
    assert splits["all"] == [{"id": 1, "x": 0.5, "s": b"a", "label": 1}, {"id": 8, "x": 0.25, "s": None, "label": 0}]
    wanted = [(1, "x", "oops"), (2, None, "3,1.5,c"), (4, "id", None)]
    assert [(row["row"], row["column"], row["value"]) for row in rejected] == wanted
    statistics = SplitStatistics.load(tmp_path / "out" / "all" / STATISTICS)
    assert statistics.rows == 2
    assert statistics.columns["x"].mean == 0.375


def test_a_missing_label_can_be_quarantined(request_for, tmp_path):
    path = tmp_path / "raw.csv"
    path.write_text("id,x,s,y\n1,1,a,1\n2,1,a,\n3,1,a,NA\n")
    label = {"expression": "y > 0", "missing": "quarantine"}
    facts, _, rejected = run(request_for(path, label=label), tmp_path / "out")
    assert (facts["filtered"], facts["quarantined"]) == (0, 2)
    wanted = [(1, "label", "the label is missing"), (2, "label", "the label is missing")]
    assert [(row["row"], row["column"], row["reason"]) for row in rejected] == wanted


def test_a_filter_sees_parquet_types_as_they_are(request_for, tmp_path):
    path = tmp_path / "raw.parquet"
    days = pa.array(["2013-01-01", "2013-06-01", None], pa.string()).cast(pa.date32())
    pq.write_table(pa.table({"id": [1, 2, 3], "day": days, "live": [True, True, False], "y": [1.0, 2.0, 3.0]}), path)
    columns = (
        Column(name="id", type="int64", nullable=False),
        Column(name="day", type="int64", nullable=True),
        Column(name="live", type="int64", nullable=True),
        Column(name="y", type="float32", nullable=True),
    )
    request = request_for(path, where="live", columns=columns, stored=("id", "day"), label="y")
    facts, splits, _ = run(request, tmp_path / "out")
    assert facts["filtered"] == 1
    assert [row["day"] for row in splits["train"] + splits.get("eval", [])] == [15706, 15857]


def test_text_columns_of_parquet_that_are_numbers_to_us_filter_as_numbers(request_for, tmp_path):
    path = tmp_path / "raw.parquet"
    pq.write_table(pa.table({"id": [1, 2, 3], "x": ["1", "oops", "9"], "s": ["a"] * 3, "y": [1.0] * 3}), path)
    facts, _, rejected = run(request_for(path, where="x < 5"), tmp_path / "out")
    assert (facts["filtered"], facts["quarantined"]) == (1, 1)
    assert rejected[0]["value"] == "oops"


@pytest.mark.parametrize("rows", [1, 7, 64])
def test_records_have_the_rows_asked_for(request_for, write_csv, tmp_path, rows):
    request = request_for(write_csv(100), rows=rows, split=SplitConfig(mode="time"))
    facts, splits, _ = run(request, tmp_path / "out")
    sizes = unpacked(facts["records"]["all"]).tolist()
    assert sizes == [rows] * (100 // rows) + ([100 % rows] if 100 % rows else [])
    assert [row["id"] for row in splits["all"]] == list(range(100))


def test_tick_hears_of_each_batch_and_may_stop(request_for, write_csv, tmp_path):
    heard = []
    run(request_for(write_csv(40)), tmp_path / "out", heard.append)
    assert heard == [40]

    def stop(rows):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(request_for(write_csv(40)), tmp_path / "other", stop)


def test_errors_of_reading_and_of_writing_differ(request_for, write_csv, tmp_path):
    path = write_csv(5)
    request = request_for(path)
    piece = open_source(request.source).ranges(request.files)[0]
    with pytest.raises(FileNotFoundError, match="absent"):
        ingest_range(request, piece, tmp_path / "absent", lambda rows: None)
    path.unlink()
    with pytest.raises(DataError, match=r"raw\.csv: there is no such file"):
        ingest_range(request, piece, tmp_path, lambda rows: None)


FIELD = st.sampled_from(["1", "-2", "3.5", "", "NA", "oops", "1e99", "0"])
LINE = st.one_of(
    st.tuples(st.sampled_from(["1", "2", "3", "", "x"]), FIELD, st.sampled_from(["a", "b", ""]), FIELD).map(list),
    st.just(["1", "2"]),
)


def expected(lines, missing):
    """Per line: 'written', 'filtered' or 'quarantined'; the documented rules one row at a time."""

    def number(text):
        if text in ("", "NA"):
            return None
        value = float(text)  # ValueError: not a number
        if not np.isfinite(np.float32(value)):
            raise ValueError
        return value

    for line in lines:
        if len(line) != 4:
            yield "quarantined"
            continue
        try:
            x = number(line[1])
            if x is None or not x > 0:
                yield "filtered"
                continue
            int(line[0])
            y = number(line[3])
        except (ValueError, OverflowError):
            yield "quarantined"
            continue
        yield "written" if y is not None else {"filter": "filtered", "quarantine": "quarantined"}[missing]


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(LINE, min_size=1, max_size=30), missing=st.sampled_from(["filter", "quarantine"]))
@pytest.mark.filterwarnings("ignore:overflow")
def test_every_row_is_written_filtered_or_quarantined(request_for, tmp_path_factory, lines, missing):
    folder = tmp_path_factory.mktemp("case")
    path = folder / "raw.csv"
    path.write_text("id,x,s,y\n" + "".join(",".join(line) + "\n" for line in lines))
    request = request_for(path, where="x > 0", label={"expression": "y > 0", "missing": missing}, rows=4)
    facts, splits, rejected = run(request, folder / "out")
    want = list(expected(lines, missing))
    written = sum(len(rows) for rows in splits.values())
    assert facts["rows"] == len(lines) == written + facts["filtered"] + facts["quarantined"]
    assert facts["filtered"] == want.count("filtered")
    assert [row["row"] for row in rejected] == [i for i, what in enumerate(want) if what == "quarantined"]


@pytest.mark.parametrize(
    ("setting", "text"), [("where", "id * 4 > 0 and x > 0"), ("label", "id * 4"), ("label", "abs(id * 4) > 1")]
)
def test_an_integer_beyond_int64_names_file_and_row(request_for, tmp_path, setting, text):
    path = tmp_path / "raw.csv"
    path.write_text("id,x,s,y\n" + "1,oops,a,1\n1,1,a,1\n" * 200 + f"{2**62},1,a,1\n" + "1,1,a,1\n" * 9)
    request = request_for(path, range_size=1024, **{setting: text})
    pieces = open_source(request.source).ranges(request.files)
    assert len(pieces) > 2
    with pytest.raises(DataError) as error:
        for piece in pieces:
            (folder := tmp_path / str(piece.index)).mkdir()
            ingest_range(request, piece, folder, lambda rows: None)
    assert error.value.where == f"{path} row 401: expression {text!r}"
    assert error.value.problem == "id * 4 does not fit int64 (id = 4611686018427387904)"


def test_columns_that_only_the_split_reads_cost_no_row_and_may_be_missing(request_for, tmp_path):
    """Rows keep their split when a column of the hash is not stored; what does not fit or is gone: test_split_columns.py."""
    header, lines = "id,x,s,y", [f"{i},{i / 4},s{i % 3},{i % 2}" for i in range(300)]
    path = tmp_path / "raw.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    hashed = from_tags(["headway.split=FLOAT x", "headway.split=BYTES s"], where="s")

    columns = request_for(path).read

    def ids(name, keep=columns, stored=("id",), **changes):
        request = request_for(path, columns=keep, stored=stored, split=SplitConfig(eval=0.4), **changes)
        facts, splits, _ = run(request.model_copy(update={"hashed": hashed}), tmp_path / name)
        assert (facts["quarantined"], facts["filtered"]) == (0, 150 if changes else 0)
        return {split: [row["id"] for row in rows] for split, rows in splits.items()}

    few = tuple(column for column in columns if column.name in ("id", "y"))
    every = ids("every", stored=("id", "x", "s"))
    assert ids("few", few) == every and set(every) == {"train", "eval"} and 80 < len(every["eval"]) < 160
    half = ids("half", few, where="id < 150")
    assert half == {split: [i for i in of if i < 150] for split, of in every.items()}
