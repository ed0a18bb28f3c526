"""Groups in ingest: no record holds a part of one, and a group is in one split."""

import numpy as np
import pytest

from beam_jobs.ingest.range_worker import SHARD, ingest_range
from headway.records.decode import decode
from headway.records.encode import unpacked
from headway.records.tfrecord import read_records
from headway.schema.columns import Column
from headway.sources.discovery.spans import open_source
from headway.tabular.splits import SplitConfig

COLUMNS = (
    Column(name="query", type="bytes", nullable=True, encoding="dictionary", role="group"),
    Column(name="x", type="float32", nullable=False),
    Column(name="y", type="float32", nullable=False),
)


@pytest.mark.parametrize("rows", [1, 7, 50])
def test_no_record_holds_a_part_of_a_group(request_for, tmp_path, rows):
    sizes = np.random.default_rng(0).integers(1, 12, 200)
    names = [name for i, size in enumerate(sizes) for name in [f"q{i}"] * size]
    lines = [f"{name},{i},{i % 2}" for i, name in enumerate(names)]
    path = tmp_path / "raw.csv"
    path.write_text("\n".join(["query,x,y", *lines]) + "\n")
    request = request_for(
        path, columns=COLUMNS, stored=("query", "x"), rows=rows, split=SplitConfig(key=("query",), eval=0.4)
    )
    request.check()
    (piece,) = open_source(request.source).ranges(request.files)
    folder = tmp_path / "out"
    folder.mkdir()
    facts = ingest_range(request, piece, folder, lambda rows: None)
    seen = set()
    for split, lengths in facts["records"].items():
        records = [decode(record, request.columns()) for record in read_records(folder / split / SHARD)]
        assert [record.num_rows for record in records] == unpacked(lengths).tolist()
        for number, record in enumerate(records):
            groups = set(record["query"].to_pylist())
            if rows > 1:
                assert not groups & seen
                # it is as full as it can be
                after = records[number + 1]["query"].to_pylist() if number + 1 < len(records) else []
                more = after.count(after[0]) if after else rows
                assert len(groups) == 1 or record.num_rows <= rows < record.num_rows + more + (not after)
            seen |= groups
    assert len(seen) == 200 and set(facts["records"]) == {"train", "eval"}
