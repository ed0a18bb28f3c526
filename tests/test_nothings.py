"""Null, empty, NaN and zero: four different things in every format's file, in the records, and in what a model is given."""

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_jobs.ingest.range_worker import SHARD, STATISTICS, ingest_range
from headway.records.decode import decode
from headway.records.tfrecord import ShardWriter, read_records
from headway.schema.columns import Column
from headway.sources.config import SourceConfig
from headway.sources.spans import open_source
from headway.statistics.split_statistics import SplitStatistics
from headway.tabular.splits import SplitConfig
from tests.beam_jobs.conftest import request_of
from tfcore.data.reader import Decoder
from tfcore.transform.config import ColumnTransform
from tfcore.transform.fit import fit_parameters
from tfcore.transform.layer import Transform

NAN = float("nan")
NUMBER = Column(name="number", type="float32", nullable=True)
TEXT = Column(name="text", type="bytes", nullable=True, encoding="dictionary")
NUMBERS = Column(name="numbers", type="float32", nullable=True, shape=(None,))
TEXTS = Column(name="texts", type="bytes", nullable=True, encoding="dictionary", shape=(None,))
PAIR = Column(name="pair", type="float32", nullable=True, shape=(2,))
COLUMNS = (NUMBER, TEXT, NUMBERS, TEXTS, PAIR)
KINDS = {
    "number": [None, NAN, 0.0, 1.5],
    "text": [None, "", "0", "nan", "a"],
    "numbers": [None, [], [NAN], [0.0], [1.5, 0.0]],
    "texts": [None, [], [""], ["a", ""], ["a"]],
    "pair": [None, [NAN, 0.0], [0.0, 0.0], [1.5, 2.0]],
}
"""What a cell may hold; no two of a column are the same thing."""
ROW = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in KINDS.items()})
ALL = [{name: values[i % len(values)] for name, values in KINDS.items()} for i in range(60)]


def writable(name, rows):
    """Lists in text cannot tell [""] from []: that one is left out of CSV."""
    if name != "csv":
        return rows
    return [row | {"texts": None if row["texts"] == [""] else row["texts"]} for row in rows]


def arrow(rows):
    types = {c.name: c.arrow for c in COLUMNS}
    types |= {"text": pa.string(), "texts": pa.list_(pa.string()), "pair": pa.list_(pa.float32())}
    made = {name: pa.array([row[name] for row in rows], kind, from_pandas=False) for name, kind in types.items()}
    return pa.table(made | {"y": pa.array([i % 2 for i in range(len(rows))])})


def parquet(rows, path):
    pq.write_table(arrow(rows), path)


def arrow_file(rows, path):
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, arrow(rows).schema) as writer:
        writer.write_table(arrow(rows))


def jsonl(rows, path):
    lines = []
    for i, row in enumerate(rows):
        row = {name: value for name, value in row.items() if value is not None or i % 2}  # a missing key is a null too
        lines.append(json.dumps(row | {"y": i % 2}))
    path.write_text("\n".join(lines) + "\n")


def csv(rows, path):
    """Lists stand in text, with a separator; "" is the empty text or list, nothing at all is null."""

    def cell(value):
        if value is None:
            return ""
        if isinstance(value, list):
            return '"' + "|".join(str(one) for one in value) + '"'
        return f'"{value}"' if isinstance(value, str) else str(value)

    lines = [",".join([*(cell(row[name]) for name in KINDS), str(i % 2)]) for i, row in enumerate(rows)]
    path.write_text("\n".join([",".join([*KINDS, "y"]), *lines]) + "\n")


def examples(rows, path):
    with ShardWriter(path) as shard:
        for i, row in enumerate(rows):
            feature = {"y": tf.train.Feature(int64_list=tf.train.Int64List(value=[i % 2]))}
            for name, value in row.items():
                if value is None:
                    continue
                values = value if isinstance(value, list) else [value]
                if name.startswith("text"):
                    texts = tf.train.BytesList(value=[one.encode() for one in values])
                    feature[name] = tf.train.Feature(bytes_list=texts)
                else:
                    feature[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
            shard.write_groups(
                [[tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()]], [1]
            )


FORMATS = {
    "parquet": (parquet, "parquet"),
    "arrow": (arrow_file, "arrow"),
    "jsonl": (jsonl, "jsonl"),
    "csv": (csv, "csv"),
    "examples": (examples, "tfrecord"),
}


def expected(value):
    if isinstance(value, list):
        return [expected(one) for one in value]
    return value.encode() if isinstance(value, str) else value


def same(found, wanted):
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(same, found, wanted))
    if isinstance(wanted, float) and math.isnan(wanted):
        return isinstance(found, float) and math.isnan(found)
    return found == wanted and type(found) is type(wanted)


def ingested(name, rows, folder):
    """(records, columns, statistics, one dict a row) of a file of that format."""
    write, ending = FORMATS[name]
    path = folder / f"raw.{ending}"
    write(rows, path)
    source = SourceConfig(format=name, path=str(path))
    columns = COLUMNS
    if name == "csv":
        columns = tuple(c.model_copy(update={"separator": "|"}) if c.shape else c for c in columns)
    read = (*columns, Column(name="y", type="int64", nullable=False))
    request = request_of(source, read, tuple(KINDS), "y", SplitConfig(mode="time"))
    request.check()
    out = folder / "out"
    out.mkdir()
    opened = open_source(source)
    found = ingest_range(request, opened.ranges(request.files)[0], out, lambda rows: None)
    assert (found["rows"], found["quarantined"], found["filtered"]) == (len(rows), 0, 0), found
    records = list(read_records(out / "all" / SHARD))
    batches = [decode(record, request.columns()) for record in records]
    return records, request.columns(), SplitStatistics.load(out / "all" / STATISTICS), pa.Table.from_batches(batches)


def inputs(records, columns, statistics):
    """What a model is given of each row: one vector of numbers a column."""
    texts = {"text": ColumnTransform(transform={"vocabulary": {"min_count": 1}})}
    texts["texts"] = texts["text"]
    parameters, _ = fit_parameters(columns, texts, statistics, task="binary")
    decoder = Decoder(columns, [c.name for c in columns])
    parts = [Transform(parameters).named(decoder(tf.constant(record))) for record in records]
    named = {name: np.concatenate([part[name].numpy() for part in parts]) for name in parts[0]}
    return {
        column: np.column_stack(
            [v for name, v in sorted(named.items()) if name == column or name.startswith(f"{column}__")]
        )
        for column in KINDS
    }


@pytest.mark.parametrize("name", FORMATS)
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(ROW, min_size=1, max_size=12))
def test_every_cell_is_stored_as_what_it_is(name, rows, tmp_path_factory):
    rows = writable(name, rows)
    *_, table = ingested(name, rows, tmp_path_factory.mktemp(name))
    for column in KINDS:
        found = table.column(column).to_pylist()
        assert all(map(same, found, [expected(row[column]) for row in rows])), (column, found, rows)


@pytest.mark.parametrize("name", FORMATS)
def test_a_model_can_distinguish_them(name, tmp_path):
    rows = writable(name, ALL)
    records, columns, statistics, _ = ingested(name, rows, tmp_path)
    given_ = inputs(records, columns, statistics)
    for column in KINDS:
        different = np.unique(given_[column], axis=0)
        assert len(different) == len({repr(row[column]) for row in rows}), (column, different)
