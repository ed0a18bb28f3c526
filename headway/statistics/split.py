"""Statistics of one split: a `ColumnStatistics` for each stored column, kept as a folder a person can read.

statistics = SplitStatistics.create(columns)
statistics.update(batch)
statistics.save(Path("statistics/train"))      # statistics.json + counts.arrow + sample.arrow
statistics.merge(SplitStatistics.load(Path("other")))
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headway.errors import DataError
from headway.schema import Column
from headway.statistics.column import ColumnStatistics
from headway.statistics.sample import FILE as SAMPLE_NAME
from headway.statistics.sample import RowSample

JSON_NAME, COUNTS_NAME = "statistics.json", "counts.arrow"
FORMAT = 1
_COUNTS = pa.schema(
    [
        ("column", pa.int32()),
        ("integer", pa.int64()),
        ("number", pa.float64()),
        ("bytes", pa.large_binary()),
        ("count", pa.int64()),
    ]
)
"""One row a distinct value; `column` counts the columns of statistics.json, and only its type's field is set."""


class SplitStatistics:
    def __init__(self, columns: dict[str, ColumnStatistics]):
        self.columns = columns
        self.rows = 0
        self.sample = RowSample.create(len(columns))
        """Some rows whole, for what only columns seen together can tell."""

    @classmethod
    def create(cls, columns: Sequence[Column]) -> SplitStatistics:
        return cls({column.name: ColumnStatistics(column.name, column.type, column.shape) for column in columns})

    def update(self, batch: pa.RecordBatch) -> None:
        """Add a batch of stored columns; columns it does not have are an error of the caller."""
        self.rows += batch.num_rows
        for name, column in self.columns.items():
            column.update(batch.column(name))
        self.sample.update(batch.select(list(self.columns)))

    def merge(self, other: SplitStatistics) -> None:
        """Add what `other` saw.

        Raises:
            DataError: the two are of different columns.
        """
        if self._types() != other._types():
            odd = sorted({name for name, _ in set(self._types()) ^ set(other._types())}) or ["their order"]
            raise DataError(
                f"statistics of different columns cannot be merged: {', '.join(odd)}",
                fix="ingest the spans of a window with the same columns and types",
            )
        self.rows += other.rows
        for name, column in self.columns.items():
            column.merge(other.columns[name])
        self.sample.merge(other.sample)

    def _types(self) -> list[tuple[str, str]]:
        return [(name, f"{column.type}{list(column.shape)}") for name, column in self.columns.items()]

    def save(self, folder: Path) -> None:
        """Write the folder; the same statistics give the same bytes."""
        folder.mkdir(parents=True, exist_ok=True)
        value = {"format": FORMAT, "rows": self.rows, "columns": [c.to_json() for c in self.columns.values()]}
        (folder / JSON_NAME).write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
        tables = [t for i, column in enumerate(self.columns.values()) if (t := _counts(i, column)) is not None]
        with pa.OSFile(str(folder / COUNTS_NAME), "wb") as file, pa.ipc.new_file(file, _COUNTS) as writer:
            for table in tables:
                writer.write_table(table, max_chunksize=1 << 20)
        self.sample.save(folder / SAMPLE_NAME)

    @classmethod
    def load(cls, folder: Path) -> SplitStatistics:
        """What `save` wrote.

        Raises:
            DataError: the folder is missing or damaged.
        """
        try:
            value = json.loads((folder / JSON_NAME).read_text(encoding="utf-8"))
            if value["format"] > FORMAT:
                raise DataError(
                    f"statistics of format {value['format']} are from a newer Headway; this one reads up to {FORMAT}",
                    where=str(folder),
                    fix="install that version, or use another store",
                )
            made = cls({c["name"]: ColumnStatistics.from_json(c) for c in value["columns"]})
            made.rows = value["rows"]
            columns = list(made.columns.values())
            with pa.memory_map(str(folder / COUNTS_NAME)) as file:
                reader = pa.ipc.open_file(file)
                for i in range(reader.num_record_batches):
                    _take(reader.get_batch(i), columns)
            made.sample = RowSample.load(folder / SAMPLE_NAME, len(columns))
        except (OSError, ValueError, TypeError, LookupError, RuntimeError, pa.ArrowException) as error:
            raise DataError(
                f"statistics cannot be read: {error}", where=str(folder), fix="delete the folder and run again"
            ) from None
        return made


def _counts(index: int, column: ColumnStatistics) -> pa.Table | None:
    if not column.complete:
        return None
    if column.text is not None:
        values, counts = column.text.sorted()
        field = "bytes"
    else:
        assert column.numbers is not None
        array, counts = column.numbers.sorted()
        field = "integer" if column.type == "int64" else "number"
        values = pa.array(array)
    n = len(counts)
    if not n:
        return None
    arrays = {name: pa.nulls(n, _COUNTS.field(name).type) for name in ("integer", "number", "bytes")}
    arrays |= {"column": pa.array(np.full(n, index, np.int32)), field: values, "count": pa.array(counts)}
    return pa.table([arrays[name] for name in _COUNTS.names], schema=_COUNTS)


def _take(batch: pa.RecordBatch, columns: list[ColumnStatistics]) -> None:
    """A batch holds values of one column: each column's table was written on its own."""
    column = columns[batch.column("column")[0].as_py()]
    counts = batch.column("count").to_numpy().copy()  # the file is mapped, and goes
    if column.text is not None:
        column.text.add(pc.take(batch.column("bytes"), pa.array(np.arange(len(counts)))), counts)
    else:
        assert column.numbers is not None
        name = "integer" if column.type == "int64" else "number"
        column.numbers.add(batch.column(name).to_numpy().copy(), counts)


def merge_all(folders: Sequence[Path], columns: Sequence[Column]) -> SplitStatistics:
    """The statistics of several saved splits together, folded in the order given."""
    total = SplitStatistics.create(columns)
    for folder in folders:
        total.merge(SplitStatistics.load(folder))
    return total


def summary(statistics: SplitStatistics, top: int = 5) -> list[dict[str, Any]]:
    """A row for each column, of plain JSON values, for tables and reports. Figures are None where there are none."""
    return [_summary(column, top) for column in statistics.columns.values()]


def _summary(column: ColumnStatistics, top: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "column": column.name,
        "type": column.type,
        "rows": column.rows,
        "missing": column.missing,
        "missing_share": column.missing / column.rows if column.rows else 0.0,
        "distinct": column.distinct,
    }
    if column.shape:
        row |= {"elements": column.elements, "empty": column.empty}
        row |= {"shortest_list": column.shortest_list, "longest_list": column.longest_list}
    if column.type == "bytes":
        row |= {"shortest": column.shortest, "longest": column.longest, "mean_length": column.mean_length}
    else:
        quantiles = column.quantile([0.25, 0.5, 0.75]).tolist() if column.finite else [None] * 3
        row |= {
            "nan": column.nan,
            "infinite": column.infinite,
            "zeros": column.zeros,
            "mean": column.mean if column.finite else None,
            "std": column.std if column.finite else None,
            "min": column.minimum,
            "p25": quantiles[0],
            "median": quantiles[1],
            "p75": quantiles[2],
            "max": column.maximum,
        }
    if column.complete:
        row["top"] = [[_shown(value), count] for value, count in column.top(top)]
    return row


def _shown(value: Any) -> Any:
    return value.decode("utf-8", "backslashreplace")[:60] if isinstance(value, bytes) else value
