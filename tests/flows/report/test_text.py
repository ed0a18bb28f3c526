"""Tables for a terminal line up."""

import pytest

from flows.report.model import Table, cell
from flows.report.text import table_text, text_table

V, R = "v" * 60, "r" * 60 + " at byte 7"


@pytest.mark.parametrize(
    ("rows", "options", "lines"),
    [
        (  # numbers stand right, text left, and empty columns are left out
            [
                {"name": "a", "rows": 1200, "gone": None, "share": "1.5%"},
                {"name": "long", "rows": 7, "gone": "", "share": "12%"},
            ],
            {},
            ["  name   rows  share", "  a     1,200   1.5%", "  long      7    12%"],
        ),
        ([{"a": 1}, {"a": 2, "b": "x"}], {}, ["  a  b", "  1", "  2  x"]),  # the first row lacks a column
        ([{"a": "x\ny\tz"}], {}, ["  a", "  x\\ny\\tz"]),  # a row is one line
        ([{"a\n": "\x1b[2Jé\u202e東"}], {}, ["  a\\n", "  \\x1b[2Jé\\u202e東"]),
        ([], {}, []),
        # long cells are cut but for columns that are wanted whole
        ([{"v": V, "r": R}], {"whole": ["r"]}, ["  v" + " " * 49 + "r", f"  {'v' * 45}...  {R}"]),
        ([{"v": V, "r": R}], {}, ["  v" + " " * 49 + "r", f"  {'v' * 45}...  {'r' * 45}..."]),
    ],
)
def test_a_table_lines_up(rows, options, lines):
    assert text_table(rows, width=200, **options).splitlines() == lines


def test_names_in_the_first_column_wrap_where_the_others_fit_beside_them_then():
    name = "auc against the constant baseline on carrier=UA and origin=EWR"
    row = {"check": name, "now": 0.9, "change": "+0.4 (+0.1 to +0.5)", "outcome": "worse, perhaps within the limit"}
    lines = text_table([row], whole=["outcome"], width=72, fit=True).splitlines()
    assert max(map(len, lines)) <= 72 and lines[0].split() == ["check", "now", "change", "outcome"]
    start = lines[1].index("0.9")
    assert " ".join(" ".join(line[:start] for line in lines[1:]).split()) == name, "none of it is cut"
    assert " ".join(line[lines[0].index("outcome") :].strip() for line in lines[1:]).strip() == row["outcome"]
    assert text_table([row], width=200, fit=True).splitlines()[1].startswith(f"  {name}  0.9"), "all fits"


def test_a_wide_table_goes_on_below_at_the_width_of_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    row = {"column": "income", "type": "float32", "mean": 3011.71, "deviation": 923.6, "most frequent": "x" * 60}
    lines = text_table([row]).splitlines()
    assert max(map(len, lines)) <= 40
    assert [line.split()[0] for line in lines if line] == ["column", "income"] * 2
    assert "deviation" in "".join(lines) and "xxx..." in lines[-1] and "mean" in lines[0]


def test_a_list_is_shown_by_its_values():
    shown = table_text(Table("", [{"interval": [0.123456, 0.2], "top": [["a", 3], ["b", 1]]}]))
    assert "0.1235, 0.2" in shown and "[a, 3], [b, 1]" in shown


def test_a_cell_has_one_text_in_every_renderer():
    values = [None, 1200, 0.712345, 12345.678, "x", True, [0.5, None]]
    assert [cell(value) for value in values] == ["", "1,200", "0.7123", "12,345.68", "x", "True", "0.5, "]
