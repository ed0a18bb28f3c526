"""Finds how a CSV file is written: separator, quotes, escapes, lines above the header, columns' names.

csv_form("a;b\\n1,5;x\\n")                # {"delimiter": ";"}
csv_form("Sales of 2020\\n\\na,b\\n1,2\\n")   # {"skip_lines": 2}
csv_form("a,a,\\n1,2,x\\n")              # {"skip_lines": 1, "header": False, "names": ["a", "a_2", "column_3"]}
csv_form("5.1,setosa\\n4.9,setosa\\n")    # {"header": False, "names": ["column_1", "column_2"]}

Several ways to write quotes are tried. The one that rejects the fewest lines is taken. Lines are read as strictly as in a run.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from headway.schema.parse_rules import MARKERS
from headway.sources.config import CsvConfig
from headway.sources.formats.csv import rows_of, unique_names
from headway.sources.text_files import QuoteRules

DELIMITERS = (",", ";", "\t", "|", "^", "~", "\x01", ":", " ")
"""The earlier one wins where two would do equally well."""
_LINES = 200
_ALIKE = 0.9
"""The least share of lines that have as many values as the header, for a delimiter to be the right one."""
_ENCLOSED = 0.1
"""From this share of a column's values on, quotes enclose values; fewer are titles, which stand in quotes within a text."""
_MOST_ABOVE = 30
"""The most lines that may stand above a table."""
_FEW = 10
"""Rows below which recurring words say nothing."""
_NUMBER = re.compile(r"\s*[-+]?(\d+([.,]\d*)*|[.,]\d+)([eE][-+]?\d+)?\s*%?\s*")
_MONTH = re.compile(r"(?i)\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*")
_SEPARATOR_LINE = re.compile(r'"?sep=([\t\x01 -~])"?\s*', re.IGNORECASE)
_COMMENTS = ("#", "%", "//")
_MISSING = MARKERS | {"nan"}
_Rows = list[tuple[int, list[str]]]


@dataclass(frozen=True)
class _Table:
    """The rows of a file, from the header on, as one delimiter and one way to write quotes cut them."""

    delimiter: str
    quote: str
    rows: _Rows
    """Each row as its line number and its values."""
    width: int
    """The number of values that most rows have."""
    alike: float
    """The share of rows that have this number of values, or as many as the header."""
    escape: str = ""
    rejected: int = 0
    """Rows that a quote makes unreadable, or that have another width."""

    @property
    def rank(self) -> tuple[float, int, int]:
        """The key by which tables are sorted, the best one last: most rows alike, then fewest lines above, then most values."""
        return round(self.alike, 2), -self.rows[0][0], self.width


def csv_form(head: str) -> dict[str, Any]:
    """Returns the keys of `source.csv`, with those values that differ from the defaults.

    Args:
        head: the beginning of the file: whole lines, decoded, without a byte order mark.
    """
    head = re.sub(r"\r(?!\n)", " ", head)  # it ends no line that csv.skip_lines counts
    told = _SEPARATOR_LINE.fullmatch(head.partition("\n")[0])
    if told and (told[1].isalnum() or told[1] in "\"'\\"):
        told = None
    start = 1 if told else 0
    table = _table(head, start, told[1] if told else None)
    form: dict[str, Any] = {}
    if table.delimiter != ",":
        form["delimiter"] = table.delimiter
    if table.quote != '"':
        form["quote"] = table.quote
    if table.escape:
        form["escape"] = table.escape
    rows = [row for _, row in table.rows]
    if not rows:
        return form
    above = table.rows[0][0]
    if _lacks_header(rows):
        names = unique_names([""] * max(table.width, len(rows[0])))
        return form | ({"skip_lines": above} if above else {}) | {"header": False, "names": names}
    if (mended := _mended(rows, table.width)) is not None:
        return form | {"skip_lines": table.rows[1][0], "header": False, "names": mended}
    return form | ({"skip_lines": above} if above else {})


def _table(head: str, start: int, told: str | None) -> _Table:
    """Returns the best table: its delimiter (`told`, if given) cuts most rows into as many values as the header has."""
    rows, _ = _rows(head, start, CsvConfig(delimiter=told or ","))
    best = _Table(told or ",", '"', rows[_comments(rows) :], 1, 0.0)
    for delimiter in DELIMITERS if told is None else (told,):
        if delimiter in ": " and best.alike:
            continue  # times hold colons and texts blanks: those count where nothing else does
        table = _cut(head, start, delimiter)
        if table.alike >= _ALIKE and (best.alike == 0.0 or table.rank > best.rank):
            best = table
    return best


def _cut(head: str, start: int, delimiter: str) -> _Table:
    """Returns the table by a delimiter, with the way to write quotes that rejects the fewest lines; the usual way comes first."""
    plain, _ = _rows(head, start, CsvConfig(delimiter=delimiter, quote=""))
    plain = plain[_above(plain) :]
    quote = "'" if '"' not in head and _encloses(plain, "'") else '"'
    ways = [(quote, ""), (quote, "\\")]
    if not _encloses(plain, quote):  # it may be a sign like others, as of inches
        ways += [("", ""), ("", "\\"), ("'", ""), ("'", "\\")]
    best: _Table | None = None
    for way, escape in ways:
        table = _quoted(head, start, CsvConfig(delimiter=delimiter, quote=way, escape=escape))
        if not table.rejected:
            return table
        best = table if best is None or table.rejected < best.rejected else best
    assert best is not None
    return best


def _encloses(rows: _Rows, quote: str) -> bool:
    """Returns whether quotes enclose a header name or a tenth of a column's values. `rows` were cut within quotes too."""
    enclosed = [[len(c) > 1 and c[0] == c[-1] == quote for c in map(str.strip, row)] for _, row in rows]
    if not enclosed or any(enclosed[0]):
        return bool(enclosed)
    columns = [[row[place] for row in enclosed if place < len(row)] for place in range(len(enclosed[0]))]
    return any(sum(column) >= _ENCLOSED * len(column) for column in columns)


def _quoted(head: str, start: int, config: CsvConfig) -> _Table:
    """Returns the table by the delimiter, the quote and the escape of `config`."""
    rows, broken = _rows(head, start, config)
    rows = rows[_above(rows) :]
    if not rows:
        return _Table(config.delimiter, config.quote, rows, 0, 0.0, config.escape, len(broken))
    width = Counter(len(row) for _, row in rows[1:] or rows).most_common(1)[0][0]
    alike = sum(len(row) in (width, len(rows[0][1])) for _, row in rows)
    rejected = len(rows) + len(broken) - alike + (len(rows[0][1]) != width)
    alike += broken.count(width)  # the delimiter may be right
    share = alike / (len(rows) + len(broken)) if width > 1 and abs(len(rows[0][1]) - width) < 2 else 0.0
    return _Table(config.delimiter, config.quote, rows, width, share, config.escape, rejected)


def _rows(text: str, start: int, config: CsvConfig) -> tuple[_Rows, list[int]]:
    """Returns the first 201 non-empty rows from line `start` on, as (line number, values), and each unreadable row's width."""
    lines = text.split("\n")[start:]  # as the reader of the file cuts them; str.splitlines does at \f and others too
    data = "\n".join(lines).encode()
    rules = QuoteRules(config, len(data))
    rows: _Rows = []
    number, at, broken = start, 0, list[int]()
    for bad in (*rules.broken(data, 0), None):
        for line, row in rows_of(data[at : bad.start if bad else None].decode(), config):
            if len(row) > 1 or row[0].strip():
                rows.append((number + line, row))
            if len(rows) > _LINES:
                return rows, broken
        if bad:
            broken += [len(row) for _, row in rows_of(data[bad.start : bad.end].decode(), config)][:1]
            number, at = number + data.count(b"\n", at, bad.end), bad.end
    return rows, broken


def _above(rows: _Rows) -> int:
    """Returns the number of rows above the table: comments, a title, and lines in which only one value is filled."""
    start = _comments(rows)
    rows = rows[start:]
    width = Counter(len(row) for _, row in rows).most_common(1)[0][0] if rows else 0
    if len(rows) < 3 or width < 2:
        return start
    for place, (line, row) in enumerate(rows[: min(_MOST_ABOVE, len(rows) - 1)]):
        following, after = rows[place + 1], rows[place + 2 :][:1]
        empty_line = following[0] - line > 1 + sum(cell.count("\n") for cell in row)
        empty_row = not any(map(str.strip, following[1]))
        is_parted = (empty_line and _only_words([following])) or (empty_row and _only_words(after))
        if is_parted and not _only_words(rows[place : place + 1]):
            continue  # a title, perhaps with as many commas
        filled = sum(bool(cell.strip()) for cell in row)
        is_short = 1 < len(row) == filled == width - 1 == len(following[1]) - 1  # one name too few
        if is_short or (len(row) >= width and (filled > 1 or width == 2)):
            return start + place
    return start


def _only_words(rows: _Rows) -> bool:
    return bool(rows) and all(cell.strip() and not _NUMBER.fullmatch(cell) for cell in rows[0][1])


def _comments(rows: _Rows) -> int:
    """Returns the number of comment rows at the beginning; 0 if they are too many, or if there are comments further below too."""
    marks = [next((mark for mark in _COMMENTS if row[0].lstrip().startswith(mark)), None) for _, row in rows]
    found = next((place for place, mark in enumerate(marks) if mark is None), 0)
    return found if found <= _MOST_ABOVE and not any(marks[found:]) else 0


def _mended(rows: Sequence[list[str]], width: int) -> list[str] | None:
    """Returns unique names for all columns if the header repeats or lacks a name (except an index's) or is short; else None."""
    if len(rows) < 2:
        return None
    names = [name.strip() for name in rows[0]]
    body = [row for row in rows[1:] if len(row) == width]
    if len(names) == width - 1:  # an index without a name, or a delimiter too many behind the values
        behind = not any(row[-1].strip() for row in body)
        return unique_names([*names, ""] if behind else ["row_names", *names])
    filled = [name for name in names if name]
    if len({*filled}) == len(filled) and (len(filled) == len(names) or _is_index(names, body)):
        return None
    return unique_names(names)


def _is_index(names: Sequence[str], body: Sequence[list[str]]) -> bool:
    """Returns whether the first column is an index: the only one without a name, with a different value in each row."""
    first = [row[0] for row in body]
    return not names[0] and all(names[1:]) and len({*first}) == len(first)


def _lacks_header(rows: Sequence[list[str]]) -> bool:
    """Returns whether the first line is a row, not a header: like those below in the form of its numbers, or in its words."""
    body = [row for row in rows[1:] if len(row) == len(rows[0])]
    if len(rows) < 3 or not body:
        return False
    heads = [cell.strip() for cell in rows[0]]
    columns = [[row[place].strip() for row in body] for place in range(len(heads))]
    forms = [_form_of(cells) for cells in columns]  # of numbers, dates, times
    known = [(head, form) for head, form in zip(heads, forms, strict=True) if form and head.lower() not in _MISSING]
    if any(forms):
        return bool(known) and all(_form(head) == form for head, form in known) and not _counts_up(heads, columns)
    # words only: categories, of which the first line has some
    few = [place for place, cells in enumerate(columns) if len({*cells}) * 3 <= len(cells)]
    return len(body) >= _FEW and len(few) > 1 and all(heads[place] in columns[place] for place in few)


def _counts_up(heads: Sequence[str], columns: Sequence[Sequence[str]]) -> bool:
    """Returns whether numbers in a first line are names, such as years: they rise in equal steps and are rare below."""
    places = [place for place, head in enumerate(heads) if head.isdecimal()]
    known = sum(heads[place] in columns[place] for place in places)
    return _even([heads[p] for p in places]) and not _even([columns[p][0] for p in places]) and 2 * known <= len(places)


def _even(cells: Sequence[str]) -> bool:
    """Returns whether the cells are whole numbers that rise in equal steps."""
    if len(cells) < 3 or not all(map(str.isdecimal, cells)):
        return False
    steps = {int(later) - int(earlier) for earlier, later in pairwise(cells)}
    return len(steps) == 1 and min(steps) > 0


def _form_of(cells: Sequence[str]) -> str | None:
    """Returns the form of most cells, such as 0/0/0 for dates; None if most have no common form, or none with a digit."""
    known = [cell for cell in cells if cell.lower() not in _MISSING]
    form, count = Counter(map(_form, known)).most_common(1)[0] if known else ("", 0)
    return form if "0" in form and count >= _ALIKE * len(known) else None


def _form(cell: str) -> str:
    return "0" if _NUMBER.fullmatch(cell) else re.sub(r"\d+", "0", _MONTH.sub("May", cell))
