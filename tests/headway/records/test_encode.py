"""Rows to records and back: identities, and the bytes themselves."""

import hashlib
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import DataError
from headway.records import encode as module
from headway.records import wire
from headway.records.decode import decode, features, varints
from headway.records.encode import encode, encode_classic, encode_records
from headway.schema.columns import Column
from tests.properties import examples

COLUMNS = (
    Column(name="i", type="int64", nullable=False),
    Column(name="i null", type="int64", nullable=True),
    Column(name="f", type="float32", nullable=False),
    Column(name="f null", type="float32", nullable=True),
    Column(name="s", type="bytes", nullable=False),
    Column(name="s null", type="bytes", nullable=True),
    Column(name="d", type="bytes", nullable=False, encoding="dictionary"),
    Column(name="dé null", type="bytes", nullable=True, encoding="dictionary"),
)
INTS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, 1, -1, 127, 128, 2**63 - 1, -(2**63)]))
FLOATS = st.one_of(st.floats(width=32), st.sampled_from([0.0, -0.0, float("nan"), float("inf"), -float("inf")]))
BYTES = st.one_of(st.binary(max_size=6), st.sampled_from([b"", b"\x00", "ü".encode(), b"x" * 130, b"\xff\xfe"]))
VALUES = {"int64": INTS, "float32": FLOATS, "bytes": BYTES}


def batch_of(rows: dict[str, list], columns=COLUMNS) -> pa.RecordBatch:
    arrays = []
    for column in columns:
        values = rows[column.name]
        if column.type == "float32":
            mask = np.array([v is None for v in values], bool)
            array = pa.array(np.array([0 if v is None else v for v in values], np.float32), mask=mask)
        else:
            array = pa.array(values, column.arrow)
        arrays.append(array.dictionary_encode() if column.encoding == "dictionary" else array)
    return pa.RecordBatch.from_arrays(arrays, names=[c.name for c in columns])


@st.composite
def batches(draw, min_rows=0, max_rows=16) -> pa.RecordBatch:
    n = draw(st.integers(min_rows, max_rows))
    made = {}
    for column in COLUMNS:
        value = st.one_of(st.none(), VALUES[column.type]) if column.nullable else VALUES[column.type]
        all_null = column.nullable and draw(st.integers(0, 5)) == 0
        made[column.name] = [None] * n if all_null else draw(st.lists(value, min_size=n, max_size=n))
    return batch_of(made)


def bits(batch: pa.RecordBatch) -> dict[str, list]:
    """Values that compare by their bits: NaN equals itself and -0.0 is not 0.0."""
    found = {}
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        values = array.to_pylist()
        found[name] = [struct.pack("<f", v) if isinstance(v, float) else v for v in values]
    return found


@given(batches(min_rows=1))
@examples(80)
def test_a_record_depends_on_its_rows_alone(batch):
    """Not on the batch they are a slice of, and not on that batch's dictionary."""
    wanted = encode(batch, COLUMNS)
    tables = [pa.Table.from_batches([batch])] * 3
    whole = pa.concat_tables(tables).unify_dictionaries().combine_chunks().to_batches()[0]
    assert encode(whole.slice(batch.num_rows, batch.num_rows), COLUMNS) == wanted
    shuffled = []
    for array in batch.columns:
        if pa.types.is_dictionary(array.type):
            values = [b"unused 1", *reversed(array.dictionary.to_pylist()), b"unused 2"]
            places = [None if v is None else values.index(v) for v in array.to_pylist()]
            array = pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), pa.array(values, pa.binary()))
        shuffled.append(array)
    assert encode(pa.RecordBatch.from_arrays(shuffled, names=batch.schema.names), COLUMNS) == wanted


@pytest.mark.parametrize(
    "dictionary, indices",
    [
        ([b"a", b"b", b"a"], [2, 1, 0, None]),  # a value twice
        ([b"b", None, b"a"], [2, 0, 2, 1]),  # null as a value
        ([b"z"] * 5000 + [b"b", b"a"], [5001, 5000, 5001, None]),  # far larger than the record
    ],
)
def test_odd_dictionaries_give_the_same_bytes(dictionary, indices):
    column = Column(name="d", type="bytes", nullable=True, encoding="dictionary")
    array = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(dictionary, pa.binary()))
    odd = encode(pa.RecordBatch.from_arrays([array], names=["d"]), [column])
    assert odd == encode(batch_of({"d": [b"a", b"b", b"a", None]}, [column]), [column])


def test_a_record_holds_only_the_dictionary_values_it_uses_by_first_appearance():
    found = features(encode(batch_of({"d": [b"y", b"x", b"y"]}, COLUMNS[6:7]), COLUMNS[6:7]))
    assert found["d/dict"] == (wire.BYTES, [b"y", b"x"]) and found["d/codes"][1].tolist() == [0, 1, 0]


def test_null_slots_are_stored_as_zero_whatever_lies_in_them():
    raw = pa.array(np.array([1.5, 99.0], np.float32), mask=np.array([False, True]))
    assert np.frombuffer(raw.buffers()[1], np.float32)[1] == 99.0
    column = Column(name="f", type="float32", nullable=True)
    found = features(encode(pa.RecordBatch.from_arrays([raw], names=["f"]), [column]))
    assert found["f"][1].tolist() == [1.5, 0.0]


@given(batches(max_rows=60), st.lists(st.integers(0, 60), max_size=6))
@settings(deadline=None)
def test_several_records_at_once_are_those_of_each_alone(batch, cuts):
    ends = sorted({min(cut, batch.num_rows) for cut in cuts} | {batch.num_rows})
    starts = [0, *ends[:-1]]
    sizes = [end - start for start, end in zip(starts, ends, strict=True)]
    apart = [encode(batch.slice(start, size), COLUMNS) for start, size in zip(starts, sizes, strict=True)]
    assert [b"".join(pieces) for pieces in encode_records(batch, sizes, COLUMNS)] == apart


@given(
    st.lists(
        st.one_of(
            st.integers(0, 200), st.integers(2**13, 2**15), st.integers(2**27, 2**57), st.integers(-(2**63), 2**63 - 1)
        ),
        max_size=20,
    ),
    st.lists(st.integers(0, 20), max_size=4),
)
@settings(deadline=None)
def test_varints_of_any_widths_are_those_of_each_value_alone(values, cuts):
    cuts = sorted({min(cut, len(values)) for cut in cuts} | {0, len(values)})
    data, ends = wire.varints_cut(np.array(values, np.int64), np.array(cuts))
    one_by_one = [wire.varint(value & (2**64 - 1)) for value in values]
    assert bytes(data) == b"".join(one_by_one)
    assert varints(bytes(data)).tolist() == values and wire.varint_sizes(np.array(values, np.int64)).sum() == len(data)
    assert ends == [sum(map(len, one_by_one[:cut])) for cut in cuts]


def golden_batch() -> pa.RecordBatch:
    n = np.arange(1000)
    return batch_of(
        {
            "i": (n * 37 % 1013).tolist(),
            "i null": [None if k % 7 == 0 else int(k) * 10**15 - 5 * 10**17 for k in n],
            "f": (n / 8).tolist(),
            "f null": [None if k % 5 == 0 else -k / 3 for k in n.tolist()],
            "s": [b"s" * (k % 200) for k in n.tolist()],
            "s null": [None if k % 3 == 0 else b"%d" % k for k in n.tolist()],
            "d": [b"word %d" % (k % 11) for k in n.tolist()],
            "dé null": [None if k % 2 == 0 else b"%d" % (k % 250) for k in n.tolist()],
        }
    )


def test_golden_bytes_of_a_row_group():
    """Shards in every store were written with these bytes: a change needs a new VERSION of the ingest stage."""
    digest = hashlib.sha256(encode(golden_batch(), COLUMNS)).hexdigest()
    assert digest == "f6b9555bce9badc65f79ca4cb6ed34b7517fa0809c4807e2f54bb2654272bb76"


def test_golden_bytes_of_classic_records():
    digest = hashlib.sha256(b"".join(encode_classic(golden_batch(), COLUMNS))).hexdigest()
    assert digest == "26c41fa2bec64c92e389eda89fbd352254738898515d8952687eb7c3cd8e4afd"


def test_many_rows_whose_lengths_take_several_bytes_come_back_from_one_record_and_from_several_made_at_once():
    batch, sizes = golden_batch(), [1, 129, 870]
    parts = [batch.slice(at, size) for at, size in zip((0, 1, 130), sizes, strict=True)]
    made = [b"".join(pieces) for pieces in encode_records(batch, sizes, COLUMNS)]
    for record, rows in zip([encode(batch, COLUMNS), *made], [batch, *parts], strict=True):
        assert bits(decode(record, COLUMNS)) == bits(rows)


def test_no_rows_and_no_columns():
    empty = batch_of({c.name: [] for c in COLUMNS})
    assert encode_classic(empty, COLUMNS) == []
    assert decode(encode(empty, COLUMNS), COLUMNS).num_rows == 0
    assert encode_classic(batch_of({"i": [1, 2]}, COLUMNS[:1]), []) == [wire.example([])] * 2


@pytest.mark.parametrize("cut", [1, 5, 20, -1])
def test_a_cut_record_is_a_value_error(cut):
    record = encode(batch_of({"i": [1, 2, 3] * 20}, COLUMNS[:1]), COLUMNS[:1])
    with pytest.raises(ValueError):
        decode(record[:cut], COLUMNS[:1])


def test_decode_names_the_feature_that_is_missing_or_of_another_type():
    record = encode(batch_of({"i": [1]}, COLUMNS[:1]), COLUMNS[:1])
    with pytest.raises(ValueError, match="'f'"):
        decode(record, COLUMNS[2:3])
    with pytest.raises(ValueError, match="'i' is not a list of float32"):
        decode(record, [Column(name="i", type="float32", nullable=False)])


def test_a_record_that_protobuf_cannot_read_is_refused(monkeypatch):
    monkeypatch.setattr(module, "_MOST", 1000)
    column = COLUMNS[2:3]
    encode(batch_of({"f": [1.0] * 200}, column), column)
    with pytest.raises(DataError, match="a record of 300 rows takes more than 2 GiB"):
        encode(batch_of({"f": [1.0] * 300}, column), column)
