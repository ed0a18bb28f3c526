"""The text of a comparison."""

import pytest

from flows.tell.comparison.comparison_text import _slices

FIGURE = {"value": 0.5, "interval": None}


@pytest.mark.parametrize("column", ["rows", "metric", "difference", "4"])
def test_a_slice_of_a_column_that_is_named_as_a_heading_hides_nothing(column):
    facts = {"slice": column, "value": "x", "rows": 700, "metric": "auc", "a": FIGURE, "b": FIGURE}
    facts |= {"difference": 0.25, "interval": None}
    text, *_ = list(_slices([facts], ["4", "5"]))
    head, row = text.split("\n")[1:]
    assert head.split("  ")[1] == f"{column} (column)"
    assert head.split()[2:] == ["rows", "metric", "4", "5", "difference"]
    assert row.split() == ["x", "700", "auc", "0.5", "0.5", "+0.25"]
