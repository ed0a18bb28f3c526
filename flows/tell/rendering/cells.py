"""Cells and rows as text.

cell(0.712345), cell([1, 2])                               # "0.7123", "1, 2"
print(text_table([{"column": "carrier", "rows": 1200}]))
"""

import itertools
import re
import shutil
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from headway.messages import number, short

Row = Mapping[str, Any]
"""By column: text, a number, a list of them, None, or Markup of ours."""
_NUMBER = re.compile(r"[<>]?[-+±]?[\d.,]+(e[-+]?\d+)?( ?%| s| min| h| bytes| bits)?|")
_WIDEST, _NARROWEST = 48, 16
_ESCAPED = {
    code: chr(code).encode("unicode_escape").decode()
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
"""A row is a line, and no value of the data commands the terminal or turns the order of its characters round."""


def cell(value: object) -> str:
    """The text of a cell, in every renderer."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(f"[{cell(each)}]" if isinstance(each, list | tuple) else cell(each) for each in value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else number(value)


def is_number(value: object) -> bool:
    """Whether a cell stands to the right, among others of its column that do."""
    return not isinstance(value, Markup) and _NUMBER.fullmatch(cell(value)) is not None


def filled(rows: Sequence[Row]) -> list[str]:
    """The columns that have a cell with something in it, in the order in which they first occur."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if any(row.get(name) not in (None, "") for row in rows)]


def text_table(rows: Sequence[Row], *, whole: Collection[str] = (), width: int | None = None, fit: bool = False) -> str:
    """Format rows as an aligned table: columns in the order in which they first occur, numbers to the right. Empty
    columns are left out, and long cells are cut except in the columns named in `whole`, the last of which wraps.

    Args:
        width: of the terminal, unless given. Columns that do not fit beside each other go below, in further blocks that
            begin with the first column again.
        fit: wrap the first column, where all of them fit then.
    """
    if not (names := filled(rows)):
        return ""
    room = shutil.get_terminal_size((100, 24)).columns if width is None else width
    columns = [_column(name, rows, None if name in whole else min(_WIDEST, max(room // 2, 16))) for name in names]
    indent = 2 + sum(len(cells[0]) + 2 for cells in columns[:-1])
    last = min(len(columns[-1][0]), _NARROWEST if names[-1] in whole else room)
    below: list[list[str]] = [[] for _ in columns[0]]
    full = _column(names[0], rows, None)
    over = indent + last + len(full[0]) - len(columns[0][0]) - room
    if fit and len(names) > 1 and (shorter := len(full[0]) - max(over, 0)) >= _NARROWEST:
        wrapped = [textwrap.wrap(text, shorter, subsequent_indent="  ") or [""] for text in full]
        indent += shorter - len(columns[0][0])
        columns[0], below = [lines[0].ljust(shorter) for lines in wrapped], [lines[1:] for lines in wrapped]
    if names[-1] in whole and indent + _NARROWEST <= room:
        columns[-1] = [("\n" + " " * indent).join(textwrap.wrap(text, room - indent)) for text in columns[-1]]
    blocks: list[list[list[str]]] = []
    for column in columns:
        wide = blocks and sum(len(cells[0]) + 2 for cells in [*blocks[-1], column]) > room
        if not blocks or (wide and blocks[-1] != columns[:1]):
            blocks.append(columns[:1] if blocks else [])
        blocks[-1].append(column)
    lines = ["\n".join("  " + _row(line, more) for *line, more in zip(*block, below, strict=True)) for block in blocks]
    return "\n\n".join(lines)


def _row(cells: Sequence[str], below: Sequence[str]) -> str:
    """A row's cells beside each other, with further lines of the first one below, beside those of the last."""
    first, *more = "  ".join(cells).rstrip().split("\n")
    beside = itertools.zip_longest(below, more, fillvalue="")
    return "\n".join(
        [first, *(("  " + start).ljust(len(rest) - len(rest.lstrip())) + rest.lstrip() for start, rest in beside)]
    )


def _column(name: str, rows: Sequence[Row], most: int | None) -> list[str]:
    """A column's name and cells, all of one width."""
    cells = [name.translate(_ESCAPED), *(_cell(row.get(name), most) for row in rows)]
    width = max(map(len, cells))
    right = all(is_number(row.get(name)) for row in rows)
    return [text.rjust(width) if right else text.ljust(width) for text in cells]


def _cell(value: object, most: int | None) -> str:
    text = cell(value).translate(_ESCAPED)
    return text if most is None else short(text, most)
