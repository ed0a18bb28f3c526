"""No two distinct numbers become equal unsaid: what float32 does not hold is an integer, a text, or told with numbers."""

import decimal
import json

import pyarrow as pa
import pytest

from headway.schema.columns import Column
from headway.schema_inference.column_types import infer
from headway.sources.sample import Sample
from headway.sources.type_inference import float32_loss
from headway.tabular.coerce import coerce, converted, raw_type

ACCOUNTS = [100_000_499_690_000 + i for i in range(1000)]
QUARTERS = [1_600_000_000 + i / 4 for i in range(1000)]


def _csv(values):
    return b"a,b\n" + b"".join(b"%s,1\n" % str(value).encode() for value in values)


@pytest.mark.parametrize("format", ["csv", "jsonl"])
@pytest.mark.parametrize("odd", ["12.5", "1e5", "inf", "99999999999999999999999"])
def test_one_odd_cell_among_integers_costs_its_row_and_no_digit_of_the_others(opened, format, odd):
    values = [*ACCOUNTS[:500], odd, *ACCOUNTS[500:]]
    number = "Infinity" if odd == "inf" else odd
    lines = b"".join(b'{"a": %s}\n' % str(number if v == odd else v).encode() for v in values)
    source, found = opened(format, _csv(values) if format == "csv" else lines)
    schema, notes = infer(
        source.sample(found, 10_000), {}, only=False, needed=frozenset(), where="w", typed=format != "csv"
    )
    column = schema.column("a")
    assert column.type == "int64" and "such rows will be rejected" in " ".join(map(str, notes))
    (piece,) = source.ranges(found)
    stored, rejected = [], []
    for chunk in source.read(piece, ["a"], {"a": raw_type(column)}):
        coerced = coerce(chunk.batch, [column])
        stored += coerced.batch.column("a").to_pylist()
        rejected += [*coerced.rejected["value"].to_pylist(), *(bad.text for bad in chunk.malformed)]
    assert stored == ACCOUNTS and len(rejected) == 1


@pytest.mark.parametrize(
    ("format", "values", "kind", "key_kind", "said"),
    [
        ("csv", QUARTERS, "float32", "bytes", "would leave 3 of its 1,000 distinct"),
        ("jsonl", QUARTERS, "float32", "bytes", "would leave 3 of its 1,000 distinct"),
        ("jsonl", [1.6e9 + i for i in range(1000)], "float32", "bytes", "would leave 9 of its 1,000 distinct"),
        ("csv", [9 * 10**18 + i for i in range(50)] + [10**21 + i for i in range(50)], "bytes", "bytes", "50 of 100"),
        ("jsonl", [10**20 + i for i in range(200)], "bytes", "bytes", ""),
        ("csv", ["12E3", "45E1", "3E4", "12E4"] * 10, "bytes", "bytes", "'12E3'; say 'type: float'"),
        ("csv", ["1.5e+3", "4.5e+1", "7"] * 10, "float32", "float32", ""),
        ("csv", [f"{i / 8}" for i in range(1000)], "float32", "float32", ""),
        ("csv", [*range(199), 2.5], "float32", "float32", ""),
    ],
)
def test_text_that_float32_makes_equal(opened, format, values, kind, key_kind, said):
    lines = b"".join(json.dumps({"a": value}).encode() + b"\n" for value in values)
    source, found = opened(format, _csv(values) if format == "csv" else lines)
    sample = source.sample(found, 10_000)
    for keys, wanted in ((frozenset(), kind), (frozenset("a"), key_kind)):
        schema, notes = infer(sample, {}, only=False, needed=frozenset(), where="w", typed=format != "csv", keys=keys)
        assert schema.column("a").type == wanted
        assert said in " ".join(map(str, notes)) and bool(said) == bool(notes)


@pytest.mark.parametrize(
    ("values", "kind", "key_kind", "said"),
    [
        ([1.6e9 + i for i in range(1000)], "int64", "int64", "would leave 9 of its 1,000 distinct"),
        ([1.6e9 + i for i in range(1000)] + [float("nan")] * 50, "int64", "int64", "would leave 9 of its 1,000"),
        ([1.6e9 + i for i in range(1000)] + [None, 0.5], "int64", "int64", "1 of 1,001 is no integer, such as '0.5'"),
        (QUARTERS, "float32", "bytes", "would leave 3 of its 1,000 distinct"),
        ([decimal.Decimal(10**12 + i) for i in range(100)], "int64", "int64", "would leave 1 of its 100 distinct"),
        ([decimal.Decimal(10**25 + i) for i in range(100)], "float32", "bytes", "would leave 1 of its 100 distinct"),
        ([0.1, 0.2, None, float("nan"), float("inf")], "float32", "float32", ""),
        ([float(i) for i in range(100)], "float32", "float32", ""),
    ],
)
def test_typed_numbers_that_float32_makes_equal(values, kind, key_kind, said):
    table = pa.table({"a": values})
    for keys, wanted in ((frozenset(), kind), (frozenset("a"), key_kind)):
        schema, notes = infer(Sample(table), {}, only=False, needed=keys, where="w", keys=keys)
        assert schema.column("a").type == wanted
        assert said in " ".join(map(str, notes)) and bool(said) == bool(notes)
        distinct = len({value for value in values if value is not None and value == value})  # NaN is a null
        if wanted != "float32" and 0.5 not in values:
            stored = coerce(table.to_batches()[0], schema.columns).batch.column("a")
            assert len({*stored.to_pylist()} - {None}) == distinct


def test_a_label_of_numbers_stays_one():
    table = pa.table({"y": [1.6e9 + i for i in range(1000)]})
    schema, _ = infer(Sample(table), {}, only=False, needed=frozenset("y"), where="w")
    assert schema.column("y").type == "float32"


def test_a_key_that_float32_rounds_is_a_rejected_row_whatever_the_schema_file_says():
    column = Column(name="k", type="float32", nullable=True, role="key")
    for raw in (pa.array([1.0, 16777217.0, None, 1.6e9, 0.1]), pa.array(["1", "16777217", None, "1.6e9", "0.1"])):
        batch = pa.RecordBatch.from_arrays([raw], names=["k"])
        coerced = coerce(batch, [column], keys={"k"})
        assert coerced.rejected["row"].to_pylist() == [1] and "type: string" in coerced.rejected["reason"][0].as_py()
        assert not coerce(batch, [column]).rejected.num_rows


def test_the_exact_column_is_of_doubles():
    column = Column(name="x", type="float32", nullable=True)
    assert converted(pa.array(["100000499690645", "0.1"]), column.in_float64).to_pylist() == [100000499690645.0, 0.1]
    assert float32_loss(pa.array([], pa.float64()), column) is None
