"""How a CSV file is written: separator, header, and the words that stand for a missing value.

csv_form("a;b\\n1,5;x\\n")                # {"delimiter": ";"}
csv_form("5.1,setosa\\n4.9,setosa\\n")    # {"header": False, "names": ["column_1", "column_2"]}
null_words({"x", "?", "y"})             # ("?",)
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

DELIMITERS = (",", ";", "\t", "|", ":", " ")
"""The earlier one wins where two would do equally well."""
_LINES = 200
_ALIKE = 0.9
"""The share of lines that have as many values as the header."""
_NUMBER = re.compile(r"\s*[-+]?(\d+([.,]\d*)*|[.,]\d+)([eE][-+]?\d+)?\s*%?\s*")
_NULLS = ("", "NA")
_NULL_WORDS = frozenset({"?", "NaN", "nan", "NULL", "Null", "null", "N/A", "n/a", "#N/A", "<NA>"})


def csv_form(head: str) -> dict[str, Any]:
    """The keys of `source.csv` that differ from the defaults.

    Args:
        head: the beginning of the file, decoded, without a byte order mark; whole lines.
    """
    form: dict[str, Any] = {}
    delimiter = _delimiter(head)
    if delimiter != ",":
        form["delimiter"] = delimiter
    rows = _rows(head, delimiter)
    if _lacks_header(rows):
        form |= {"header": False, "names": [f"column_{place}" for place in range(1, len(rows[0]) + 1)]}
    return form


def null_words(texts: Iterable[str]) -> tuple[str, ...]:
    """The words among some values that certainly mean a missing one, sorted."""
    return tuple(sorted({text.strip() for text in texts} & _NULL_WORDS))


def null_values(words: Iterable[str]) -> list[str]:
    """`source.csv.null_values` with further words."""
    return [*_NULLS, *(word for word in words if word not in _NULLS)]


def _rows(head: str, delimiter: str) -> list[list[str]]:
    reader = csv.reader(io.StringIO(head, newline=""), delimiter=delimiter)
    rows: list[list[str]] = []
    try:
        for row in reader:
            if row:
                rows.append(row)
            if len(rows) > _LINES:
                break
    except csv.Error:  # a field beyond the reader's limit
        pass
    return rows


def _delimiter(head: str) -> str:
    """The separator that cuts most lines into as many values as the header, of those the one with most values."""
    best, chosen = (0.0, 0), ","
    for delimiter in DELIMITERS:
        rows = _rows(head, delimiter)
        if not rows or len(rows[0]) < 2 or (delimiter in ": " and best[1]):
            continue  # times hold colons and texts blanks: those count where nothing else does
        widths = Counter(map(len, rows))
        alike = widths[len(rows[0])] / len(rows)
        if alike >= _ALIKE and (round(alike, 2), len(rows[0])) > best:
            best, chosen = (round(alike, 2), len(rows[0])), delimiter
    return chosen


def _lacks_header(rows: list[list[str]]) -> bool:
    """Whether the first line is a row: a number, or nothing, stands in it in each column that holds numbers below."""
    if len(rows) < 3:
        return False
    first, body = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    if not body or len({*first}) < len(first) // 2:
        return bool(body) and bool(_NUMBER.fullmatch(first[0]))
    numeric = [
        place
        for place in range(len(first))
        if (cells := [row[place] for row in body if row[place].strip()])
        and sum(bool(_NUMBER.fullmatch(cell)) for cell in cells) >= _ALIKE * len(cells)
    ]
    if not numeric:
        return False
    heads = [first[place].strip() for place in numeric]
    return any(heads) and all(not head or _NUMBER.fullmatch(head) for head in heads)
