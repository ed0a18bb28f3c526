"""The answer of the ingest stage, with fields: columns, and by split the rows, shards and statistics.

found = Ingested.model_validate(result)
found.splits["train"].rows, found.splits["train"].statistics
found.examples("spans/2013-01", "train")       # as the request of another stage takes them
"""

from pathlib import Path
from typing import Any

from pydantic import Field

from headway.config import Result
from headway.schema.columns import Column
from headway.stages.refs import Examples
from headway.storage.manifest import Counts


class SplitOutput(Result):
    """One split of an ingested span."""

    rows: int
    statistics: str
    """The folder of the split's statistics in the output."""
    shards: tuple[dict[str, Any], ...] = ()
    """The shards, each with its file and the rows of its records."""


class Ingested(Result):
    columns: tuple[Column, ...]
    """The columns of the records."""
    unit: bool = False
    """Whether records say which rows belong together."""
    splits: dict[str, SplitOutput] = Field(default={})
    counts: Counts | None = None

    def examples(self, folder: Path | str, split: str) -> Examples:
        """Returns the records of a split.

        Args:
            folder: the output's.
        """
        return Examples(path=Path(folder).absolute(), split=split, result=self.model_dump(mode="json"))
