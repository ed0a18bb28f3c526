"""The answer of the ingest stage, with fields: columns, and by split the rows, shards and statistics.

found = Ingested.model_validate(result)
found.splits["train"].rows, found.splits["train"].statistics
"""

from __future__ import annotations

from pydantic import Field

from headway.config import Result
from headway.schema.columns import Column
from headway.storage.manifest import Counts


class SplitOutput(Result):
    """One split of a span."""

    rows: int
    statistics: str
    """A folder of the output."""


class Ingested(Result):
    columns: tuple[Column, ...]
    """Of the records."""
    splits: dict[str, SplitOutput] = Field(default={})
    counts: Counts | None = None
