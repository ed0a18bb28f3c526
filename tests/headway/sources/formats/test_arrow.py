"""Arrow files and streams, and Parquet with the types that teams have."""

import datetime
import decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headway.errors import DataError
from headway.schema_inference.column_types import infer
from headway.tabular.coerce import coerce

TABLE = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int32()),
        "s": pa.array(["x", None, "", "x"]).dictionary_encode(),
        "big": pa.array(["a", "b", None, "d"], pa.large_string()),
        "when": pa.array([datetime.datetime(2013, 1, 1, 6), None] * 2, pa.timestamp("ms")),
        "day": pa.array([datetime.date(2013, 1, 2)] * 4),
        "yes": pa.array([True, False, None, True]),
        "price": pa.array(
            [decimal.Decimal("1.25"), None, decimal.Decimal(0), decimal.Decimal(-1)], pa.decimal128(9, 2)
        ),
        "l": pa.array([[1, 2], [], None, [3]], pa.list_(pa.int16())),
        "v": pa.array([[1.0, 2.0], None, [3.0, float("nan")], [0.0, 0.0]], pa.list_(pa.float64(), 2)),
        "a": pa.array([{"b": 1, "c": {"d": "q"}}, None, {"b": None, "c": None}, {"b": 4, "c": {"d": ""}}]),
    }
)


def in_bytes(how, table=TABLE, rows=1):
    out = pa.BufferOutputStream()
    if how == "parquet":
        if table is TABLE:
            vectors = pa.array([[1.0, 2.0], [9.0, 9.0], [3.0, float("nan")], [0.0, 0.0]], pa.list_(pa.float64(), 2))
            table = table.set_column(table.schema.get_field_index("v"), "v", vectors)
        pq.write_table(table, out, row_group_size=rows)
    else:
        with (pa.ipc.new_file if how == "file" else pa.ipc.new_stream)(out, table.schema) as writer:
            writer.write_table(table.unify_dictionaries(), max_chunksize=rows)
    return out.getvalue().to_pybytes()


@pytest.mark.parametrize("how", ["file", "stream", "parquet"])
@pytest.mark.parametrize("small", [1, 2, 100])
def test_every_type_comes_out_as_it_went_in(opened, read_all, how, small):
    found = opened("parquet" if how == "parquet" else "arrow", in_bytes(how), small=small)
    source, files = found
    assert source.names(files[0]) == [*TABLE.column_names[:-1], "a.b", "a.c.d"]
    assert len(source.ranges(files)) == (1 if how == "stream" else max(1, 4 // small))
    types = {"v": None, "id": None, "a.c.d": None, "a.b": None, "l": None, "s": pa.dictionary(pa.int32(), pa.binary())}
    rows, malformed = read_all(found, types)
    assert not malformed and repr(rows) == repr([
        (0, [1.0, 2.0], 1, "q", 1, [1, 2], rows[0][6]), (1, [9.0, 9.0] if how == "parquet" else None, 2, None, None, [], None),
        (2, [3.0, float("nan")], 3, None, None, None, rows[2][6]), (3, [0.0, 0.0], 4, "", 4, [3], rows[3][6]),
    ])  # fmt: skip
    assert [row[6] for row in rows] in (["x", None, "", "x"], [b"x", None, b"", b"x"])


@pytest.mark.parametrize("how", ["file", "stream", "parquet"])
def test_a_prefix_shows_what_can_be_stored(opened, how):
    source, files = opened("parquet" if how == "parquet" else "arrow", in_bytes(how, rows=4))
    prefix = source.sample(files, 100)
    schema, notes = infer(prefix, {}, only=False, needed=frozenset(), where="x")
    assert not notes and [(c.type, c.shape) for c in schema.columns] == [
        ("int64", ()), ("bytes", ()), ("bytes", ()), ("int64", ()), ("int64", ()), ("int64", ()), ("float32", ()),
        ("int64", (None,)), ("float32", (2,)), ("int64", ()), ("bytes", ()),
    ]  # fmt: skip
    (chunk,) = source.read(source.ranges(files)[0], schema.names(), {})
    assert coerce(chunk.batch, schema.columns).rejected.num_rows == 0


@pytest.mark.parametrize(("how", "at"), [("file", "footer"), ("stream", "batch 1"), ("parquet", "footer")])
def test_a_file_that_is_cut_off_says_where(opened, read_all, how, at):
    table = pa.table({"a": pa.array(range(4000))})
    data = in_bytes(how, table, rows=2000)
    with pytest.raises(DataError, match=at) as error:
        read_all(opened("parquet" if how == "parquet" else "arrow", data[: len(data) * 2 // 3]), {"a": pa.int64()})
    assert error.value.where.endswith(("0.arrow", "0.parquet")) and error.value.fix


def test_two_columns_of_one_name_are_refused(opened):
    table = pa.table({"a.b": [1], "a": [{"b": 1}]})
    source, files = opened("arrow", in_bytes("file", table))
    with pytest.raises(DataError, match=r"two columns 'a\.b'"):
        source.names(files[0])


def test_unknown_columns_name_the_known_ones(opened, read_all):
    with pytest.raises(DataError, match="did you mean 'id'"):
        read_all(opened("arrow", in_bytes("file")), {"idd": None})


def test_a_vector_that_parquet_cannot_hold_says_how_to_write_it(opened, read_all):
    out = pa.BufferOutputStream()
    try:
        pq.write_table(TABLE.select(["v"]), out)
    except pa.ArrowNotImplementedError:
        pytest.skip("this pyarrow does not write one either")
    with pytest.raises(DataError, match="fixed-size lists holds a null") as error:
        read_all(opened("parquet", out.getvalue().to_pybytes()), {"v": None})
    assert "pa.list_" in error.value.fix


@pytest.mark.parametrize("how", ["file", "parquet"])
def test_text_in_a_struct_comes_from_several_row_groups(opened, read_all, how):
    # pyarrow cannot read a struct that holds a dictionary over several row groups at once
    table = pa.table({"a": [{"b": i, "c": f"t{i % 3}"} for i in range(10)], "d": [f"u{i % 2}" for i in range(10)]})
    found = opened("parquet" if how == "parquet" else "arrow", in_bytes(how, table, rows=4), small=100)
    text = pa.dictionary(pa.int32(), pa.binary())
    rows, malformed = read_all(found, {"a.b": None, "a.c": text, "d": text})
    texts = [tuple(v.decode() if isinstance(v, bytes) else v for v in row[2:]) for row in rows]
    assert not malformed and texts == [(f"t{i % 3}", f"u{i % 2}") for i in range(10)]
    assert [row[1] for row in rows] == list(range(10))
