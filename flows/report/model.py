"""The content of reports as values: sections of sentences, tables, charts and findings, which the modules `text`,
`markdown` and `html` render.

table = Table("splits", [{"split": "train", "rows": 1200}])
Chart("ROC curve", svg, keys=(("first", "candidate"), ("second", "version 3")))
Section("Splits", ["No id is in two splits."], tables=[table])
cell(0.712345), cell([1, 2])                               # "0.7123", "1, 2"
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from markupsafe import Markup

from headway.messages import number

Row = Mapping[str, Any]
"""A row of a table: by column a text, a number, a list of them, None, or Markup of our own."""
_NUMBER = re.compile(r"[<>]?[-+±]?[\d.,]+(e[-+]?\d+)?( ?%| s| min| h| bytes| bits)?|")


def cell(value: object) -> str:
    """Returns a value as the text of a table cell, the same in every renderer."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(f"[{cell(each)}]" if isinstance(each, list | tuple) else cell(each) for each in value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else number(value)


def is_number(value: object) -> bool:
    """Returns whether a cell's text is a number or empty; a column of such cells is aligned to the right."""
    return not isinstance(value, Markup) and _NUMBER.fullmatch(cell(value)) is not None


def filled_columns(rows: Sequence[Row]) -> list[str]:
    """Returns the names of the columns with a cell that is not empty, in the order in which they first occur."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if any(row.get(name) not in (None, "") for row in rows)]


@dataclass(frozen=True, repr=False)
class Table(Sequence[Row]):
    """Rows of results, each a mapping of column names to values; a cell that a row lacks is empty."""

    title: str
    rows: Sequence[Row]
    note: str = ""
    folded: bool = False
    """Whether a page shows only the title until a click opens the table."""
    whole: Collection[str] = ()
    """Columns whose cells are never cut."""
    shades: Sequence[Mapping[str, float]] = ()
    """For each row, how strongly its cells are shaded, 0 to 1, by column."""
    tones: Sequence[str] = ()
    """The colour of the last cell of each row: green, amber, red or plain."""

    @functools.cached_property
    def shown(self) -> list[str]:
        """The names of the columns with a cell that is not empty."""
        return filled_columns(self.rows)

    @functools.cached_property
    def numbers(self) -> set[str]:
        """The names of the columns of numbers, which are aligned to the right."""
        return {name for name in self.shown if all(is_number(row.get(name)) for row in self.rows)}

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: Any) -> Any:
        return self.rows[place]


@dataclass(frozen=True)
class Finding:
    """A finding that a person should look at."""

    severity: Literal["error", "warning", "info"]
    message: str
    fix: str = ""


@dataclass(frozen=True)
class Chart:
    """A figure with its title above and its legend below; a key of the legend is (name of a colour, what has this colour)."""

    title: str
    svg: Markup
    keys: Sequence[tuple[str, str]] = ()
    note: str = ""


@dataclass(frozen=True)
class Panels:
    """Small figures of one kind, side by side."""

    title: str
    charts: Sequence[Chart]
    keys: Sequence[tuple[str, str]] = ()
    """The keys of all charts."""
    note: str = ""


@dataclass(frozen=True)
class Section:
    """A titled part of a report."""

    title: str
    sentences: Sequence[str] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    findings: Sequence[Finding] = ()
    points: Sequence[str] = ()
    """The items of a bulleted list."""
    texts: Sequence[tuple[str, str]] = ()
    """Preformatted texts, each as (title, text)."""
    panels: Sequence[Panels] = ()
    """Below the tables."""
    fold: str = ""
    """The title of the fold that hides what is below the sentences and findings until a click; "": there is none."""
