"""Reads what the decisions rest on: the sample that a run would infer the schema from, and rows from all over the files.

look = take(SourceConfig(format="csv", path="wine.csv"))
look.names, look.rows.num_rows
seen = typed(look, LabelConfig(column="quality"))        # in stored types, with the label
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headway.errors import ConfigError, DataError
from headway.messages import agree, counted
from headway.schema.columns import LABEL, Column, ColumnConfig, Schema
from headway.schema_inference.column_types import PREFIX_ROWS, infer
from headway.sources.base import Chunk, InputFile, Range, sample_spans
from headway.sources.config import NAMED, SourceConfig
from headway.sources.discovery.spans import files, open_source, spans
from headway.sources.sample import Sample
from headway.tabular.coerce import Coerced, coerce, raw_types
from headway.tabular.label import LabelConfig
from headway.tabular.list_arrays import as_batch
from headway.tabular.quarantine import text_of

MOST_BYTES = 256 << 20
"""Of larger data so much is read, in ranges spread evenly over them."""
MOST_ROWS = 200_000
"""Rows that are looked at, taken evenly from those read."""
MOST_CELLS = 20_000_000
MOST_REJECTED = 0.01
"""The share of a span's rows that may be rejected; `validation.max_quarantined` has the same default."""


@dataclass(frozen=True)
class Look:
    """The files, and the sample that types are inferred from."""

    config: SourceConfig
    spans: tuple[str, ...]
    files: tuple[InputFile, ...]
    """Of all spans."""
    sample: Sample
    starts: tuple[int, ...] = (0,)
    """The place in `files` of each span's first one."""
    later: tuple[str, ...] = ()
    """Columns that the first span lacks."""

    @property
    def names(self) -> list[str]:
        """The columns in the files' order."""
        return self.sample.table.column_names

    def clashes(self, label: LabelConfig) -> dict[str, str]:
        """The columns that no type holds, such as text in some rows and an object in others, and why; the label's aside."""
        files = {name: f", in {file}" for name, file in self.sample.damaged.items()}
        conflicts = {name: f"{why}{files.get(name, '')}" for name, why in self.sample.conflicts.items()}
        return {name: conflicts[name] for name in self.names if name in conflicts and name not in label.columns()}


@dataclass(frozen=True)
class Seen:
    """Rows in their stored types; the label's column is called `label`."""

    schema: Schema
    doubts: tuple[str, ...]
    """Notes on columns that cannot be read as they are, or may be meant in another way."""
    rows: pa.RecordBatch
    """Without rows that have no label; each column under its own name but for the label."""
    read: int
    """Rows that were read, with those that were rejected or have no label."""
    rejected: int
    whole: bool
    """Whether these are all rows of the data, and in their order."""

    @property
    def label(self) -> pa.Array:
        """The label of each row: int64, float32 or binary."""
        return self.rows.column(self.rows.num_columns - 1)

    def labelled(self, label: LabelConfig) -> Seen:
        """The same rows with another label of the same columns."""
        columns, names = self.rows.columns[:-1], self.rows.schema.names[:-1]
        values = label.compute(pa.RecordBatch.from_arrays(columns, names=names))
        return replace(self, rows=pa.RecordBatch.from_arrays([*columns, values], names=[*names, LABEL]))

    def values(self, name: str) -> pa.Array:
        return self.rows.column(self.rows.schema.names.index(name))


def take(config: SourceConfig) -> Look:
    """Look at a source.

    Raises:
        ConfigError, DataError: it cannot be read.
    """
    names = spans(config)
    by_span = [files(config, span) for span in names]
    source = open_source(config)
    sample = sample_spans(source, by_span, PREFIX_ROWS)[1]
    if not sample.table.num_rows:
        raise DataError("it holds no row", where=config.path, fix="name a file with rows")
    starts = np.cumsum([0, *map(len, by_span[:-1])]).tolist()
    first = source.names(by_span[0][-1]) if len(names) > 1 and config.format in NAMED else sample.table.column_names
    later = tuple(name for name in sample.table.column_names if name not in first)
    return Look(
        config, tuple(names), tuple(file for files_ in by_span for file in files_), sample, tuple(starts), later
    )


def typed(look: Look, label: LabelConfig) -> Seen:
    """The rows in the types that a run would infer, and the label of each.

    Raises:
        ConfigError: the label names a column that does not exist, or cannot be computed.
        DataError: the label has no value, or so many rows of a span cannot be read that a run would stop.
    """
    for name in {*label.columns()} & {*look.names}:
        if look.sample.table.column(name).null_count == look.sample.table.num_rows:
            raise DataError(
                f"column {name!r} has no value in the first {counted(look.sample.table.num_rows, 'row')}: nothing to learn",
                where=look.config.path,
                fix="fill it, or name another column by --label",
            )
    clashes = look.clashes(label)
    schema, notes = infer(
        look.sample,
        dict.fromkeys(clashes, ColumnConfig(role="ignore")),
        only=False,
        needed=label.columns(),
        where=look.config.path,
        typed=look.config.format != "csv",
    )
    columns = schema.columns
    if look.config.format == "images":  # bytes of files say nothing here, and there may be many
        columns = tuple(column for column in columns if column.name in label.columns())
    parts, rejected, whole = _parts(look, columns)
    if not parts:
        raise DataError("no row could be read", where=look.config.path, fix="check the separator and the types")
    table = pa.Table.from_batches(parts)
    label.stored(schema.columns)  # refuses text that is compared with a number
    most = max(1, min(MOST_ROWS, MOST_CELLS // max(1, table.num_columns)))
    read = table.num_rows
    if read > most:
        table, whole = table.take(pa.array(np.linspace(0, read - 1, most).astype(np.int64))), False
    batch = as_batch(table)
    values = label.compute(batch)
    known = values.is_valid()
    batch, values = batch.filter(known), values.filter(known)
    rows = pa.RecordBatch.from_arrays([*batch.columns, values], names=[*batch.schema.names, LABEL])
    if not rows.num_rows:
        raise ConfigError("the label has no value in any row", where="--label", fix="name another column or expression")
    doubts = [str(note) for note in notes if note.left_out or note.doubt]
    doubts += [f"{why}: left out" for why in dict.fromkeys(clashes.values())]
    if (without := len(known) - known.true_count) * 100 > len(known):
        doubts.append(
            f"{without:,} of {counted(len(known), 'row')} {agree(without, 'has', 'have')} no label and are left out"
        )
    return Seen(schema, tuple(doubts), rows, read + rejected, rejected, whole)


def _parts(look: Look, columns: Sequence[Column]) -> tuple[list[pa.RecordBatch], int, bool]:
    """(batches in stored types, rows that were rejected, whether these are all rows)."""
    source = open_source(look.config, look.files, look.later, columns)
    ranges = source.ranges(look.files)
    size = sum(file.bytes for file in look.files)
    most = max(1, len(ranges) * MOST_BYTES // max(size, 1))
    bounds = _Spans(look)
    chosen = ranges
    if most < len(ranges):
        chosen = [ranges[i] for i in np.unique(np.linspace(0, len(ranges) - 1, most).astype(int))]
    parts, rejected = list[pa.RecordBatch](), 0
    names = [column.name for column in columns]
    for piece in chosen:
        for chunk in source.read(piece, names, raw_types(columns)):
            coerced = coerce(chunk.batch, columns)
            wrong = len(chunk.malformed) + chunk.batch.num_rows - coerced.batch.num_rows
            rejected += wrong
            bounds.add(piece, chunk, coerced, wrong)
            if coerced.batch.num_rows:
                parts.append(coerced.batch)
    if len(chosen) == len(ranges):
        bounds.check()
    return parts, rejected, len(chosen) == len(ranges)


class _Spans:
    """Counts the rejected rows of each span, and keeps the first of them."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._read, self._rejected, self._first = Counter[int](), Counter[int](), dict[int, str]()

    def add(self, piece: Range, chunk: Chunk, coerced: Coerced, wrong: int) -> None:
        span = bisect.bisect_right(self._look.starts, piece.file) - 1
        self._read[span] += len(chunk.malformed) + chunk.batch.num_rows
        self._rejected[span] += wrong
        if wrong and span not in self._first:
            self._first[span] = f"{piece.path}: {_told(chunk, coerced)}"

    def check(self) -> None:
        """Refuses a span of which validation would refuse a run."""
        for span, wrong in self._rejected.items():
            if wrong > MOST_REJECTED * self._read[span]:
                name = f" of span {self._look.spans[span]}" if len(self._look.spans) > 1 else ""
                raise DataError(
                    f"{wrong:,} of {self._read[span]:,} rows{name} cannot be read as the first rows are, and a run "
                    f"stops at {MOST_REJECTED:.0%} (validation.max_quarantined); the first: {self._first[span]}",
                    where=self._look.config.path,
                    fix="mend these values, leave the column out of the files, or move the files elsewhere",
                )


def _told(chunk: Chunk, coerced: Coerced) -> str:
    """The first row of a chunk that cannot be read."""
    if coerced.rejected.num_rows:
        row = coerced.rejected.slice(0, 1).to_pylist()[0]
        return f"column {row['column']!r}: {row['value']!r} {row['reason']}"
    bad = chunk.malformed[0]
    column = "" if bad.column is None else f"column {bad.column!r}: "
    return f"{column}{text_of(bad.text or '')[:80]!r} {bad.reason}"
