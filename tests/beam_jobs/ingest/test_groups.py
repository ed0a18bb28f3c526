"""Groups in ingest: no record holds a part of one, and a group is in one split."""

import numpy as np

from beam_jobs.ingest.range_worker import SHARD, ingest_range
from headway.records.decode import decode
from headway.records.encode import unpacked
from headway.records.tfrecord import read_records
from headway.schema.columns import Column
from headway.sources.spans import open_source
from headway.tabular.splits import SplitConfig

COLUMNS = (
    Column(name="query", type="bytes", nullable=True, encoding="dictionary", role="group"),
    Column(name="x", type="float32", nullable=False),
    Column(name="y", type="float32", nullable=False),
)


def test_no_record_holds_a_part_of_a_group(request_for, tmp_path):
    """As far as they may they are full: tests/headway/records/test_grouping.py."""
    sizes = np.random.default_rng(0).integers(1, 12, 200)
    names = [name for i, size in enumerate(sizes) for name in [f"q{i}"] * size]
    path = tmp_path / "raw.csv"
    path.write_text("\n".join(["query,x,y", *(f"{name},{i},{i % 2}" for i, name in enumerate(names))]) + "\n")
    split = SplitConfig(key=("query",), eval=0.4)
    request = request_for(path, columns=COLUMNS, stored=("query", "x"), rows=7, split=split)
    (piece,) = open_source(request.source).ranges(request.files)
    facts = ingest_range(request, piece, tmp_path, lambda rows: None)
    groups = []
    for split, lengths in facts["records"].items():
        records = [decode(record, request.columns()) for record in read_records(tmp_path / split / SHARD)]
        assert [record.num_rows for record in records] == unpacked(lengths).tolist()
        groups += [group for record in records for group in {*record["query"].to_pylist()}]
    assert len(groups) == len({*groups}) == 200 and set(facts["records"]) == {"train", "eval"}
