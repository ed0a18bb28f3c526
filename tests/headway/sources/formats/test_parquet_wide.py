"""Parquet files of hundreds of columns: read some columns at a time, and the rows are those of the file."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headway.sources.base import BATCH_ROWS, RANGE_CELLS, rows_of_range
from headway.sources.config import SourceConfig
from headway.sources.formats import parquet as module
from headway.sources.spans import files, open_source

WIDTH = module.WIDE + 10


def _table(rows):
    random = np.random.default_rng(5)
    words = pa.array([b"a", b"", None, b"long" * 9], pa.binary())
    makers = [
        lambda: pa.array(random.standard_normal(rows).astype(np.float32), mask=random.random(rows) < 0.2),
        lambda: pa.array(random.integers(-5, 5, rows)),
        lambda: words.take(pa.array(random.integers(0, 4, rows))),
        lambda: pa.DictionaryArray.from_arrays(random.integers(0, 3, rows).astype(np.int32), ["x", "y", "z"]),
        lambda: pa.array([None if i % 7 == 0 else list(range(i % 3)) for i in range(rows)]),
        lambda: pa.array([None if i % 5 == 0 else {"a": i, "b": str(i)} for i in range(rows)]),
    ]
    return pa.table([makers[i % 6]() for i in range(WIDTH)], names=[f"c{i}" for i in range(WIDTH)])


def _plain(table):
    parts = []
    for chunk in table.columns:
        kind = chunk.type
        parts.append(chunk.cast(kind.value_type) if pa.types.is_dictionary(kind) else chunk)
    return pa.table(parts, names=table.column_names).to_pydict()


@pytest.mark.parametrize("held", [module.HELD_BYTES, 0], ids=["in memory", "through temporary files"])
@pytest.mark.parametrize("group", [37, 1000])
def test_rows_are_those_of_the_file(tmp_path, monkeypatch, held, group):
    monkeypatch.setattr(module, "HELD_BYTES", held)
    monkeypatch.setattr(module, "SET_BYTES", 40 * 100)  # many sets of few columns
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    table = _table(100)
    pq.write_table(table, tmp_path / "wide.parquet", row_group_size=group)
    leaves = [[name] if int(name[1:]) % 6 < 5 else [f"{name}.b", f"{name}.a"] for name in table.column_names]
    names = [leaf for each in leaves for leaf in each][::-1]
    types = {name: pa.dictionary(pa.int32(), pa.binary()) for name in names if int(name[1:].split(".")[0]) % 6 == 2}
    with pq.ParquetFile(tmp_path / "wide.parquet", read_dictionary=list(types)) as parquet:
        ways = {name: tuple(name.split(".")) for name in names}
        batches = [
            batch
            for i in range(parquet.metadata.num_row_groups)
            for batch in module.by_columns(parquet, i, ways, names, 30)
        ]
    assert {batch.num_rows for batch in batches} <= {30, 100 % 30, 37 - 30, 100 % 37}
    assert not list((tmp_path / "scratch").iterdir())
    source = open_source(SourceConfig(format="parquet", path=str(tmp_path / "wide.parquet")))
    pieces = source.ranges(files(SourceConfig(format="parquet", path=str(tmp_path / "wide.parquet")), "all"))
    whole = [chunk.batch for piece in pieces for chunk in source.read(piece, names, types)]
    wanted = pa.table(
        [
            table[name]
            if "." not in name
            else pa.array([row and row[name[-1]] for row in table[name.split(".")[0]].to_pylist()])
            for name in names
        ],
        names=names,
    )
    for found in (batches, whole):
        # a dictionary differs from piece to piece
        rows = [_plain(pa.Table.from_batches([batch])) for batch in found]
        assert {name: [v for part in rows for v in part[name]] for name in names} == _plain(wanted)


def test_a_range_of_a_wide_table_has_fewer_rows():
    assert rows_of_range(262_144, 11) == 262_144 and rows_of_range(10, 5000) == 10
    assert rows_of_range(262_144, 5000) * 5000 <= RANGE_CELLS < (rows_of_range(262_144, 5000) + 1) * 5000
    assert rows_of_range(262_144, 1 << 40) == 1


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_wide_rows_come_in_small_batches_and_several_ranges(tmp_path, monkeypatch, format):
    monkeypatch.setattr("headway.sources.base.RANGE_CELLS", 1000 * WIDTH)
    monkeypatch.setattr(f"headway.sources.formats.{format}.BATCH_BYTES", 100 * 4 * WIDTH)
    values = np.arange(2500, dtype=np.float32)
    table = pa.table({f"c{i}": values + np.float32(i) for i in range(WIDTH)})
    path = tmp_path / f"wide.{format}"
    if format == "parquet":
        pq.write_table(table, path, row_group_size=500, use_dictionary=False, compression="none")
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=500)
    config = SourceConfig(format=format, path=str(path))
    source = open_source(config)
    pieces = source.ranges(files(config, "all"))
    assert [(piece.start, piece.end) for piece in pieces] == [(0, 2), (2, 4), (4, 5)]
    chunks = [chunk for piece in pieces for chunk in source.read(piece, ["c7", "c0"], {})]
    assert np.array_equal(np.concatenate([chunk.batch["c7"].to_numpy() for chunk in chunks]), values + 7)
    every = [chunk.batch.num_rows for piece in pieces for chunk in source.read(piece, table.column_names, {})]
    assert sum(every) == 2500 and 50 <= max(every) <= 100 < BATCH_ROWS
