"""Tables of results: rows of plain values that every renderer takes.

table = Table("splits", [{"split": "train", "rows": 1200}])
table[0]["rows"]; table.text
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from flows.tell.rendering.cells import Row, filled, is_number, text_table


@dataclass(frozen=True, repr=False)
class Table(Sequence[Row]):
    """Rows of results, each a mapping of column names to values; what a row lacks is null."""

    title: str
    rows: Sequence[Row]
    note: str = ""
    folded: bool = False
    """Opened by the reader."""
    whole: Collection[str] = ()
    """Columns whose cells are never cut."""
    shades: Sequence[Mapping[str, float]] = ()
    """How strongly a cell is shaded, 0 to 1, by row and column."""
    ids: Sequence[str] = ()
    """The name of each row within the page, for links to it."""
    data: Mapping[str, str] = field(default_factory=dict)
    """What the page's script needs to know, by name."""
    tones: Sequence[str] = ()
    """The colour of the last cell of each row: green, amber, red or plain."""

    @functools.cached_property
    def shown(self) -> list[str]:
        """The columns that have a cell with something in it."""
        return filled(self.rows)

    @functools.cached_property
    def numbers(self) -> set[str]:
        """The columns of numbers, which stand to the right."""
        return {name for name in self.shown if all(is_number(row.get(name)) for row in self.rows)}

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: Any) -> Any:
        return self.rows[place]

    @property
    def text(self) -> str:
        """The table below its title, without its pictures."""
        rows = [{name: each for name, each in row.items() if not isinstance(each, Markup)} for row in self.rows]
        return "\n".join(
            filter(None, [self.title, text_table(rows, whole=self.whole, fit=True) or "no rows", self.note])
        )
