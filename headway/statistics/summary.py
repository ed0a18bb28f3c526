"""The answer of the statistics stage, with fields: rows by split, and a summary of each column.

found = WindowStatistics.model_validate(result)
found.rows["train"], found.of("train")["carrier"].distinct
"""

from pydantic import Field

from headway.config import Result
from headway.schema.calendar_days import Temporal
from headway.schema.columns import StoredType


class ColumnSummary(Result):
    """A column of one split; figures are None where there are none, as of a type that does not have them."""

    column: str
    type: StoredType
    rows: int
    missing: int = 0
    missing_share: float = 0.0
    distinct: int = 0
    temporal: Temporal | None = None
    """What dates and times are counted in since 1970-01-01."""
    distinct_error: float | None = None
    """Of an estimate: its relative standard error."""
    rank_error: float | None = None
    """Of estimated quantiles."""
    nan: int | None = None
    infinite: int | None = None
    zeros: int | None = None
    mean: float | None = None
    std: float | None = None
    min: int | float | None = None
    p25: float | None = None
    median: float | None = None
    p75: float | None = None
    max: int | float | None = None
    shortest: int | None = None
    """In bytes."""
    longest: int | None = None
    mean_length: float | None = None
    elements: int | None = None
    """Of lists and vectors."""
    null_elements: int | None = None
    """Nulls within lists, which are no elements."""
    empty: int | None = None
    shortest_list: int | None = None
    longest_list: int | None = None
    mean_list: float | None = None
    top: tuple[tuple[int | float | str, int], ...] = ()
    """The most frequent values with their rows; empty where they were not counted."""


class WindowStatistics(Result):
    rows: dict[str, int] = Field(default={})
    """By split."""
    columns: dict[str, tuple[ColumnSummary, ...]] = Field(default={})

    def of(self, split: str) -> dict[str, ColumnSummary]:
        """The columns of a split, by name."""
        return {column.column: column for column in self.columns.get(split, ())}
