"""Parts and rows as text for a terminal.

print(text(Part("Columns", tables=[Table("Columns of the train split", rows)])))
print(text_table([{"column": "carrier", "rows": 1200}]))
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from flows.tell.parts import Finding, Part

_WIDEST = 48
_ESCAPED = {
    code: chr(code).encode("unicode_escape").decode()
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
"""A row is a line, and no value of the data commands the terminal or turns the order of its characters round."""


def text_table(rows: Sequence[Mapping[str, Any]], *, whole: Collection[str] = (), width: int | None = None) -> str:
    """Format rows as an aligned table: columns in the order in which they first occur, numbers to the right. Empty
    columns are left out, and long cells are cut except in the columns named in `whole`.

    Args:
        width: of the terminal, unless given. Columns that do not fit beside each other go below, in further blocks that
            begin with the first column again.
    """
    if not rows:
        return ""
    keys = dict.fromkeys(name for row in rows for name in row)
    names = [name for name in keys if any(row.get(name) not in (None, "") for row in rows)]
    room = shutil.get_terminal_size().columns if width is None else width
    columns = [_column(name, rows, room, cut=name not in whole) for name in names]
    blocks: list[list[list[str]]] = []
    for column in columns:
        wide = blocks and sum(len(cells[0]) + 2 for cells in [*blocks[-1], column]) > room
        if not blocks or (wide and blocks[-1] != columns[:1]):
            blocks.append(columns[:1] if blocks else [])
        blocks[-1].append(column)
    return "\n\n".join(
        "\n".join("  " + "  ".join(line).rstrip() for line in zip(*block, strict=True)) for block in blocks
    )


def _column(name: str, rows: Sequence[Mapping[str, Any]], room: int, *, cut: bool) -> list[str]:
    """A column's name and cells, all of one width."""
    cells = [
        name.translate(_ESCAPED),
        *(_cell(row.get(name), min(_WIDEST, max(room // 2, 16)) if cut else None) for row in rows),
    ]
    width = max(map(len, cells))
    right = all(_is_number(row.get(name)) for row in rows)
    return [cell.rjust(width) if right else cell.ljust(width) for cell in cells]


def _cell(value: Any, most: int | None) -> str:
    text = "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
    text = text.translate(_ESCAPED)
    return text if most is None or len(text) <= most else text[: most - 3] + "..."


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return not value or value.replace(",", "").replace(".", "").replace("-", "").replace("%", "").isdigit()
    return value is None or isinstance(value, int | float)


def text(part: Part) -> str:
    """A part without its figures; sentences before its tables, each table below its title."""
    return "\n\n".join(filter(None, ["\n".join(map(str, part.sentences)), *_blocks(part)]))


def _blocks(part: Part) -> Iterator[str]:
    if part.findings:
        yield findings(part.findings)
    for table in part.tables:
        rows = [{name: cell for name, cell in row.items() if not isinstance(cell, Markup)} for row in table.rows]
        shown = text_table(rows, whole=table.whole) if rows else ""
        yield "\n".join(filter(None, [table.title, shown, table.note]))
    yield "\n".join(f"  {line}" for line in (*part.points, *part.commands))
    for title, body in part.texts:
        yield f"{title}\n{body}"


def findings(found: Sequence[Finding]) -> str:
    """Findings as a paragraph each, with whole sentences and fixes, which table cells would cut."""
    lines = []
    for each in found:
        lines.append(f"  {each.severity}: {each.message}")
        lines += [f"    fix: {each.fix}"] * bool(each.fix)
    return "\n".join(lines)
