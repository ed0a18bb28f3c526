"""Tables of results: to Arrow, to pandas, as text and as HTML."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flows.tell.rendering.tables
from flows.tell.rendering.cells import cell
from flows.tell.rendering.tables import Table
from headway.errors import ConfigError

VALUES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text()
ROWS = st.lists(st.dictionaries(st.sampled_from("abc"), VALUES), max_size=6)


@given(ROWS)
def test_any_rows_become_a_table_of_as_many_rows_and_the_same_columns(rows):
    table = Table("", rows)
    arrow = table.to_arrow()
    assert arrow.column_names == table.columns
    assert not arrow.column_names or arrow.num_rows == len(rows) == len(table)
    assert isinstance(repr(table), str) and "<table>" in table._repr_html_()


def test_a_column_of_mixed_values_is_text_and_others_keep_their_type():
    arrow = Table("", [{"a": 1, "b": 1}, {"a": "x", "c": None}]).to_arrow()
    assert arrow.to_pydict() == {"a": ["1", "x"], "b": [1, None], "c": [None, None]}


def test_html_is_escaped():
    evil = "<script>alert('x')</script>"
    html = Table(evil, [{evil: evil}], evil)._repr_html_()
    assert "<script" not in html and html.count("&lt;script") == 5


def test_a_list_is_shown_by_its_values():
    shown = repr(Table("", [{"interval": [0.123456, 0.2], "top": [["a", 3], ["b", 1]]}]))
    assert "0.1235, 0.2" in shown and "[a, 3], [b, 1]" in shown


def test_a_long_table_shows_its_beginning_and_says_so():
    table = Table.of_arrow("numbers", pa.table({"x": range(1000)}))
    assert len(table) == 1000 and table[999] == {"x": 999} and [row["x"] for row in table[2:4]] == [2, 3]
    assert "numbers" in repr(table) and "and 950 more rows" in repr(table) and len(repr(table).splitlines()) < 60
    assert table._repr_html_().count("<tr>") == 51 and "and 950 more rows" in table._repr_html_()


def test_without_pandas_the_error_names_the_extra(monkeypatch):
    monkeypatch.setattr(flows.tell.rendering.tables, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"headway\[notebook\]"):
        Table("", [{"a": 1}]).to_frame()


def test_a_frame_has_the_rows():
    pytest.importorskip("pandas")
    assert Table("", [{"a": 1}, {"a": 2}]).to_frame()["a"].tolist() == [1, 2]


def test_a_cell_has_one_text_in_every_renderer():
    values = [None, 1200, 0.712345, 12345.678, "x", True, [0.5, None]]
    assert [cell(value) for value in values] == ["", "1,200", "0.7123", "12,345.68", "x", "True", "0.5, "]
