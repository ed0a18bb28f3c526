"""Coercion: every source type, bad values exactly named, good ones untouched, and no two kinds of nothing confused."""

import datetime
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import DataError
from headway.schema.columns import Column
from headway.tabular.coerce import coerce

NAN, INF = math.nan, math.inf
DAY = datetime.date(1970, 1, 2)


def one(array, type, *, nullable=True, encoding="plain"):
    """(stored values of the good rows, {row: value} of the bad ones)"""
    column = Column(name="x", type=type, nullable=nullable, encoding=encoding)
    done = coerce(pa.RecordBatch.from_arrays([array], names=["x"]), [column])
    stored = done.batch.column(0)
    if encoding == "dictionary":
        assert stored.type == pa.dictionary(pa.int32(), pa.binary())
    else:
        assert stored.type == column.arrow
    bad = {row["row"]: row["value"] for row in done.rejected.to_pylist()}
    kept = list(range(len(array))) if done.fitting_rows is None else done.fitting_rows.tolist()
    assert sorted([*kept, *bad]) == list(range(len(array)))
    assert all(row["column"] == "x" and row["reason"] for row in done.rejected.to_pylist())
    return stored.to_pylist(), bad


def same(left, right):
    return len(left) == len(right) and all(
        a == b and math.copysign(1, a) == math.copysign(1, b)
        if isinstance(a, float) and isinstance(b, float) and not math.isnan(a)
        else a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))
        for a, b in zip(left, right, strict=True)
    )


# --- every source type


@pytest.mark.parametrize(
    ("array", "type", "values", "bad"),
    [
        (pa.array([1, None, -128], pa.int8()), "int64", [1, None, -128], {}),
        (pa.array([1, None], pa.uint32()), "int64", [1, None], {}),
        (pa.array([1, None, 2**63, 2**60 + 1], pa.uint64()), "int64", [1, None, 2**60 + 1], {2: "9223372036854775808"}),
        (pa.array([2**63 - 1, -(2**63), 0]), "int64", [2**63 - 1, -(2**63), 0], {}),
        (pa.array([True, None, False]), "int64", [1, None, 0], {}),
        (pa.array(np.array([2, NAN, 1.5], np.float16)), "int64", [2, None], {2: "1.5"}),
        (
            pa.array([1.0, None, NAN, -0.0, -(2.0**63), 2.0**63, INF, 0.5]),
            "int64",
            [1, None, None, 0, -(2**63)],
            {5: "9.223372036854776e+18", 6: "inf", 7: "0.5"},
        ),
        (
            pa.array([Decimal("1.0"), None, Decimal("1152921504606846977.0"), Decimal("0.5")]),
            "int64",
            [1, None, 1152921504606846977],
            {3: "0.5"},
        ),
        (pa.array([DAY, None]), "int64", [1, None], {}),
        (pa.array([DAY, None], pa.date64()), "int64", [1, None], {}),
        (pa.array([1, None], pa.timestamp("s")), "int64", [1_000_000, None], {}),
        (pa.array([1999, None], pa.timestamp("ns")), "int64", [1, None], {}),
        (pa.array([1, None], pa.timestamp("ms", "America/New_York")), "int64", [1000, None], {}),
        (pa.array([1, None], pa.time32("s")), "int64", [1_000_000, None], {}),
        (pa.array([1999, None], pa.time64("ns")), "int64", [1, None], {}),
        (pa.array([1, None], pa.duration("s")), "int64", [1_000_000, None], {}),
        (pa.nulls(2), "int64", [None, None], {}),
        (pa.array([1, 2, None]).dictionary_encode(), "int64", [1, 2, None], {}),
        (pa.array(["1", "b", None, "1"]).dictionary_encode(), "int64", [1, None, 1], {1: "b"}),
        (pa.array(["1", "", None], pa.large_string()), "int64", [1, None], {1: ""}),
        (pa.array([b"1", b"\xff", None]), "int64", [1, None], {1: "\\xff"}),
        (pa.array([1, None, 2**53 + 1]), "float32", [1.0, None, 2.0**53], {}),
        (pa.array([True, None, False]), "float32", [1.0, None, 0.0], {}),
        (pa.array(np.array([1.5, NAN], np.float16)), "float32", [1.5, NAN], {}),
        (pa.array([1.5, None, NAN, INF, -0.0], pa.float32()), "float32", [1.5, None, NAN, INF, -0.0], {}),
        (
            pa.array([1.5, None, NAN, -INF, -0.0, 1e39, -1e39, 1e-60]),
            "float32",
            [1.5, None, NAN, -INF, -0.0, 0.0],
            {5: "1e+39", 6: "-1e+39"},
        ),
        (pa.array([NAN, NAN]), "float32", [NAN, NAN], {}),
        (pa.array([Decimal("0.5"), None]), "float32", [0.5, None], {}),
        (pa.array([2**64 - 1], pa.uint64()), "float32", [2.0**64], {}),
        (pa.nulls(2), "float32", [None, None], {}),
        (pa.array(["1.5", "x", None]).dictionary_encode(), "float32", [1.5, None], {1: "x"}),
        (pa.array([b"1.5", b"\xff\xfe", None, b""]), "float32", [1.5, None], {1: "\\xff\\xfe", 3: ""}),
        (pa.array(["a", "", None]), "bytes", [b"a", b"", None], {}),
        (pa.array(["a", "", None], pa.large_string()), "bytes", [b"a", b"", None], {}),
        (pa.array([b"\xff", None], pa.large_binary()), "bytes", [b"\xff", None], {}),
        (pa.array([b"\xff\x00", None], pa.binary(2)), "bytes", [b"\xff\x00", None], {}),
        (pa.array(["a", None], pa.string_view()), "bytes", [b"a", None], {}),
        (pa.array([True, None]), "bytes", [b"true", None], {}),
        (pa.array([7, None]), "bytes", [b"7", None], {}),
        (pa.array([1.5, None, 1.0]), "bytes", [b"1.5", None, b"1"], {}),
        (pa.array([DAY, None]), "bytes", [b"1970-01-02", None], {}),
        (pa.array([1, None], pa.timestamp("s")), "bytes", [b"1970-01-01 00:00:01", None], {}),
        (pa.nulls(2), "bytes", [None, None], {}),
        (pa.array(["a", "b", None, "a"]).dictionary_encode(), "bytes", [b"a", b"b", None, b"a"], {}),
        (pa.array([1, 2, None]).dictionary_encode(), "bytes", [b"1", b"2", None], {}),
        (
            pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["1", None])),
            "bytes",
            [b"1", None, None],
            {},
        ),
        (pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["1", None])), "int64", [1, None, None], {}),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else None,
)
def test_what_is_stored_of_each_source_type(array, type, values, bad):
    wide = pa.concat_arrays([array, array]).slice(len(array))  # and not from the beginning of its buffers
    for raw in (array, wide):
        stored, rejected = one(raw, type)
        assert same(stored, values), stored
        assert rejected == bad
        if type == "bytes":
            assert one(raw, type, encoding="dictionary")[0] == values


@pytest.mark.parametrize("type", ["int64", "float32", "bytes"])
@pytest.mark.parametrize(
    "array",
    [pa.array([[1]]), pa.array([{"a": 1}]), pa.array([(1, 2, 3)], pa.month_day_nano_interval())],
    ids=lambda array: str(array.type),
)
def test_what_can_never_be_stored_is_a_data_error_with_column_and_fix(array, type):
    with pytest.raises(DataError, match=r"column 'x'(.|\n)*columns: \{x: ignore\}"):
        one(array, type)


@pytest.mark.parametrize(
    "array", [pa.array([DAY]), pa.array([1], pa.timestamp("s"))], ids=lambda array: str(array.type)
)
def test_a_moment_is_no_float(array):
    with pytest.raises(DataError, match="cannot be stored as float32"):
        one(array, "float32")


# --- numbers that were written as text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        (" 5\t", 5),
        ("+5", 5),
        ("-0", 0),
        ("007", 7),
        ("0" * 30 + "1", 1),
        ("1.0", 1),
        ("-3.", -3),
        ("true", 1),
        ("FALSE", 0),
        ("0x1f", 31),
        ("0xFFFFFFFFFFFFFFFF", -1),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
    ],
)
@pytest.mark.parametrize("neighbour", ["1", "99999999999999999999", "x"])
def test_integers_as_text(text, value, neighbour):
    assert one(pa.array([neighbour, text]), "int64")[0][-1] == value


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "x", "1.5", "1e3", "1_0", "1,000", "0x", "-0x1", "0x1FFFFFFFFFFFFFFFF", "٣", "9223372036854775808", "--1",
        "nan", ".",
    ],
)  # fmt: skip
def test_what_is_no_integer(text):
    assert one(pa.array(["1", text, None, "2"]), "int64") == ([1, None, 2], {1: text})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.5", 1.5),
        ("+1.5", 1.5),
        (" 1.", 1.0),
        ("-.5", -0.5),
        ("-0", -0.0),
        ("1e5", 1e5),
        ("1E-2", 0.01),
        ("inf", INF),
        ("-Infinity", -INF),
        ("NaN", NAN),
        ("nan(1)", NAN),
    ],
)
def test_floats_as_text(text, value):
    stored, bad = one(pa.array(["1", text]), "float32")
    assert not bad and same(stored[1:], [float(np.float32(value))])


@pytest.mark.parametrize(
    "text", ["", "x", "0x10", "1_0", "1,5", "1e39", "-1e39", "1e400", "-1e400", "e5", "٣", "true", "1d", "infinit", "."]
)
def test_what_is_no_float32(text):
    assert one(pa.array(["1", text, None]), "float32") == ([1.0, None], {1: text})


@given(st.lists(st.integers(-(2**70), 2**70) | st.none()))
def test_any_integers_as_text(values):
    fits = {i: v for i, v in enumerate(values) if v is None or -(2**63) <= v < 2**63}
    stored, bad = one(pa.array([None if v is None else str(v) for v in values], pa.string()), "int64")
    assert stored == list(fits.values())
    assert bad == {i: str(v) for i, v in enumerate(values) if i not in fits}


@given(st.lists(st.floats() | st.none()))
def test_any_doubles(values):
    with np.errstate(over="ignore"):
        narrow = [None if v is None else float(np.float32(v)) for v in values]
    pairs = [n for v, n in zip(values, narrow, strict=True) if v is None or math.isfinite(n) or not math.isfinite(v)]
    as_numbers, bad = one(pa.array(values, pa.float64()), "float32")
    assert same(as_numbers, pairs)
    as_text, bad_text = one(pa.array([None if v is None else repr(v) for v in values], pa.string()), "float32")
    assert same(as_text, pairs) and bad.keys() == bad_text.keys()


@given(st.lists(st.sampled_from(["1", "2.0", "", "x", "0x1f", " 7", "1e39", "nan", "true", "é", None]), max_size=12))
@pytest.mark.parametrize("type", ["int64", "float32"])
def test_a_values_fate_does_not_hang_on_its_neighbours(type, texts):
    stored, bad = one(pa.array(texts, pa.string()), type)
    alone = [one(pa.array([text], pa.string()), type) for text in texts]
    assert same(stored, [value for values, _ in alone for value in values])
    assert bad == {i: text for i, (text, (_, wrong)) in enumerate(zip(texts, alone, strict=True)) if wrong}


# --- several columns


def test_a_null_where_none_may_be_costs_the_row():
    assert one(pa.array([1, None, 3]), "int64", nullable=False) == ([1, 3], {1: None})
    assert one(pa.array(["1", None, "x"]), "int64", nullable=False) == ([1], {1: None, 2: "x"})
    assert one(pa.array([1.0, NAN]), "float32", nullable=False)[1] == {}  # NaN is not null
    assert one(pa.array([1.0, NAN]), "int64", nullable=False)[1] == {1: "nan"}
    assert one(pa.array(["", None]), "bytes", nullable=False, encoding="dictionary") == ([b""], {1: None})


def test_a_row_with_several_bad_values_is_rejected_once_and_for_the_first_column():
    batch = pa.RecordBatch.from_pydict(
        {"a": ["1", "x", "3", None], "b": ["x", "y", "1", "2"], "c": [b"p", b"q", b"r", b"s"]}
    )
    columns = [Column(name=name, type="int64", nullable=name == "b") for name in "ab"]
    done = coerce(batch, [*columns, Column(name="c", type="bytes", nullable=True)])
    assert done.batch.to_pydict() == {"a": [3], "b": [1], "c": [b"r"]}
    assert done.fitting_rows.tolist() == [2]
    told = [(row["row"], row["column"], row["value"], row["reason"]) for row in done.rejected.to_pylist()]
    assert told == [
        (0, "b", "x", "is not an integer that fits int64"),
        (1, "a", "x", "is not an integer that fits int64"),
        (3, "a", None, "is null, but the column is not nullable"),
    ]


def test_only_the_named_columns_in_the_named_order():
    batch = pa.RecordBatch.from_pydict({"a": [1], "b": [2], "c": [[3]]})
    done = coerce(batch, [Column(name=name, type="int64", nullable=True) for name in "ba"])
    assert done.batch.schema.names == ["b", "a"] and done.fitting_rows is None and done.rejected.num_rows == 0


def test_a_missing_column_is_named_with_a_close_one_and_two_of_a_name_are_refused():
    batch = pa.RecordBatch.from_pydict({"fare": [1]})
    with pytest.raises(DataError, match=r"no column 'fair'(.|\n)*did you mean 'fare'"):
        coerce(batch, [Column(name="fair", type="int64", nullable=True)])
    both = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(DataError, match="2 columns 'a'"):
        coerce(both, [Column(name="a", type="int64", nullable=True)])


def test_empty_batches_keep_their_types():
    for type in ("int64", "float32", "bytes"):
        for raw in (pa.int64(), pa.float64(), pa.string(), pa.dictionary(pa.int32(), pa.string()), pa.null()):
            assert one(pa.array([], raw), type) == ([], {})
