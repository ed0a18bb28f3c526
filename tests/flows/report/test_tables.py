"""Tables of results as text."""

from flows.report.model import Table, cell


def test_a_list_is_shown_by_its_values():
    shown = Table("", [{"interval": [0.123456, 0.2], "top": [["a", 3], ["b", 1]]}]).text
    assert "0.1235, 0.2" in shown and "[a, 3], [b, 1]" in shown


def test_a_cell_has_one_text_in_every_renderer():
    values = [None, 1200, 0.712345, 12345.678, "x", True, [0.5, None]]
    assert [cell(value) for value in values] == ["", "1,200", "0.7123", "12,345.68", "x", "True", "0.5, "]
