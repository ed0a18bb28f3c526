"""What is told is made of parts: sentences, tables, charts, lists, findings. They are plain values, which `flows.tell.text`,
`markdown` and `html` render.

Table("splits", [{"split": "train", "rows": "1,200"}])
Chart("ROC curve", svg, keys=(("first", "candidate"), ("second", "version 3")))
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from markupsafe import Markup

_NUMBER = re.compile(r"[-+±]?[\d.,]+(e[-+]?\d+)?( ?%| s| min| h| bytes| bits)?|")


@dataclass(frozen=True)
class Table:
    """Rows of cells; a cell is text, a number, or Markup of ours."""

    title: str
    rows: Sequence[dict[str, Any]]
    note: str = ""
    folded: bool = False
    """Opened by the reader."""
    whole: Collection[str] = ()
    """Columns whose cells are never cut."""
    shades: Sequence[dict[str, float]] = ()
    """How strongly a cell is shaded, 0 to 1, by row and column."""

    @functools.cached_property
    def columns(self) -> list[str]:
        """Those that have a cell with something in it, in the order of their first."""
        names = dict.fromkeys(name for row in self.rows for name in row)
        return [name for name in names if any(row.get(name) not in (None, "") for row in self.rows)]

    @functools.cached_property
    def numbers(self) -> set[str]:
        """The columns of numbers, which stand to the right."""
        return {
            name
            for name in self.columns
            if all(not isinstance(row.get(name), Markup) and _is_number(row.get(name)) for row in self.rows)
        }


@dataclass(frozen=True)
class Finding:
    """What a reader should look at."""

    severity: Literal["error", "warning", "info"]
    message: str
    fix: str = ""


@dataclass(frozen=True)
class Chart:
    """A figure with its title above and its keys (a colour's name and what has it) below."""

    title: str
    svg: Markup
    keys: Sequence[tuple[str, str]] = ()
    note: str = ""


@dataclass(frozen=True)
class Part:
    """A part of a page."""

    title: str
    sentences: Sequence[str] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    findings: Sequence[Finding] = ()
    commands: Sequence[str] = ()
    points: Sequence[str] = ()
    """A list."""
    texts: Sequence[tuple[str, str]] = ()
    """(title, a file's text)"""


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, int | float) or _NUMBER.fullmatch(str(value)) is not None


def anchor(title: str) -> str:
    """The name of a part within the page."""
    return title.lower().replace(" ", "-")
