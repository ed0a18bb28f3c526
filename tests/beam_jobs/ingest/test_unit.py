"""Records of a split by key say which rows the key keeps together; other records are what they were."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_jobs.ingest.stage import ingest
from headway.monitor import Monitor
from headway.records.decode import decode
from headway.records.tfrecord import read_records
from headway.schema.columns import UNIT, UNIT_COLUMN, Column
from headway.sources.formats.parquet import WIDE
from headway.tabular.splits import SplitConfig

KEYS = [1, 7, 1, None, 7, None, 3, 3, 3, 8, 2, 5, 5, 1] * 6
TEXTS = [b"a", b"a", b"b", b"a", b"a", b"b", b"c", b"c", None, b"d", b"d", b"e", b"e", b"a"] * 6
COLUMNS = (
    Column(name="id", type="int64", nullable=True, role="key"),
    Column(name="s", type="bytes", nullable=True, encoding="dictionary"),
    Column(name="y", type="float32", nullable=False),
)


def ingested(request_for, tmp_path, *, rows=16, key=("id",), columns=COLUMNS, width=0, **changes):
    """(the request, the result, [(key, text, code)] of all records)"""
    more = {f"x{i}": pa.array([float(i)] * len(KEYS), pa.float32()) for i in range(width)}
    table = pa.table(
        {"id": KEYS, "s": pa.array(TEXTS, pa.binary()), "y": [float(i % 3) for i in range(len(KEYS))], **more}
    )
    pq.write_table(table, tmp_path / "raw.parquet")
    columns += tuple(Column(name=name, type="float32", nullable=False) for name in more)
    stored = ("id", "s", *more)
    split = SplitConfig(key=key, eval=0.4)
    request = request_for(
        tmp_path / "raw.parquet", columns=columns, stored=stored, rows=rows, **{"split": split, **changes}
    )
    out = tmp_path / "out"
    result = ingest(request, out, Monitor())
    assert UNIT not in [column["name"] for column in result["columns"]]
    found = []
    if request.unit:
        for shard in (file for split in result["splits"].values() for file in split["shards"]):
            for record in read_records(out / shard["file"]):
                batch = decode(record, (*request.columns(), UNIT_COLUMN))
                found += zip(*(batch.column(name).to_pylist() for name in ("id", "s", UNIT)), strict=True)
    return request, result, found


@pytest.mark.parametrize(("rows", "width"), [(16, 0), (1, 0), (16, WIDE)])
@pytest.mark.parametrize("key", [("id",), ("s", "id")])
def test_rows_of_one_key_have_one_code_and_others_another(request_for, tmp_path, rows, width, key):
    _, result, found = ingested(request_for, tmp_path, rows=rows, width=width, key=key)
    assert len(found) == len(KEYS) and result["unit"] is True
    assert result["feature_spec"][UNIT]["dtype"] == "int64"
    codes = {}
    for id, text, code in found:
        value = (id, text) if len(key) == 2 else (id,)
        assert (code is None) == (None in value)
        codes.setdefault(value, set()).add(code)
    whole = [of for value, of in codes.items() if None not in value]
    assert all(len(of) == 1 for of in whole) and len(set.union(*whole)) == len(whole)
    assert all(0 <= code < 1 << 42 for code in set.union(*whole))


def test_records_without_a_key_or_with_it_as_their_group_stay_as_they_were(request_for, tmp_path):
    grouped = (COLUMNS[0].model_copy(update={"role": "group"}), *COLUMNS[1:])
    by_row, by_group = SplitConfig(), SplitConfig(key=("id",), eval=0.4)
    for columns, split in ((COLUMNS, by_row), (grouped, by_group)):
        request, result, _ = ingested(request_for, tmp_path, columns=columns, split=split)
        assert not request.unit and not result["unit"]
        assert "unit" not in request.key() and UNIT not in result["feature_spec"]
    request, _, _ = ingested(request_for, tmp_path)
    assert request.unit and "unit" in request.key()
