"""Rows as an aligned text table, for a terminal.

print(text_table([{"column": "carrier", "rows": 1200}]))
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

_WIDEST = 48


def text_table(rows: Sequence[Mapping[str, Any]], *, whole: Collection[str] = ()) -> str:
    """The columns of all rows, in the order in which they first occur; numbers to the right, and what is empty
    throughout left out. Long cells are cut, but for those of the columns named in `whole`."""
    if not rows:
        return ""
    seen = dict.fromkeys(name for row in rows for name in row)
    names = [name for name in seen if any(row.get(name) not in (None, "") for row in rows)]
    cells = [[_cell(row.get(name), cut=name not in whole) for name in names] for row in rows]
    right = [all(_is_number(row.get(name)) for row in rows) for name in names]
    widths = [max(len(name), *(len(line[i]) for line in cells)) for i, name in enumerate(names)]
    fitted = (
        [_fit(cell, width, to_right) for cell, width, to_right in zip(line, widths, right, strict=True)]
        for line in [names, *cells]
    )
    return "\n".join("  " + "  ".join(line).rstrip() for line in fitted)


def _fit(cell: str, width: int, right: bool) -> str:
    return cell.rjust(width) if right else cell.ljust(width)


def _cell(value: Any, cut: bool) -> str:
    text = "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
    text = text.replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t")  # a row is a line
    return text if len(text) <= _WIDEST or not cut else text[: _WIDEST - 3] + "..."


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return not value or value.replace(",", "").replace(".", "").replace("-", "").replace("%", "").isdigit()
    return value is None or isinstance(value, int | float)


def findings(rows: Sequence[Mapping[str, Any]]) -> str:
    """What validation found, a paragraph each: sentences and fixes are whole here, and no cell of a table holds them."""
    lines = []
    for row in rows:
        lines.append(f"  {row['severity']}: {row['message']}")
        lines += [f"    fix: {row['fix']}"] * bool(row.get("fix"))
    return "\n".join(lines)
