"""The result of the statistics stage: the number of rows of each split, and a summary of each column.

found = WindowStatistics.model_validate(result)
found.rows["train"], found.of("train")["carrier"].distinct
"""

from pydantic import Field

from headway.config import Result
from headway.schema.calendar_days import Temporal
from headway.schema.columns import StoredType


class ColumnSummary(Result):
    """The summary of one column in one split. A figure that does not exist for the column's type is None."""

    column: str
    type: StoredType
    rows: int
    missing: int = 0
    missing_share: float = 0.0
    distinct: int = 0
    temporal: Temporal | None = None
    """The unit in which dates and times are counted since 1970-01-01."""
    distinct_error: float | None = None
    """The relative standard error of `distinct`, where it is an estimate."""
    rank_error: float | None = None
    """The largest error of an estimated quantile's rank, as a share of the values."""
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
    """The number of bytes of the shortest text."""
    longest: int | None = None
    mean_length: float | None = None
    elements: int | None = None
    """The number of elements of lists and vectors."""
    null_elements: int | None = None
    """The number of nulls within lists. Such nulls are not counted as elements."""
    empty: int | None = None
    shortest_list: int | None = None
    longest_list: int | None = None
    mean_list: float | None = None
    top: tuple[tuple[int | float | str, int], ...] = ()
    """The most frequent values, each with its number of rows. Empty if values were not counted."""


class WindowStatistics(Result):
    rows: dict[str, int] = Field(default={})
    """The number of rows of each split."""
    columns: dict[str, tuple[ColumnSummary, ...]] = Field(default={})

    def of(self, split: str) -> dict[str, ColumnSummary]:
        """Returns the summary of each column of a split, by the column's name. Empty if there is no such split."""
        return {column.column: column for column in self.columns.get(split, ())}
