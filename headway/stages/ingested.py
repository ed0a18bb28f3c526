"""The answer of the ingest stage as a pydantic model: the columns, and for each split its rows, shards and statistics.

found = Ingested.model_validate(result)
found.splits["train"].rows, found.splits["train"].statistics
found.examples("spans/2013-01", "train")       # a reference for the request of another stage
"""

from pathlib import Path
from typing import Any

from pydantic import Field

from headway.config import Result
from headway.schema.columns import Column
from headway.stages.refs import Examples
from headway.storage.manifest import Counts


class SplitOutput(Result):
    """The number of rows, the statistics folder and the shards of one split of an ingested span."""

    rows: int
    statistics: str
    """The folder with the split's statistics, relative to the output's folder."""
    shards: tuple[dict[str, Any], ...] = ()
    """The shards as dicts, each with its file's path in the output and the row counts of its records."""


class Ingested(Result):
    columns: tuple[Column, ...]
    """The columns of the records."""
    unit: bool = False
    """Whether the records have a code per row for its unit, such as a patient; rows of one unit belong together."""
    splits: dict[str, SplitOutput] = Field(default={})
    counts: Counts | None = None

    def examples(self, folder: Path | str, split: str) -> Examples:
        """Returns a reference to the records of a split.

        Args:
            folder: the folder of the ingest output.
        """
        return Examples(path=Path(folder).absolute(), split=split, result=self.model_dump(mode="json"))
