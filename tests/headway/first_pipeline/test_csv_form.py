"""How a CSV file is written: separators, headers, words for a missing value."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.first_pipeline.csv_form import csv_form, null_values, null_words

CELLS = st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=1, max_size=6)


@given(
    st.sampled_from([",", ";", "\t", "|"]),
    st.integers(2, 6).flatmap(lambda width: st.lists(st.tuples(*[CELLS] * width), min_size=4, max_size=9)),
)
def test_the_separator_of_a_table_is_found(delimiter, rows):
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows([[f"c{i}" for i in range(len(rows[0]))], *rows])
    assert csv_form(text.getvalue()) == ({} if delimiter == "," else {"delimiter": delimiter})


def test_a_decimal_comma_and_a_date_with_a_comma_separate_nothing():
    assert csv_form("a;b\n1,5;2,5\n3,5;4,5\n") == {"delimiter": ";"}
    assert csv_form("day\tx\nJan 3, 2013\t1\nFeb 4, 2013\t2\n") == {"delimiter": "\t"}
    assert csv_form('name,x\n"a; b; c",1\n"d; e; f",2\n') == {}
    assert csv_form("time,x\n10:00,1\n11:00,2\n") == {}
    assert csv_form("a b\n1 2\n3 4\n") == {"delimiter": " "}


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("5.1,3.5,setosa\n4.9,3.0,setosa\n4.7,3.2,virginica\n", False),
        ("a,b,kind\n4.9,3.0,setosa\n4.7,3.2,virginica\n", True),
        ("country,2010,2011\nNorway,1,2\nChad,3,4\n", False),  # a row, as far as anyone can tell
        (",a\n0,1\n1,2\n", True),
        ("name,kind\nx,y\nz,y\n", True),
        ("1,2\n", True),
    ],
)
def test_a_first_line_of_numbers_is_a_row(text, header):
    assert ("header" not in csv_form(text)) == header


def test_words_for_a_missing_value():
    assert null_words(["x", "?", " NaN", "none"]) == ("?", "NaN")
    assert null_values(("?",)) == ["", "NA", "?"]
