"""Statistics of one split: a `ColumnStatistics` for each stored column. They are saved as a folder that a person can read.

statistics = SplitStatistics.create(columns)
statistics.update(batch)
statistics.save(Path("statistics/train"))      # statistics.json, counts.arrow and the samples
statistics.merge(SplitStatistics.load(Path("other")))

Text beyond a memory budget goes to temporary files in the folder `spill`. The caller removes the folder after the statistics are
saved; what is saved does not depend on it. If there is much text, loading does not read it: then the folder of the saved
statistics must stay while they are used.
"""

import json
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.errors import DataError
from headway.schema.calendar_days import Temporal
from headway.schema.columns import LABEL, Column
from headway.statistics.column_statistics import ColumnStatistics, NumberLimits
from headway.statistics.counts import BLOCK, Budget, Run, compacted
from headway.statistics.row_sample import FILE as SAMPLE_NAME
from headway.statistics.row_sample import FILE_BY_LABEL as LABEL_SAMPLE_NAME
from headway.statistics.row_sample import LabelSample, RowSample, hashed_texts
from headway.storage.manifest import FORMAT, check_format

JSON_NAME, COUNTS_NAME = "statistics.json", "counts.arrow"
_COUNTS = pa.schema(
    [
        ("column", pa.int32()),
        ("integer", pa.int64()),
        ("number", pa.float64()),
        ("bytes", pa.large_binary()),
        ("count", pa.int64()),
    ]
)
"""The schema of counts.arrow, a row for each distinct value. `column` is the index of the value's column in statistics.json. Of
`integer`, `number` and `bytes`, only the one for its type is set. A batch has `BLOCK` values of one column, in rising order; the
last batch of a column may have fewer."""
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")
"""The compression of counts.arrow: it leaves a sixth of the bytes of 20 columns and 10,000 rows, and is faster than none."""
_IN_MEMORY, _ALL_IN_MEMORY = 4 * BLOCK, 1 << 20
"""The most distinct texts that loading reads into memory, of one column and of all columns. Others stay in their file."""


class SplitStatistics:
    def __init__(self, columns: dict[str, ColumnStatistics]):
        self.columns = columns
        self.rows = 0
        self.sample = RowSample.create(len(columns))
        """A sample of whole rows, for checks that compare several columns."""
        self.by_label = LabelSample.create(len(columns))
        """A sample with equally many rows of each class of the label."""

    @classmethod
    def create(cls, columns: Sequence[Column], *, spill: Path | None = None) -> Self:
        """Returns empty statistics of these columns. `spill` is the folder for text beyond the budget; None: there is none."""
        limits, budget = _shares([column.type for column in columns], spill)
        columns_of = [ColumnStatistics(c.name, c.type, c.shape, limits=limits, budget=budget) for c in columns]
        return cls({column.name: column for column in columns_of}).with_units(columns)

    def with_units(self, columns: Iterable[Column]) -> Self:
        """Set each column's unit of dates and times from `columns`, as files do not hold it. Returns this object."""
        for column in columns:
            if column.temporal is not None and column.name in self.columns:
                self.columns[column.name].temporal = column.temporal
        return self

    def update(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch of stored columns. Columns without statistics here are ignored."""
        self.rows += batch.num_rows
        # looking up each name would be quadratic
        arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
        counted = pa.RecordBatch.from_arrays([arrays[name] for name in self.columns], names=list(self.columns))
        for column, array in zip(self.columns.values(), counted.columns, strict=True):
            column.update(array)
        label = arrays.get(LABEL)
        priority, chosen = self.sample.choose(batch.num_rows)
        drawn = self.by_label.choose(label, priority) if label is not None else []
        sampled = np.zeros(batch.num_rows, np.bool_)
        for part in (chosen, *(part for _, part in drawn)):
            sampled[part] = True
        rows = np.flatnonzero(sampled)
        if not len(rows):
            return
        sampled_rows = hashed_texts(counted, rows)
        if len(chosen):
            self.sample.add(priority[chosen], sampled_rows.take(pa.array(np.searchsorted(rows, chosen))))
        self.by_label.add(drawn, priority, rows, sampled_rows)

    def merge(self, other: Self) -> None:
        """Add the statistics of other rows.

        Raises:
            DataError: `other` has other columns or types.
        """
        if self._types() != other._types():
            differing = sorted({name for name, _ in set(self._types()) ^ set(other._types())}) or ["their order"]
            raise DataError(
                f"statistics of different columns cannot be merged: {', '.join(differing)}",
                fix="ingest the spans of a window with the same columns and types",
            )
        self.rows += other.rows
        for name, column in self.columns.items():
            column.merge(other.columns[name])
        self.sample.merge(other.sample)
        self.by_label.merge(other.by_label)

    def __reduce__(self) -> tuple[Any, ...]:
        # as its files: sketches, budgets and spilled text do not pickle
        with tempfile.TemporaryDirectory() as folder:
            self.save(Path(folder))
            files = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
        return _unpickled, (files, {name: c.temporal for name, c in self.columns.items() if c.temporal is not None})

    def _types(self) -> list[tuple[str, str]]:
        return [(name, f"{column.type}{list(column.shape)}") for name, column in self.columns.items()]

    def save(self, folder: Path) -> None:
        """Write the statistics into `folder`, whose parent must exist. The same statistics give the same bytes."""
        folder.mkdir(exist_ok=True)  # not its parents: they go when a stage is given up
        columns = [column.to_json() for column in self.columns.values()]
        text = json.dumps({"format": FORMAT, "rows": self.rows, "columns": columns}, indent=1)
        (folder / JSON_NAME).write_text(text + "\n", encoding="utf-8")
        # aside first: it may be the file that text is still read from
        part = folder / f"{COUNTS_NAME}.part"
        with pa.OSFile(str(part), "wb") as file, pa.ipc.new_file(file, _COUNTS, options=_COMPRESSED) as writer:
            for i, column in enumerate(self.columns.values()):
                for batch in _counts(i, column):
                    writer.write_batch(batch)
        part.replace(folder / COUNTS_NAME)
        self.sample.save(folder / SAMPLE_NAME)
        self.by_label.save(folder / LABEL_SAMPLE_NAME)

    @classmethod
    def load(
        cls, folder: Path, *, spill: Path | None = None, only: Collection[str] | None = None, in_memory: bool = False
    ) -> Self:
        """Read the statistics that `save` wrote; `spill` is as in `create`.

        Args:
            in_memory: whether even a large amount of text is read into memory, so that the folder may be deleted.
            only: the columns to load. Sampled rows are then not loaded, and the result cannot be merged. None: everything.

        Raises:
            DataError: the folder is missing or damaged.
            StoreError: the folder has another format.
        """
        try:
            value = json.loads((folder / JSON_NAME).read_text(encoding="utf-8"))
            check_format(value, str(folder))
            limits, budget = _shares([c["type"] for c in value["columns"]], spill)
            columns = [
                ColumnStatistics.from_json(c, limits=limits, budget=budget)
                if only is None or c["name"] in only
                else None
                for c in value["columns"]
            ]
            statistics = cls({column.name: column for column in columns if column is not None})
            statistics.rows = value["rows"]
            _load_counts(folder / COUNTS_NAME, columns, [c.get("distinct") for c in value["columns"]], in_memory)
            if only is not None:
                return statistics
            statistics.sample = RowSample.load(folder / SAMPLE_NAME, len(columns))
            statistics.by_label = LabelSample.load(folder / LABEL_SAMPLE_NAME, len(columns), rows=statistics.rows)
        except (OSError, ValueError, TypeError, LookupError, RuntimeError, pa.ArrowException) as error:
            raise DataError(
                f"statistics cannot be read: {error}", where=str(folder), fix="delete the folder and run again"
            ) from None
        return statistics


def _unpickled(files: dict[str, bytes], temporal: dict[str, Temporal]) -> SplitStatistics:
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            (Path(folder) / name).write_bytes(data)
        statistics = SplitStatistics.load(Path(folder), in_memory=True)
    for name, kind in temporal.items():
        statistics.columns[name].temporal = kind
    return statistics


def _shares(types: Sequence[str], spill: Path | None) -> tuple[NumberLimits, Budget]:
    """Returns how many distinct values each numeric column may count, and the memory that all text columns share."""
    texts = sum(kind == "bytes" for kind in types)
    return NumberLimits.of(len(types) - texts), Budget(spill, columns=texts)


def _counts(index: int, column: ColumnStatistics) -> Iterator[pa.RecordBatch]:
    if not column.complete:
        return
    field, blocks = _blocks(column)
    for values, counts in blocks:
        n = len(counts)
        arrays = {name: pa.nulls(n, _COUNTS.field(name).type) for name in ("integer", "number", "bytes")}
        arrays |= {"column": pa.array(np.full(n, index, np.int32)), field: values, "count": pa.array(counts)}
        yield pa.record_batch([arrays[name] for name in _COUNTS.names], schema=_COUNTS)


def _blocks(column: ColumnStatistics) -> tuple[str, Iterator[tuple[Any, NDArray[np.int64]]]]:
    """Returns the field of counts.arrow for a column's values; and its distinct values, in rising order with their counts,
    `BLOCK` at a time."""
    if column.text is not None:
        return "bytes", ((compacted(values), counts) for values, counts in column.text.blocks())
    assert column.numbers is not None
    values, counts = column.numbers.sorted()
    cuts = [slice(i, i + BLOCK) for i in range(0, len(counts), BLOCK)]
    field = "integer" if column.type == "int64" else "number"
    return field, ((pa.array(values[cut]), counts[cut]) for cut in cuts)


def _load_counts(
    path: Path, columns: list[ColumnStatistics | None], distinct: list[int | None], in_memory: bool
) -> None:
    """Load the counts of columns, of which each has `distinct` values. None in `columns` stands for a column to skip."""
    with pa.OSFile(str(path)) as file:
        reader = pa.ipc.open_file(file)
        batches = [-(-(n or 0) // BLOCK) for n in distinct]
        if sum(batches) != reader.num_record_batches:
            raise ValueError(f"{path.name} has {reader.num_record_batches} batches in place of {sum(batches)}")
        first = 0
        texts = sum(column is not None and column.text is not None for column in columns)
        few = min(_IN_MEMORY, _ALL_IN_MEMORY // max(1, texts))
        for column, count, rows in zip(columns, batches, distinct, strict=True):
            if column is None:
                pass
            elif column.text is not None and (rows or 0) > few and not in_memory:
                column.text.add_run(Run(path, first, count, rows or 0, temporary=False))
            else:
                read = sum(_take(reader.get_batch(i), column) for i in range(first, first + count))
                if read != (rows or 0):
                    raise ValueError(f"{path.name} has {read} distinct values of {column.name!r} in place of {rows}")
            first += count


def _take(batch: pa.RecordBatch, column: ColumnStatistics) -> int:
    """Add the counts of a batch to its column. Returns the number of distinct values in the batch."""
    if column.text is not None:
        column.text.add(batch.column("bytes"), batch.column("count").to_numpy())
    else:
        assert column.numbers is not None
        field = "integer" if column.type == "int64" else "number"
        column.numbers.add_rising(*(np.array(batch.column(name)) for name in (field, "count")))  # not the whole batch
    return batch.num_rows


def merge_all(folders: Sequence[Path], columns: Sequence[Column], *, spill: Path | None = None) -> SplitStatistics:
    """Returns the merged statistics of the saved splits in `folders`, in this order; `spill` is as in `create`."""
    total = SplitStatistics.create(columns, spill=spill)
    for folder in folders:
        total.merge(SplitStatistics.load(folder))
    return total


def summary(statistics: SplitStatistics, top: int = 5) -> list[dict[str, Any]]:
    """Returns a dict of figures (or None) per column, for JSON; with its `top` most frequent values if all were counted."""
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
    if column.temporal:
        row["temporal"] = column.temporal
    if column.distinct_error:
        row["distinct_error"] = column.distinct_error
    if column.rank_error:
        row["rank_error"] = column.rank_error
    if column.shape:
        row |= {"elements": column.elements, "null_elements": column.null_elements, "empty": column.empty}
        row |= {"shortest_list": column.shortest_list, "longest_list": column.longest_list}
        row["mean_list"] = column.elements / column.present if column.present else None
    if column.type == "bytes":
        row |= {"shortest": column.shortest, "longest": column.longest, "mean_length": column.mean_bytes}
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
        row["top"] = [[_json_value(value), count] for value, count in column.top(top)]
    return row


def _json_value(value: Any) -> Any:
    return value.decode("utf-8", "backslashreplace")[:60] if isinstance(value, bytes) else value
