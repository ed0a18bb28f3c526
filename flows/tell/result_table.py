"""A small table of results for Python and notebooks: rows of plain values that show themselves.

table = Table([{"column": "carrier", "rows": 1200}], title="columns")
table[0]["column"]; table.to_arrow(); table.to_frame()      # the last one needs pandas
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from flows.config.extras import command
from flows.tell.text import text_table
from headway.errors import ConfigError
from headway.messages import counted, number

if TYPE_CHECKING:
    import pandas
    import pyarrow

_SHOWN = 50


class Table(Sequence[Mapping[str, Any]]):
    """Rows of results, each a mapping of column names to values.

    Args:
        rows: they need not have the same columns; what one lacks is null.
        title: one line above the table where it is shown.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]] | pyarrow.Table, title: str = ""):
        self._arrow = None if isinstance(rows, Sequence) else rows
        self._rows = rows if isinstance(rows, Sequence) else None
        self.title = title

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        if self._rows is None:
            assert self._arrow is not None
            self._rows = self._arrow.to_pylist()
        return self._rows

    @property
    def columns(self) -> list[str]:
        """The names, in the order in which they first occur."""
        return self._arrow.column_names if self._arrow is not None else _names(self.rows)

    def __len__(self) -> int:
        return len(self._arrow) if self._arrow is not None else len(self.rows)

    def __getitem__(self, place: Any) -> Any:
        return self.rows[place]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.rows)

    def to_arrow(self) -> pyarrow.Table:
        """The table as pyarrow.Table; values that have no one type in a column are their text."""
        import pyarrow as pa

        if self._arrow is None:
            self._arrow = pa.table({name: _column([row.get(name) for row in self.rows]) for name in _names(self.rows)})
        return self._arrow

    def to_frame(self) -> pandas.DataFrame:
        """The table as pandas.DataFrame.

        Raises:
            ConfigError: pandas is not installed.
        """
        if find_spec("pandas") is None:
            fix = f"{command('notebook')}; to_arrow() needs nothing"
            raise ConfigError("to_frame() needs pandas, which is not installed", fix=fix)
        return self.to_arrow().to_pandas()

    def _first(self) -> list[dict[str, Any]]:
        rows = self._arrow.slice(0, _SHOWN).to_pylist() if self._arrow is not None else self.rows[:_SHOWN]
        return [{name: _shown(row.get(name)) for name in self.columns} for row in rows]

    def _rest(self) -> str:
        return f"and {counted(len(self) - _SHOWN, 'more row')}" if len(self) > _SHOWN else ""

    def __repr__(self) -> str:
        return "\n".join(part for part in (self.title, text_table(self._first()) or "no rows", self._rest()) if part)

    def _repr_html_(self) -> str:
        return html_table(self._first(), title=self.title, rest=self._rest())


def html_table(rows: Sequence[Mapping[str, Any]], *, title: str = "", rest: str = "") -> str:
    """Rows as an HTML table, every text escaped."""
    names = _names(rows)
    head = "".join(f"<th>{escape(str(name))}</th>" for name in names)
    cells = ("".join(f"<td>{escape(str(row.get(name, '')))}</td>" for name in names) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in cells)
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    table = f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return table + (f"<p>{escape(rest)}</p>" if rest else "")


def _names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _column(values: list[Any]) -> pyarrow.Array:
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if value is None else str(value) for value in values], pa.string())


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(f"[{_shown(each)}]" if isinstance(each, list | tuple) else _shown(each) for each in value)
    return number(value) if isinstance(value, float) else str(value)
