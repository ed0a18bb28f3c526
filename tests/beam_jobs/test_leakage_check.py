"""The proof of the splits on real artifacts: it passes what is apart, and names what leaks with its rows."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_jobs import leakage_check
from beam_jobs.ingest.request import NOTES
from beam_jobs.ingest.stage import ingest, ingest_many
from beam_jobs.leakage_check import FILE, prove
from beam_jobs.runners.config import RunnerConfig
from beam_jobs.splits_request import IngestedSpan, SplitsRequest
from headway.errors import DataError
from headway.leakage.key_index import read
from headway.monitor import Monitor
from headway.schema.columns import Column
from headway.sources.config import SourceConfig
from headway.tabular.splits import SplitConfig, window_splits
from tests.beam_jobs.conftest import request_of
from tests.small_ranges import small_ranges

KEY = Column(name="k", type="bytes", nullable=True, role="key")
TIME = Column(name="t", type="int64", nullable=True, role="time", temporal="timestamp")
COLUMNS = (Column(name="x", type="float32", nullable=True), Column(name="y", type="float32", nullable=True))


@pytest.fixture
def window(tmp_path):
    """window(split, span=[line, ...], ...) -> the stage's result; lines are of a CSV with the columns k,t,x,y."""

    def run(split, *, configs=None, where=None, columns=(KEY, TIME), range_size=None, parts=None, **spans):
        outputs = []
        for span, lines in spans.items():
            found = lines if isinstance(lines, dict) else {f"{span}.csv": lines}
            (tmp_path / "raw" / span).mkdir(parents=True, exist_ok=True)
            for name, content in found.items():
                (tmp_path / "raw" / span / name).write_text("\n".join(["k,t,x,y", *content]) + "\n")
            name = "{span}/{split}.csv" if split.mode == "path" else "{span}"
            source = SourceConfig(format="csv", path=str(tmp_path / "raw" / name), where=where)
            if range_size is not None:
                small_ranges(range_size, "csv")
            given = (configs or {}).get(span, split)
            request = request_of(source, (*columns, *COLUMNS), ("x",), "y > 0", given, span=span)
            out = tmp_path / "out" / span
            out.mkdir(parents=True)
            outputs.append(IngestedSpan(request=request, notes=out / NOTES))
        folders = [tmp_path / "out" / span for span in spans]
        ingest_many([output.request for output in outputs], folders, Monitor(), runner=RunnerConfig(workers=1))
        parts = parts or {n: tuple(p) for n, p in window_splits(split, list(spans)).items() if p}
        run.request = SplitsRequest(split=split, spans=tuple(outputs), parts=parts)
        result = prove(run.request, tmp_path, Monitor())
        assert json.loads((tmp_path / FILE).read_text()) == result
        return result

    return run


def rows(keys, day="2013-01-01"):
    return [f"{key},{day},{i},{i % 2}" for i, key in enumerate(keys)]


def apart(result):
    """What is not about rows that are alike: most tests here have few of them, again and again."""
    return [anomaly for anomaly in result["anomalies"] if anomaly["kind"] not in ("few keys", "row overlap")]


def only(result):
    [anomaly] = apart(result)
    assert anomaly["fix"]
    return anomaly["severity"], anomaly["kind"], anomaly["where"], anomaly["message"]


# --- keys


def test_keys_that_are_apart_are_proven_to_be(window):
    split = SplitConfig(key="k", eval=0.3, test=0.2)
    keys = [f"c{i % 50}" for i in range(300)]
    result = window(split, a=rows(keys), b=rows(keys[:30]))
    assert apart(result) == []
    counts = {name: facts["keys"] for name, facts in result["splits"].items()}
    assert sum(counts.values()) == 50 and set(counts) == {"train", "eval", "test"}
    [says] = result["says"]
    [few] = result["anomalies"]
    assert few["kind"] == "few keys" and "330 rows have only 50 distinct values of k, and eval has" in few["message"]
    assert "no k is in two splits" in says and f"{counts['train']} of train" in says and "2 spans" in says


def test_a_key_written_in_two_ways_leaks_through_the_hash_and_is_found(window):
    """The number that one file has as 7 and another as 7.0: two texts, so two splits, and one customer."""
    split = SplitConfig(key="k", eval=0.4)
    result = window(split, a=rows(range(40)), b=rows([f"{i}.0" for i in range(40)]))
    severity, kind, where, message = only(result)
    assert (severity, kind, where) == ("error", "key overlap", "train, eval")
    leaked = int(message.split()[0])
    assert 10 < leaked < 30  # 40 customers, and 0.4 * 0.6 * 2 of them in expectation
    train, test = result["splits"]["train"]["keys"], result["splits"]["eval"]["keys"]
    assert train + test == 40 + leaked
    assert message.count("row ") == 10 and "a a.csv row" in message and "b b.csv row" in message
    assert ".0'" in message and "as k '" in message
    assert "the same way" in result["anomalies"][0]["fix"] and result["says"] == []


@pytest.mark.parametrize("gone", ["a", "b"])
def test_a_span_whose_files_are_gone_leaves_the_rows_of_the_others_named(window, tmp_path, gone):
    split, lines = SplitConfig(key="k", eval=0.4), []
    window(split, a=rows(range(40)), b=rows([f"{i}.0" for i in range(40)]))
    (tmp_path / "raw" / gone / f"{gone}.csv").unlink()
    monitor = Monitor()
    monitor.log = lines.append
    _, kind, _, message = only(prove(window.request, tmp_path, monitor))
    there = "b" if gone == "a" else "a"
    assert kind == "key overlap" and message.count(f"{there} {there}.csv row") == 5 and f"{gone}.csv" not in message
    assert lines[0] == "reading the rows of 2 spans again" and len(lines) == 2
    assert f"{gone}.csv: there is no such file" in lines[1]
    assert {path.name for path in tmp_path.iterdir()} == {"raw", "out", FILE}


def test_the_first_row_of_a_key_in_each_split_is_named_and_the_files_are_read_no_further(window, tmp_path, monkeypatch):
    part = Column(name="t", type="bytes", nullable=False, role="key")
    split = SplitConfig(mode="column", column="t", key="k")
    content = [f"{i % 1000},{'eval' if i in (90, 93) else 'train'},{i},1" for i in range(3000)]
    window(split, columns=(KEY, part), a=content, range_size=4096)
    added, add = [], leakage_check._Finder.add
    monkeypatch.setattr(leakage_check._Finder, "add", lambda self, chunk: (add(self, chunk), added.append(self.rows)))
    _, kind, _, message = only(prove(window.request, tmp_path, Monitor()))
    assert kind == "key overlap" and message.startswith("2 keys (k) are in train and in eval: ")
    assert "k '90' (eval: a a.csv row 91; train: a a.csv row 1,091)" in message
    assert "k '93' (eval: a a.csv row 94; train: a a.csv row 1,094)" in message
    assert len(added) * 2 < len(window.request.spans[0].request.ranges())


def test_the_rows_named_are_those_of_the_file(window):
    """Numbers of several ranges of several files, among rows that were filtered and rejected."""
    part = Column(name="t", type="bytes", nullable=False, role="key")
    split = SplitConfig(mode="column", column="t", key="k", values={"1": "train", "2": "eval"})
    first = [f"c{i},1,{i},1" for i in range(300)]
    first[3], first[5] = "c3,1,oops,1", "c5,1,-1,1"
    second = [f"d{i},2,{i},1" for i in range(300)]
    second[241] = "c257,2,1,1"
    second[242] = "c5,2,1,1"  # its train row is filtered, so it leaks nothing
    content = {"a.csv": first, "b.csv": second}
    result = window(split, a=content, where="x >= 0", columns=(KEY, part), range_size=1024)
    _, kind, _, message = only(result)
    assert kind == "key overlap"
    assert message == "1 key (k) is in train and in eval: k 'c257' (train: a a.csv row 258; eval: a b.csv row 242)"


def test_a_column_that_splits_a_key_is_an_error_and_without_a_key_it_is_reported(window):
    part = Column(name="t", type="bytes", nullable=False, role="key")
    content = ["7,train,1,1", "8,train,1,0", "7,eval,1,1", "9,test,2,1", "8,test,1,1", ",train,1,0"]
    split = SplitConfig(mode="column", column="t", key="k")
    result = window(split, columns=(KEY, part), a=content)
    kinds = {(a["kind"], a["where"]) for a in apart(result)}
    wanted = {("key overlap", "train, eval"), ("key overlap", "train, test"), ("missing key", "train, eval, test")}
    assert kinds == wanted
    assert "1 of 6 rows have no k" in apart(result)[-1]["message"]


def test_a_split_column_without_a_key_is_reported_as_unproved(window):
    part = Column(name="t", type="bytes", nullable=False, role="key")
    result = window(SplitConfig(mode="column", column="t"), columns=(KEY, part), a=["7,train,1,1", "7,eval,1,1"])
    assert apart(result) == [] and "split.key is not set" in result["says"][0]


def test_spans_split_by_another_share_leak(window):
    split = SplitConfig(key="k", eval=0.4)
    result = window(split, configs={"b": SplitConfig(key="k", eval=0.9)}, a=rows(range(30)), b=rows(range(30)))
    _, kind, _, message = only(result)
    assert kind == "key overlap" and "different rules" in result["anomalies"][0]["fix"]
    assert message.count("; eval: b b.csv") + message.count("eval: a a.csv") == 5


def test_rows_without_a_key_are_counted_and_compared_with_nothing(window):
    result = window(SplitConfig(key="k", eval=0.4), a=rows([*range(30), "", ""]), b=rows(["", *range(30)]))
    severity, kind, _, message = only(result)
    assert (severity, kind) == ("warning", "missing key")
    assert "3 of 63 rows have no k" in message and "one split together" in message


# --- without a key


def test_without_a_key_the_hashes_of_rows_do_not_overlap(window):
    result = window(SplitConfig(eval=0.3, test=0.1), a=rows(range(80)), b=rows(range(80)))
    assert apart(result) == [] and "equal rows are in one split" in result["says"][0]


def test_without_a_key_spans_that_were_split_differently_prove_nothing(window):
    result = window(SplitConfig(eval=0.3), configs={"b": SplitConfig(eval=0.5)}, a=rows(range(80)), b=rows(range(80)))
    severity, kind, where, message = only(result)
    assert (severity, kind, where) == ("error", "split proof", "a, b") and "eval: " in message


def test_without_a_key_a_row_on_the_wrong_side_is_an_error(window, tmp_path):
    """An artifact whose shards were mixed up: its hashes say so, whatever its config does."""
    window(SplitConfig(eval=0.3), a=rows(range(80)))
    path = tmp_path / "out" / "a" / NOTES / "notes.json"
    notes = json.loads(path.read_text())
    notes["splits"]["eval"]["hashes"][1] = notes["splits"]["train"]["hashes"][0]
    path.write_text(json.dumps(notes))
    assert only(prove(window.request, tmp_path, Monitor()))[:3] == ("error", "key overlap", "train, eval")


# --- by time


def test_times_in_order_are_proven_to_be(window):
    split = SplitConfig(mode="time", test_spans=1)
    days = {f"s{i}": [f"k,2013-01-{i + 1:02d}T{h:02d}:00:00,{h},1" for h in (0, 23)] for i in range(4)}
    result = window(split, **days)
    assert result["anomalies"] == []
    assert result["splits"]["train"]["last_time"] == "2013-01-02 23:00:00"
    says, *_ = result["says"]
    assert says == (
        "by t: train from 2013-01-01 to 2013-01-02 23:00:00, then eval from 2013-01-03 to 2013-01-03 23:00:00, then "
        "test from 2013-01-04 to 2013-01-04 23:00:00; each ends before the next begins"
    )


@pytest.mark.parametrize("late", ["2013-02-01", "2013-02-03"])
def test_a_train_row_as_late_as_eval_is_an_error_with_both_times(window, late):
    result = window(
        SplitConfig(mode="time"), a=rows("ab"), b=[f"k,{late},1,1", "k,2013-01-05,1,0"], c=rows("ab", "2013-02-01")
    )
    severity, kind, where, message = only(result)
    assert (severity, kind, where) == ("error", "time overlap", "train, eval")
    assert f"train has rows up to t {late} (span b), and eval begins at 2013-02-01 (span c)" in message
    assert not any("each ends before" in says for says in result["says"])


def test_rows_without_a_time_are_counted(window):
    result = window(SplitConfig(mode="time"), a=["k,2013-01-01,1,1", "k,,1,0"], b=rows("ab", "2013-02-01"))
    [missing] = result["anomalies"]
    assert missing["severity"] == "warning" and "1 of 4 rows have no time in column 't'" in missing["message"]
    assert "each ends before the next begins" in result["says"][0]


def test_times_that_are_text_are_not_compared_and_that_is_a_warning(window):
    text = TIME.model_copy(update={"type": "bytes", "temporal": None})
    spans = {"a": ["k,2013-01-01,1,1", "k,soon,1,0"], "b": rows("ab", "2013-02-01")}
    result = window(SplitConfig(mode="time"), columns=(KEY, text), **spans)
    severity, kind, _, message = only(result)
    assert (severity, kind) == ("warning", "split proof") and "times were not compared: column 't' is text" in message
    assert not any("each ends before" in says for says in result["says"])


def test_times_of_two_kinds_are_not_compared(window):
    number = TIME.model_copy(update={"temporal": None})
    result = window(SplitConfig(mode="time"), columns=(KEY, number), a=rows("ab", "5"), b=rows("ab", "6"))
    assert result["anomalies"] == [] and "train from 5 to 5" in result["says"][0]


def test_a_column_of_dates_in_one_file_and_of_timestamps_in_another_is_an_error(tmp_path):
    columns = (Column(name="t", type="int64", nullable=True, role="time"), *COLUMNS)
    outputs = []
    split = SplitConfig(mode="time")
    for span, kind in (("a", pa.date32()), ("b", pa.timestamp("us"))):
        table = pa.table({"t": pa.array([15000, 15001], pa.int32() if span == "a" else pa.int64()).cast(kind)})
        table = table.append_column("x", pa.array([1.0, 2.0])).append_column("y", pa.array([1.0, 0.0]))
        pq.write_table(table, tmp_path / f"{span}.parquet")
        source = SourceConfig(format="parquet", path=str(tmp_path / "{span}.parquet"))
        request = request_of(source, columns, ("x",), "y > 0", split, span=span)
        (tmp_path / span).mkdir()
        ingest(request, tmp_path / span, Monitor(), runner=RunnerConfig(workers=1))
        outputs.append(IngestedSpan(request=request, notes=tmp_path / span / NOTES))
    parts = {"train": (("a", "all"),), "eval": (("b", "all"),)}
    result = prove(SplitsRequest(split=split, spans=tuple(outputs), parts=parts), tmp_path, Monitor())
    severity, kind, _, message = only(result)
    assert (severity, kind) == ("error", "split proof") and "a date in some files and a timestamp in others" in message


def test_without_a_time_column_only_the_spans_are_in_order(window):
    columns = (KEY, TIME.model_copy(update={"role": "key"}))
    result = window(SplitConfig(mode="time"), columns=columns, a=rows("ab"), b=rows("ab"), c=rows("a"))
    assert apart(result) == []
    assert "a to b train, then c eval" in result["says"][0] and "no column has role: time" in result["says"][0]


def test_spans_that_are_not_in_order_are_an_error(window):
    parts = {"train": (("b", "all"),), "eval": (("a", "all"),)}
    found = only(window(SplitConfig(mode="time"), parts=parts, a=rows("ab"), b=rows("ab")))
    assert found[:2] == ("error", "time overlap") and "span b of train does not come before span a of eval" in found[3]


# --- rows that are alike


@pytest.mark.parametrize("role", ["key", "time"])
def test_a_month_that_was_delivered_again_under_another_name_is_an_error_by_time(window, role):
    """One cell is corrected, so that the files differ; a later time, where there is one, does not hide it."""

    def month(first, day):
        return [f"k{i},{day},{i},{i % 2}" for i in range(first, first + 40)]

    months = {name: month(40 * at, f"2013-0{at + 1}-01") for at, name in enumerate("abc")}
    again = [line.replace("2013-01-01", "2013-04-01") if role == "time" else line for line in months["a"]]
    again[7] = again[7].replace(",7,", ",777,")
    columns = (KEY, TIME.model_copy(update={"role": role}))
    [found] = window(SplitConfig(mode="time"), columns=columns, **months, d=again)["anomalies"]
    assert (found["severity"], found["kind"], found["where"]) == ("error", "row overlap", "train, eval")
    assert found["message"].startswith("98% of the eval rows also occur in train") and "delivered again" in found["fix"]
    months = {f"{name}2": lines for name, lines in months.items()}
    new = window(SplitConfig(mode="time"), columns=columns, **months, e=month(200, "2013-05-01"))
    assert new["anomalies"] == []


def test_a_later_part_of_a_column_that_repeats_an_earlier_one_is_an_error(window):
    by = SplitConfig(mode="column", column="t", eval_from="2013-02-01")
    lines = rows(range(60)), [line.replace("2013-01-01", "2013-02-03") for line in rows(range(60))]
    [found] = overlaps(window(by, columns=(KEY.model_copy(update={"role": None}), TIME), a=lines[0], b=lines[1]))
    assert found["severity"] == "error"
    assert "100% of the eval rows also occur in train, but for column 't'" in found["message"]


def test_rows_of_a_few_categories_come_again_by_time_and_are_no_error(window):
    kinds = [[f"k,2013-0{month}-01,{i % 7},{i % 2}" for i in range(60)] for month in range(1, 5)]
    columns = (KEY.model_copy(update={"role": "key"}), TIME)
    result = window(SplitConfig(mode="time"), columns=columns, **dict(zip("abcd", kinds, strict=True)))
    assert overlaps(result) == []
    assert "100% of the eval rows also occur in train" in result["says"][1]
    assert "as train rows come again" in result["says"][1]


def test_a_key_in_files_of_two_splits_and_a_split_that_is_a_copy_are_errors(window):
    by = SplitConfig(mode="path", key="k")
    result = window(by, a={"train.csv": rows(range(30)), "eval.csv": rows(range(29, 40))})
    [found] = apart(result)
    assert found["kind"] == "key overlap" and "train.csv row 30" in found["message"] and "{split}" in found["fix"]
    result = window(SplitConfig(mode="path"), b={"train.csv": rows(range(30)), "eval.csv": rows(range(30))})
    assert "rows are split by the paths of their files" in result["says"][0]
    [copied] = overlaps(result)
    assert (copied["severity"], copied["where"]) == ("error", "train, eval")


def test_copies_within_one_split_count_twice_and_that_is_said(window):
    result = window(SplitConfig(eval=0.4), a=rows(range(200)), b=rows(range(200)))
    assert result["anomalies"] == []
    assert "50.0% of the rows repeat another one in these columns; such rows are in one split" in result["says"][1]


def test_few_different_rows_are_counted(window):
    lines = [f"{i % 7},2013-01-01,0,{i % 2}" for i in range(400)]
    result = window(SplitConfig(eval=0.4), a=lines)
    [found] = result["anomalies"]
    assert (found["severity"], found["kind"]) == ("warning", "few keys") and "split.key" in found["fix"]
    said = "400 rows have only 7 distinct values of the columns that are hashed (k, t, x), and eval has "
    assert said in found["message"]
    assert "98.2% of the rows repeat another one" in result["says"][1]
    assert sum(split["distinct"] for split in result["splits"].values()) == 7


@pytest.mark.parametrize(
    ("split", "fix"),
    [
        (SplitConfig(key="t", eval=0.4), "split: {key: k}"),
        (
            SplitConfig(mode="column", column="t", values={"2013-01-01": "train", "2013-01-02": "eval"}),
            "the same split in 't'",
        ),
    ],
)
def test_a_group_in_two_splits_is_reported_whatever_splits_the_rows(window, split, fix):
    group, by = KEY.model_copy(update={"role": "group"}), Column(name="t", type="bytes", nullable=False, role="key")
    days = [f"2013-01-{day:02d}" for day in range(1, 31 if split.key else 3)]
    lines = [line for day in days for line in rows([f"q{i}" for i in range(150)], day)]
    result = window(split, columns=(group, by), a=lines)
    found = [a for a in result["anomalies"] if a["kind"] == "group overlap"]
    assert [(a["severity"], a["where"]) for a in found] == [("warning", "train, eval")] and fix in found[0]["fix"]
    assert "150 groups (k) are in train and in eval" in found[0]["message"] and "a a.csv row " in found[0]["message"]
    keyed = window(SplitConfig(key="k", eval=0.4), columns=(group, by), b=lines)
    assert apart(keyed) == [] and "no k is in two splits" in keyed["says"][0]


# --- what is noted


def test_the_notes_of_a_span_do_not_depend_on_its_ranges(window, tmp_path):
    split = SplitConfig(key="k", eval=0.4)
    lines = rows([f"c{i % 90}" for i in range(400)])
    found = []
    for i, size in enumerate((1 << 20, 1024)):
        window(split, **{f"s{i}": lines}, range_size=size)
        folder = tmp_path / "out" / f"s{i}" / NOTES
        notes = read(folder)
        values = {path.name: sorted(set(np.fromfile(path, "<u8").tolist())) for path in folder.glob("*.u64")}
        facts = {name: (note.rows, note.time) for name, note in notes.splits.items()}
        found.append((notes.rule, notes.keys, facts, values))
        wanted = 1 if i == 0 else len(list(folder.parent.glob("train-*")))
        assert len(notes.splits["train"].keys["key"].sets) == wanted
    assert found[0] == found[1]


def test_a_span_without_rows_is_noted_too(window):
    result = window(SplitConfig(key="k"), a=[], b=rows(range(5)))
    assert result["anomalies"] == [] and "no k is in two splits" in result["says"][-1]


def test_damaged_notes_are_reported(window, tmp_path):
    split = SplitConfig(key="k")
    window(split, a=rows(range(30)))
    folder = tmp_path / "out" / "a" / NOTES
    path = folder / "train.key.u64"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(DataError, match="hashes in place of"):
        prove(window.request, tmp_path, Monitor())
    (folder / "notes.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        prove(window.request, tmp_path, Monitor())


def overlaps(result):
    return [a for a in result["anomalies"] if a["kind"] == "row overlap"]


def test_rows_that_stand_twice_under_two_ids_are_reported_with_their_share(window):
    """Every row of one file is in the other under a new id: the key proves nothing of what the rows hold."""
    split = SplitConfig(key="k", eval=0.2)
    values = [f"2013-01-01,{i},{i % 2}" for i in range(400)]
    lines = [f"a{i},{v}" for i, v in enumerate(values)], [f"b{i},{v}" for i, v in enumerate(values)]
    result = window(split, range_size=2000, a=lines[0], b=lines[1])
    [found] = overlaps(result)
    assert (found["severity"], found["where"]) == ("warning", "train, eval")
    assert "if they are copies" in found["message"] and "if they come again by chance" in found["fix"]
    share = int(found["message"].split("%")[0])
    assert 70 <= share <= 90 and "of the eval rows also occur in train, but for column 'k'" in found["message"]
    assert result["says"] and "no k is in two splits" in result["says"][0]


def test_without_a_key_nothing_is_noted_of_what_rows_hold(window, tmp_path):
    window(SplitConfig(eval=0.2), a=rows(range(50)))
    assert read(tmp_path / "out" / "a" / NOTES).content == ()
