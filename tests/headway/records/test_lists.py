"""Lists and vectors in records: null, empty, NaN and zero stay four different things, in row groups and in single rows."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.records.decode import decode
from headway.records.encode import classic_spec, encode, encode_classic, feature_spec
from headway.schema.columns import Column
from tests.properties import examples

ELEMENTS = {
    "int64": st.one_of(st.integers(-(2**63), 2**63 - 1), st.just(0)),
    "float32": st.one_of(st.floats(width=32), st.sampled_from([0.0, float("nan")])),
    "bytes": st.one_of(st.binary(max_size=3), st.sampled_from([b"", b"a"])),
}


@st.composite
def tables(draw):
    rows = draw(st.integers(1, 8))
    columns, arrays = [], []
    for number in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(sorted(ELEMENTS)))
        shape = draw(st.sampled_from([(), (None,), (2,), (1,)]))
        encoding = draw(st.sampled_from(["plain", "dictionary"])) if kind == "bytes" else "plain"
        column = Column(name=f"c{number}", type=kind, nullable=draw(st.booleans()), encoding=encoding, shape=shape)
        value = ELEMENTS[kind]
        if shape:
            low, high = (0, 3) if column.is_list else (shape[0], shape[0])
            value = st.lists(value, min_size=low, max_size=high)
        values = draw(st.lists(st.one_of(st.none(), value) if column.nullable else value, min_size=rows, max_size=rows))
        columns.append(column)
        arrays.append(pa.array(values, column.arrow, from_pandas=False))
    return columns, pa.RecordBatch.from_arrays(arrays, names=[c.name for c in columns])


def same(left, right):
    """Equal values; text of Python objects tells NaN from null and 0.0 from -0.0."""
    left.validate(full=True)
    assert [field.type for field in left.schema] == [field.type for field in right.schema]
    assert repr(left.to_pydict()) == repr(right.to_pydict())


@settings(deadline=None)
@given(tables())
def test_decode_undoes_encode(table):
    columns, batch = table
    same(decode(encode(batch, columns), columns), batch)


@settings(deadline=None)
@given(tables(), st.integers(0, 8))
def test_a_record_depends_on_its_rows_alone(table, start):
    columns, batch = table
    piece = batch.slice(start)
    copied = [pa.array(piece.column(c.name).to_pylist(), c.arrow, from_pandas=False) for c in columns]
    assert encode(piece, columns) == encode(pa.RecordBatch.from_arrays(copied, names=piece.schema.names), columns)


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


@examples(40)
@given(tables())
def test_stock_tf_io_parses_them_with_the_feature_spec(tf, table):
    columns, batch = table
    kinds = {"int64": tf.int64, "float32": tf.float32, "string": tf.string}

    def features(spec):
        made = {}
        for name, entry in spec.items():
            kind, shape = kinds[entry["dtype"]], entry.get("shape", [])
            if entry["kind"] == "sequence":
                made[name] = tf.io.FixedLenSequenceFeature(shape, kind, allow_missing=True)
            elif entry["kind"] == "scalar":
                made[name] = tf.io.FixedLenFeature(shape, kind)
            else:
                made[name] = tf.io.RaggedFeature(kind)
        return made

    group = tf.io.parse_single_example(encode(batch, columns), features(feature_spec(columns)))
    single = tf.io.parse_example(encode_classic(batch, columns), features(classic_spec(columns)))
    for column in columns:
        values = batch.column(column.name).to_pylist()
        if column.is_list:
            lengths = [len(value or []) for value in values]
            assert group[f"{column.name}/lengths"].numpy().tolist() == lengths
            assert single[column.name].row_lengths().numpy().tolist() == lengths
        if column.nullable:
            present = [value is not None for value in values]
            assert (group[f"{column.name}/present"].numpy() != 0).tolist() == present
            if column.is_list:
                assert (single[f"{column.name}/present"].numpy() != 0).tolist() == present
        name = f"{column.name}/values" if column.is_list else column.name
        slots = group[f"{column.name}/codes" if column.encoding == "dictionary" else name].numpy()
        if column.encoding == "dictionary":
            slots = np.array(group[f"{column.name}/dict"].numpy().tolist() or [b""], object)[slots]
        if not column.is_list:  # a null has a slot, and a list that is null has none
            slots = slots[[value is not None for value in values]]
        held = [value for value in values if value is not None]
        flat = [x for value in held for x in value] if column.shape else held
        np.testing.assert_array_equal(slots.ravel(), np.array(flat, dtype=slots.dtype))
