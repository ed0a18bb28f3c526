"""How a CSV file is written: separators, quotes, headers."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.first_pipeline.csv_form import csv_form

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
        ("country,2009,2010,2011\nNorway,1,2,4\nChad,3,4,4\n", True),
        ("0,1,2,3,4\n5.1,3.5,1.4,0.2,setosa\n4.9,3.0,1.4,0.2,setosa\n", True),  # as pandas writes an array
        ("1,2,3\n4,5,6\n7,8,9\n", False),
        ("3,4,5\n3,5,4\n5,4,3\n4,3,5\n5,4,5\n", False),  # ranks
        (",a\n0,1\n1,2\n", True),
        ("name,kind\nx,y\nz,y\n", True),
        ("2/28/2008,1:00:00,NaN\n2/28/2008,2:00:00,NaN\n2/29/2008,13:00:00,4.5\n", False),
        ("Sat, 22 Apr 2017 15:11\nFri, 12 May 2017 14:20\nSat, 21 June 2017 14:08\n", False),
        ("day,2013 - 14,2014 - 15\n1/1/2013,1%,2%\n1/2/2013,1%,3%\n", True),
        ("a,1,1,0,x\nb,1,2,0,y\na,2,1,0,x\n", False),  # values that repeat
        ("1,2\n", True),
    ],
)
def test_a_first_line_of_numbers_is_a_row_unless_they_count_up(text, header):
    assert ("header" not in csv_form(text)) == header


@pytest.mark.parametrize(
    ("lines", "form"),
    [
        (['"say \\"hi\\", x",1'], {"escape": "\\"}),
        (["a\\, b,1"], {"escape": "\\"}),
        (['"Heroes,1', '12" Remix,2'], {"quote": ""}),
        (['"a, b",1', '"12" pipe",2', '"c, d",3'], {}),
        (['5" pipe,1', '"a ""b"", c",2'], {}),
        (['"C:\\dir\\",1', '"a, b",2'], {}),
    ],
)
def test_the_way_to_write_quotes_is_the_one_that_rejects_the_fewest_lines(lines, form):
    assert csv_form("\n".join(["name,x", *lines * 20, *["a,1", "b,2"] * 20, ""])) == form


TABLE = "age,price,city\n30,1.5,Bonn\n40,2.5,Köln\n50,3.5,Bonn\n"


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("Sales of 2020\n\n" + TABLE, {"skip_lines": 2}),
        ("Sales, branch 7,\n,,\n" + TABLE, {"skip_lines": 2}),
        ("Sales,,\n,,\n" + TABLE, {"skip_lines": 2}),
        ("# by: a tool, all rows\n# second\n" + TABLE, {"skip_lines": 2}),
        ("\n\n" + TABLE, {"skip_lines": 2}),
        ("Sales\x0c of\u2028 2020\rand more\n\n" + TABLE, {"skip_lines": 2}),
        ("a,a\x85,a\n1,2,x\n3,4,y\n", {"skip_lines": 1, "header": False, "names": ["a", "a_2", "a_3"]}),
        ('sep="\n' + TABLE, {"skip_lines": 1}),
        ("sep=,\n" + TABLE, {"skip_lines": 1}),
        ("sep=;\na;b\n1,5;2\n", {"delimiter": ";", "skip_lines": 1}),
        ("Report: a, b\n\nx;y;z\n1;2,5;3\n4;5,5;6\n7;8,5;9\n", {"delimiter": ";", "skip_lines": 2}),
        ("Report: 3, 4\n\n" + TABLE, {"skip_lines": 2}),
        ("Report: 3, 4\n\nx,y\n1,2\n3,4\n", {"skip_lines": 2}),
        ("Report: 3, 4\n\nx~y\n1~2\n3~4\n", {"delimiter": "~", "skip_lines": 2}),
        (TABLE.replace(",", "^"), {"delimiter": "^"}),
        (TABLE.replace("Bonn", "'Bonn, Rhein'").replace("Köln", "'Köln, Rhein'"), {"quote": "'"}),
        ("'a','b'\n1,2\n3,4\n", {"quote": "'"}),
        ("name,x\nit's,1\nthat's,2\n", {}),
        ("a,a,\n1,2,x\n3,4,y\n", {"skip_lines": 1, "header": False, "names": ["a", "a_2", "column_3"]}),
        (",a,b\n1,2,x\n2,4,y\n", {}),  # the index of a data frame
        (",a,b\nx,2,x\nx,4,y\n", {"skip_lines": 1, "header": False, "names": ["column_1", "a", "b"]}),
        ("a,b\n1,2,x\n3,4,y\n", {"skip_lines": 1, "header": False, "names": ["row_names", "a", "b"]}),
        ("a,b\n1,2,\n3,4,\n", {"skip_lines": 1, "header": False, "names": ["a", "b", "column_3"]}),
        (
            "# x y\n1.0 2.0\n3.0 4.0\n5.0 6.0\n",
            {"delimiter": " ", "skip_lines": 1, "header": False, "names": ["column_1", "column_2"]},
        ),
        ("red,s\n" + "blue,s\nred,m\n" * 6, {"header": False, "names": ["column_1", "column_2"]}),
        ("?,a,1\n2,b,3\n4,a,5\n", {"header": False, "names": ["column_1", "column_2", "column_3"]}),
    ],
)
def test_odd_forms_of_a_table_are_found(text, form):
    assert csv_form(text) == form
