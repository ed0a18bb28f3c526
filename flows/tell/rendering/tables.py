"""Tables of results: rows of plain values that show themselves in Python and notebooks, and that every renderer takes.

table = Table("splits", [{"split": "train", "rows": 1200}])
table[0]["rows"]; table.to_arrow(); table.to_frame()       # the last one needs pandas
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from flows.config.extras import command
from flows.tell.rendering.cells import Row, filled, is_number, text_table
from headway.errors import ConfigError
from headway.messages import counted
from headway.redaction import redact

if TYPE_CHECKING:
    import pandas
    import pyarrow

_SHOWN = 50


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

    @classmethod
    def of_arrow(cls, title: str, table: pyarrow.Table) -> Table:
        """A table whose rows are made when they are asked for."""
        return cls(title, _ArrowRows(table))

    @property
    def columns(self) -> list[str]:
        """The names, in the order in which they first occur."""
        if isinstance(self.rows, _ArrowRows):
            return list(self.rows.table.column_names)
        return list(dict.fromkeys(name for row in self.rows for name in row))

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

    def to_arrow(self) -> pyarrow.Table:
        """The table as pyarrow.Table; values that have no one type in a column are their text."""
        import pyarrow as pa

        if isinstance(self.rows, _ArrowRows):
            return self.rows.table
        return pa.table({name: _column([row.get(name) for row in self.rows]) for name in self.columns})

    def to_frame(self) -> pandas.DataFrame:
        """The table as pandas.DataFrame.

        Raises:
            ConfigError: pandas is not installed.
        """
        if find_spec("pandas") is None:
            fix = f"{command('notebook')}; to_arrow() needs nothing"
            raise ConfigError("to_frame() needs pandas, which is not installed", fix=fix)
        return self.to_arrow().to_pandas()

    def _first(self) -> Table:
        more = len(self) - _SHOWN
        return self if more <= 0 else replace(self, rows=self[:_SHOWN], note=f"and {counted(more, 'more row')}")

    @property
    def text(self) -> str:
        """The table below its title, without its pictures."""
        rows = [{name: each for name, each in row.items() if not isinstance(each, Markup)} for row in self.rows]
        return "\n".join(
            filter(None, [self.title, text_table(rows, whole=self.whole, fit=True) or "no rows", self.note])
        )

    def __repr__(self) -> str:
        return self._first().text

    def _repr_html_(self) -> str:
        from flows.tell.rendering.templating import environment

        title = Markup("<p>{}</p>").format(self.title) if self.title else ""
        parts = environment().get_template("parts.html").module
        return redact(title + parts.cells(self._first()))  # type: ignore[attr-defined]


@dataclass(frozen=True)
class _ArrowRows(Sequence[Row]):
    """The rows of a pyarrow.Table, each made when it is asked for."""

    table: pyarrow.Table

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return self.table.take(list(range(*place.indices(len(self))))).to_pylist()
        return self.table.slice(range(len(self))[place], 1).to_pylist()[0]


def _column(values: list[Any]) -> pyarrow.Array:
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if value is None else str(value) for value in values], pa.string())
