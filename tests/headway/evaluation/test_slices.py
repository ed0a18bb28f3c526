"""Slices: by value, crossed, by quantile bins; and which are chosen where nobody names any."""

import numpy as np
import pyarrow as pa
import pytest

from headway.errors import DataError
from headway.evaluation.slices import choose_slices, parts_of, slice_columns, slice_rows, slice_text

TABLE = pa.table(
    {
        "carrier": ["AA", "B6", None, "AA", "B6", "AA"],
        "origin": ["JFK", "JFK", "LGA", "LGA", "JFK", "LGA"],
        "distance": ["100", "250", "300", None, "nan", "400"],
        "same": [7] * 6,
    }
)


def rows(name, **options):
    return {value: at.tolist() for value, at in slice_rows(TABLE, name, **options)}


def test_one_slice_for_each_value():
    assert rows("carrier") == {"(null)": [2], "AA": [0, 3, 5], "B6": [1, 4]}
    assert rows("carrier", min_rows=2) == {"AA": [0, 3, 5], "B6": [1, 4]}


def test_crossed_columns_have_a_slice_for_each_pair_that_occurs():
    assert rows("carrier x origin") == {"(null) x LGA": [2], "AA x JFK": [0], "AA x LGA": [3, 5], "B6 x JFK": [1, 4]}
    wanted = {"JFK x AA x 7": [0], "JFK x B6 x 7": [1, 4], "LGA x (null) x 7": [2], "LGA x AA x 7": [3, 5]}
    assert rows("origin x carrier x same") == wanted


def test_a_number_is_cut_at_its_quantiles():
    assert rows("distance: 2") == {"distance <= 250": [0, 1], "distance > 250": [2, 5], "(null)": [3, 4]}
    bins = ["distance <= 100", "100 < distance <= 250", "250 < distance <= 300", "distance > 300", "(null)"]
    assert list(rows("distance:4")) == bins
    assert rows("same: 4") == {"same 7": [0, 1, 2, 3, 4, 5]}
    assert rows("origin x distance: 2")["JFK x distance <= 250"] == [0, 1]


def test_a_dictionary_has_the_slices_of_its_values():
    for name in ("carrier", "origin", "carrier x origin", "distance: 2"):
        for column in ("carrier", "origin", "distance"):
            encoded = TABLE.set_column(
                TABLE.column_names.index(column), column, TABLE.column(column).dictionary_encode()
            )
            found = {value: at.tolist() for value, at in slice_rows(encoded.slice(1), name)}
            assert found == {value: at.tolist() for value, at in slice_rows(TABLE.slice(1), name)}


def test_bins_of_many_rows_hold_as_many_each():
    table = pa.table({"x": np.random.default_rng(0).normal(size=10_000)})
    assert [len(at) for _, at in slice_rows(table, "x: 4")] == [2500] * 4


def test_every_row_is_in_one_slice():
    r = np.random.default_rng(1)
    table = pa.table({"a": r.integers(0, 5, 999), "b": r.integers(0, 7, 999), "x": r.normal(size=999)})
    for name in ("a", "a x b", "x: 3", "a x x: 3"):
        found = np.concatenate([at for _, at in slice_rows(table, name)])
        assert sorted(found.tolist()) == list(range(999))


def test_what_cannot_be_sliced_is_an_error():
    with pytest.raises(DataError, match="no column 'carier' to slice by"):
        rows("carier x origin")
    with pytest.raises(DataError, match="'carrier' holds no numbers to cut into bins"):
        rows("carrier: 3")
    with pytest.raises(ValueError, match="2 to 100 bins"):
        parts_of("distance: 1")
    assert slice_columns(["carrier x origin", "distance: 4", "origin"]) == ("carrier", "origin", "distance")
    assert slice_columns(None) == ()


STATISTICS = [
    {"column": name, "type": kind, "distinct": distinct}
    for name, kind, distinct in [
        ("constant", "bytes", 1),
        ("carrier", "bytes", 16),
        ("dest", "bytes", 105),
        ("month", "int64", 12),
        ("distance", "float32", 200),
        ("delay", "float32", 500),
        ("noise", "float32", 900),
        ("flag", "int64", 2),
        ("origin", "bytes", 3),
        ("kind", "bytes", 4),
        ("id", "int64", 9000),
        ("label", "int64", 2),
    ]
]
STRENGTHS = {"delay": 0.9, "distance": 0.7, "month": 0.6, "origin": 0.58, "kind": 0.56, "flag": 0.55, "noise": 0.5}


def chosen(rows=10_000, strengths=STRENGTHS):
    eligible = [row["column"] for row in STATISTICS if row["column"] != "id"]
    return choose_slices(STATISTICS, strengths, eligible=eligible, rows=rows, least=200)


def test_the_strongest_columns_are_chosen():
    assert chosen() == ("month", "origin", "kind", "flag", "delay: 4", "distance: 4")
    assert chosen(rows=399) == ()


def test_without_strengths_the_choice_goes_by_name():
    assert chosen(strengths={}) == ("carrier", "flag", "kind", "month", "delay: 4", "distance: 4")


def test_a_column_whose_name_reads_as_another_slice_is_not_chosen():
    for name in (" kind", "a x b", "price: 2", "price: 1"):
        statistics = [{"column": name, "type": "bytes", "distinct": 3}]
        assert choose_slices(statistics, {}, eligible=[name], rows=10_000, least=200) == ()


def test_a_bin_of_a_column_called_x_is_told_as_one():
    assert slice_text("x: 5", "-0.2 < x <= 0.3") == "-0.2 < x <= 0.3"
    assert slice_text("city x x: 5", "Oslo x -0.2 < x <= 0.3") == "city=Oslo and -0.2 < x <= 0.3"
    assert slice_text("x: 5 x city", "x <= -0.2 x Oslo") == "x <= -0.2 and city=Oslo"
