"""Reads the data for a draft's decisions: the sample that a run would infer the schema from, and rows from all over the files.

look = sample_source(SourceConfig(format="csv", path="wine.csv"))
look.names, look.sample.table.num_rows
seen = typed_rows(look, LabelConfig(column="quality"))        # in stored types, with the label
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headway.errors import ConfigError, DataError
from headway.messages import agree, counted, some
from headway.schema.columns import LABEL, Column, ColumnConfig, Schema
from headway.schema_inference.column_types import PREFIX_ROWS, infer
from headway.sources.base import InputFile, sample_spans
from headway.sources.config import FORMATS, SourceConfig
from headway.sources.formats.csv import unnamed_column
from headway.sources.sample import Sample
from headway.sources.spans import files, open_source, spans
from headway.tabular.coerce import coerce, raw_types
from headway.tabular.label import LabelConfig
from headway.tabular.list_arrays import as_batch

MOST_BYTES = 256 << 20
"""The most bytes that are read of larger data, in ranges spread evenly over them."""
MOST_ROWS = 200_000
"""The most rows that are looked at, taken evenly from those read."""
MOST_CELLS = 20_000_000
MOST_REJECTED = 0.01
"""The share of a span's rows that may be rejected; `validation.max_quarantined` has the same default."""


@dataclass(frozen=True)
class SourceSample:
    """The files of a source, and the sample of their rows that types are inferred from."""

    config: SourceConfig
    spans: tuple[str, ...]
    files: tuple[InputFile, ...]
    """The files of all spans."""
    sample: Sample
    later: tuple[str, ...] = ()
    """Columns that the first span lacks."""

    @property
    def names(self) -> list[str]:
        """The names of the columns, in the files' order."""
        return self.sample.table.column_names

    def clashes(self, label: LabelConfig) -> dict[str, str]:
        """Returns {column: why no type fits}, such as text in some rows and objects in others, except for the label's columns."""
        files = {name: f", in {file}" for name, file in self.sample.damaged.items()}
        conflicts = {name: f"{why}{files.get(name, '')}" for name, why in self.sample.conflicts.items()}
        return {name: conflicts[name] for name in self.names if name in conflicts and name not in label.columns()}


@dataclass(frozen=True)
class TypedRows:
    """The rows that were read, in their stored types. The last column, `label`, is the label of each row."""

    schema: Schema
    doubts: tuple[str, ...]
    """Notes on columns that cannot be read as they are, or may be meant in another way."""
    rows: pa.RecordBatch
    """The rows that have a label; each column under its own name, and last the label."""
    read: int
    """The number of rows read, with those that were rejected or have no label."""
    rejected: int
    whole: bool
    """Whether these are all rows of the data, and in their order."""

    @property
    def label(self) -> pa.Array:
        """The label of each row: int64, float32 or binary."""
        return self.rows.column(self.rows.num_columns - 1)

    def values(self, name: str) -> pa.Array:
        return self.rows.column(self.rows.schema.names.index(name))


def sample_source(config: SourceConfig) -> SourceSample:
    """Returns the files of a source, and the sample of its rows that types are inferred from.

    Raises:
        ConfigError, DataError: the source cannot be read, or has no rows or only one column.
    """
    names = spans(config)
    by_span = [files(config, span) for span in names]
    source = open_source(config)
    sample = sample_spans(source, by_span, PREFIX_ROWS)[1]
    if not sample.table.num_rows:
        raise DataError("it holds no row", where=config.path, fix="name a file with rows")
    if len(names_found := sample.table.column_names) < 2:
        raise DataError(
            f"it has one column, {some(names_found, 1, repr)}; a label and something to learn it from are two",
            where=config.path,
            fix="bring columns that say something of a row; a separator that was not found is set by source.csv.delimiter",
        )
    first = sample.table.column_names
    if len(names) > 1 and FORMATS[config.format].named:
        first = source.names(by_span[0][-1])
    later = tuple(name for name in sample.table.column_names if name not in first)
    return SourceSample(config, tuple(names), tuple(file for of_span in by_span for file in of_span), sample, later)


def typed_rows(look: SourceSample, label: LabelConfig) -> TypedRows:
    """Returns the rows that have a label (of many rows some), in the types that a run would infer, with the label of each row.

    Raises:
        ConfigError: the label names a column that does not exist, cannot be computed, or has no value in any row.
        DataError: a column of the label has no value, or no row can be read.
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
        typed=FORMATS[look.config.format].typed,
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
    doubts = []
    for note in dict.fromkeys(note.model_copy(update={"column": None}) for note in notes if note.column != ""):
        names = [each.column for each in notes if each.text == note.text and each.column]  # one line, of however many
        if names and (note.doubt or note.left_out):
            out = f" {agree(len(names), 'is', 'are')} left out" if note.left_out else ""
            doubts.append(f"{agree(len(names), 'column', 'columns')} {some(names, 3, repr)}{out}: {note.text}")
    doubts += [f"{why}: left out" for why in dict.fromkeys(clashes.values())]
    if look.config.csv.names == tuple(unnamed_column(place) for place, _ in enumerate(look.names, 1)):
        doubts.append("no line has the names of the columns: --label names one by its place, as column_3")
    elif look.config.csv.names:
        doubts.append("its header does not name each column once: the names are those of source.csv.names")
    if (without := len(known) - known.true_count) * 100 > len(known):
        doubts.append(
            f"{without:,} of {counted(len(known), 'row')} {agree(without, 'has', 'have')} no label and are left out"
        )
    return TypedRows(schema, tuple(doubts), rows, read + rejected, rejected, whole)


def _parts(look: SourceSample, columns: Sequence[Column]) -> tuple[list[pa.RecordBatch], int, bool]:
    """Returns batches in stored types, the number of rejected rows, and whether all rows of the files were read."""
    source = open_source(look.config, look.files, look.later, columns)
    chosen = ranges = source.ranges(look.files)
    most = max(1, len(ranges) * MOST_BYTES // max(sum(file.bytes for file in look.files), 1))
    if most < len(ranges):
        chosen = [ranges[i] for i in np.unique(np.linspace(0, len(ranges) - 1, most).astype(int))]
    parts, rejected = list[pa.RecordBatch](), 0
    names = [column.name for column in columns]
    for piece in chosen:
        for chunk in source.read(piece, names, raw_types(columns)):
            batch = coerce(chunk.batch, columns).batch
            rejected += len(chunk.malformed) + chunk.batch.num_rows - batch.num_rows
            if batch.num_rows:
                parts.append(batch)
    return parts, rejected, len(chosen) == len(ranges)
