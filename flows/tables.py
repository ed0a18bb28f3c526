"""Rows as an aligned text table, for a terminal.

print(text_table([{"column": "carrier", "rows": 1200}]))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_WIDEST = 48


def text_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Columns in the order of the first row; numbers to the right, columns that are empty throughout left out."""
    if not rows:
        return ""
    names = [name for name in rows[0] if any(row.get(name) not in (None, "") for row in rows)]
    cells = [[_cell(row.get(name)) for name in names] for row in rows]
    right = [all(_is_number(row.get(name)) for row in rows) for name in names]
    widths = [max(len(name), *(len(line[i]) for line in cells)) for i, name in enumerate(names)]
    fitted = (
        [_fit(cell, width, to_right) for cell, width, to_right in zip(line, widths, right, strict=True)]
        for line in [names, *cells]
    )
    return "\n".join("  " + "  ".join(line).rstrip() for line in fitted)


def _fit(cell: str, width: int, right: bool) -> str:
    return cell.rjust(width) if right else cell.ljust(width)


def _cell(value: Any) -> str:
    text = "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
    return text if len(text) <= _WIDEST else text[: _WIDEST - 3] + "..."


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return not value or value.replace(",", "").replace(".", "").replace("-", "").replace("%", "").isdigit()
    return value is None or isinstance(value, int | float)
