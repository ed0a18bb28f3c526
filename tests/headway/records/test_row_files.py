"""Rows as one table: the stored columns with split, number and prediction, in Parquet or CSV."""

import datetime
import errno
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from headway.errors import ConfigError, DataError, StoreError
from headway.records import row_files
from headway.records.encode import encode
from headway.records.row_files import write_examples, write_rows
from headway.records.tfrecord import ShardWriter
from headway.schema.columns import Column

COLUMNS = (
    Column(name="n", type="int64", nullable=True),
    Column(name="day", type="int64", nullable=True, temporal="date"),
    Column(name="time", type="int64", nullable=True, temporal="timestamp"),
    Column(name="s", type="bytes", nullable=True, encoding="dictionary"),
    Column(name="label", type="int64", nullable=False, role="label"),
)
LISTS = (
    *COLUMNS,
    Column(name="l", type="bytes", nullable=True, encoding="dictionary", shape=(None,)),
    Column(name="v", type="float32", nullable=True, shape=(2,)),
)
ROW = {"n": 1, "day": 15706, "time": 1_000_000, "s": b"a", "label": 0, "l": [b"p", b"q"], "v": [1.0, 2.0]}
EMPTY = {"n": None, "day": None, "time": None, "s": None, "label": 1, "l": None, "v": None}


def part(folder, split, rows, columns=COLUMNS, per_record=2):
    """An ingest output of one shard: (folder, result, split)"""
    folder.mkdir(exist_ok=True)
    with ShardWriter(folder / f"{split}.tfrecord") as shard:
        for start in range(0, len(rows), per_record):
            some = rows[start : start + per_record]
            arrays = [pa.array([row[c.name] for row in some], c.arrow) for c in columns]
            batch = pa.RecordBatch.from_arrays(arrays, names=[c.name for c in columns])
            shard.write_many([encode(batch, columns)])
    shards = [{"file": f"{split}.tfrecord", "rows": [[len(rows), 1]]}]
    described = [column.model_dump(mode="json") for column in columns]
    return (folder, {"columns": described, "splits": {split: {"rows": len(rows), "shards": shards}}}, split)


def predictions(path, values):
    pq.write_table(pa.table({"row": np.arange(len(values)), "prediction": values}), path)
    return path


def test_rows_keep_their_order_beside_their_predictions(tmp_path):
    train = [part(tmp_path / "a", "train", [ROW, EMPTY, ROW]), part(tmp_path / "b", "train", [EMPTY])]
    held = [part(tmp_path / "a", "eval", [ROW, EMPTY])]
    scores = predictions(tmp_path / "scores.parquet", [0.25, 0.75])
    out = tmp_path / "new" / "rows.parquet"
    assert write_rows({"train": train, "eval": held, "test": []}, out, {"eval": scores}) == {"train": 4, "eval": 2}
    table = pq.read_table(out)
    assert table.column_names == ["split", "row", "n", "day", "time", "s", "label", "prediction"]
    assert table["split"].to_pylist() == ["train"] * 4 + ["eval"] * 2
    assert table["row"].to_pylist() == [0, 1, 2, 3, 0, 1]
    assert table["label"].to_pylist() == [0, 1, 0, 1, 0, 1]
    assert table["prediction"].to_pylist() == [None] * 4 + [0.25, 0.75]
    second = table.slice(1, 1).to_pylist()[0]
    assert [second[name] for name in ("n", "day", "time", "s")] == [None] * 4
    first = table.slice(0, 1).to_pylist()[0]
    assert (first["day"], first["s"]) == (datetime.date(2013, 1, 1), "a")
    assert first["time"] == datetime.datetime(1970, 1, 1, 0, 0, 1)
    assert [path.name for path in out.parent.iterdir()] == ["rows.parquet"]


def test_csv_has_the_same_rows_and_refuses_what_a_cell_cannot_hold(tmp_path):
    parts = {"train": [part(tmp_path / "a", "train", [ROW, EMPTY])]}
    write_rows(parts, tmp_path / "rows.csv")
    write_rows(parts, tmp_path / "rows.parquet")
    csv, parquet = pyarrow.csv.read_csv(tmp_path / "rows.csv"), pq.read_table(tmp_path / "rows.parquet")
    assert csv["day"].to_pylist() == parquet["day"].to_pylist()
    assert csv["label"].to_pylist() == parquet["label"].to_pylist() == [0, 1]

    lists = {"train": [part(tmp_path / "l", "train", [ROW, EMPTY], LISTS)]}
    with pytest.raises(ConfigError, match="'l' has several values"):
        write_rows(lists, tmp_path / "lists.csv")
    write_rows(lists, tmp_path / "lists.parquet")
    table = pq.read_table(tmp_path / "lists.parquet")
    assert table["l"].to_pylist() == [["p", "q"], None] and table["v"].to_pylist() == [[1.0, 2.0], None]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "l", "lists.parquet", "rows.csv", "rows.parquet"]


def test_each_class_has_a_column_of_probabilities_null_beside_train_rows(tmp_path):
    parts = {name: [part(tmp_path / "a", name, [ROW, EMPTY])] for name in ("train", "eval")}
    scores = predictions(tmp_path / "scores.parquet", pa.array([[0.25, 0.75], [1.0, 0.0]], pa.list_(pa.float64(), 2)))
    write_rows(parts, tmp_path / "rows.CSV", {"eval": scores}, outputs=("no", "yes"))
    found = pyarrow.csv.read_csv(tmp_path / "rows.CSV")
    assert found["prediction_no"].to_pylist() == [None, None, 0.25, 1.0]
    assert found["prediction_yes"].to_pylist() == [None, None, 0.75, 0.0]


def test_bytes_stay_bytes_and_a_later_text_that_is_not_utf_8_is_escaped(tmp_path):
    image = ROW | {"s": b"\xff\xd8"}
    write_rows({"train": [part(tmp_path / "a", "train", [image])]}, tmp_path / "bytes.parquet")
    assert pq.read_table(tmp_path / "bytes.parquet")["s"].to_pylist() == [b"\xff\xd8"]
    image |= {"l": [b"p", b"\xff"]}
    later = {
        name: [part(tmp_path / "a", name, some, LISTS)] for name, some in (("train", [ROW]), ("eval", [image, EMPTY]))
    }
    write_rows(later, tmp_path / "text.parquet")
    table = pq.read_table(tmp_path / "text.parquet")
    assert table["s"].to_pylist() == ["a", "\\xff\\xd8", None]
    assert table["l"].to_pylist() == [["p", "q"], ["p", "\\xff"], None]


def test_a_stored_column_keeps_its_name_where_ours_has_the_same(tmp_path):
    stored = {"row": 7, "row_": 8, "label": 1}
    named = (*(Column(name=name, type="int64", nullable=False) for name in ("row", "row_")), COLUMNS[-1])
    write_rows({"train": [part(tmp_path / "a", "train", [stored], named)]}, tmp_path / "rows.parquet")
    assert pq.read_table(tmp_path / "rows.parquet").to_pylist() == [{"split": "train", "row__": 0} | stored]


def test_row_groups_are_bounded_in_rows_and_bytes(tmp_path, monkeypatch):
    parts = {"train": [part(tmp_path / "a", "train", [ROW] * 40)]}
    for limit, number in (("_ROWS", 10), ("_BYTES", 200)):
        with monkeypatch.context() as limits:
            limits.setattr(row_files, limit, number)
            write_rows(parts, tmp_path / f"{limit}.parquet")
        groups = pq.ParquetFile(tmp_path / f"{limit}.parquet").metadata
        assert groups.num_rows == 40 and 3 < groups.num_row_groups <= 20


def test_what_cannot_be_written_leaves_no_file(tmp_path):
    held = {"eval": [part(tmp_path / "a", "eval", [ROW, EMPTY])]}
    scores = predictions(tmp_path / "scores.parquet", [0.25])
    for wrong, error in ((tmp_path / "rows.xlsx", ".xlsx is not a format"), (tmp_path / "rows", "no ending is not")):
        with pytest.raises(ConfigError, match=error):
            write_rows(held, wrong)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="not a folder"):
        write_rows(held, tmp_path / "file" / "rows.csv")
    (tmp_path / "file").unlink()
    with pytest.raises(StoreError, match="1 predictions of 2 rows of eval"):
        write_rows(held, tmp_path / "rows.parquet", {"eval": scores})
    with pytest.raises(DataError, match="no rows"):
        write_rows({"train": []}, tmp_path / "rows.parquet")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "scores.parquet"]
    (tmp_path / "rows.csv").write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        write_rows(held, tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text() == "mine"


def test_a_full_disk_is_a_store_error_and_nothing_is_left(tmp_path, monkeypatch):
    train = part(tmp_path / "a", "train", [ROW])
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(ShardWriter, "_append", Mock(side_effect=full))
    with pytest.raises(StoreError, match="no space left") as error:
        write_examples({"train": [train]}, tmp_path / "out")
    assert error.value.where == str(tmp_path) and "make room" in error.value.fix
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
