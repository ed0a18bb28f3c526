"""Raw rows as stored columns, split: the way of a row through an ingest, in memory and without its files.

stored = StoredRows.of(raw, label=LabelConfig(column="late"), columns={"fare": "ignore", "*": "auto"})
stored.splits["train"], stored.statistics["train"]       # what a transform is fitted on
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.config import load
from headway.errors import ConfigError, DataError
from headway.leakage.keys import unit_codes
from headway.messages import agree, counted
from headway.schema.columns import UNIT, Column, named_for
from headway.schema_inference.column_types import infer
from headway.schema_inference.split_columns import chosen, row_columns
from headway.sources.base import Chunk
from headway.sources.sample import Sample
from headway.statistics.split_statistics import SplitStatistics
from headway.tabular import quarantine
from headway.tabular.coerce import coerce, raw_types
from headway.tabular.label import LabelConfig
from headway.tabular.row_split import RowSplit
from headway.tabular.splits import SPLITS, SplitConfig
from headway.validation.config import ValidateConfig
from headway.validation.label_checks import labels, weights
from tfcore.library.raw_rows import WHERE, RawRows
from tfcore.transform.column_config import ColumnConfig, check_columns, configured, is_stored, spelled_out

TRAIN, EVAL = SPLITS[:2]
Configs = Literal["auto"] | Mapping[str, Any] | Sequence[str]


@dataclass(frozen=True)
class Stored:
    """How raw rows become stored ones."""

    read: tuple[Column, ...]
    """The raw columns with their roles, those of the label among them."""
    columns: tuple[Column, ...]
    """Those that are stored; the label is the last, called "label"."""
    label: LabelConfig

    @property
    def weight(self) -> Column | None:
        return next((column for column in self.columns if column.role == "weight"), None)

    def table(self, raw: RawRows, features: Collection[str]) -> pa.Table:
        """Other rows, those with a label, as stored columns; of the features those named, others are null.

        Raises:
            DataError: a column is missing, a row does not fit, or none has a label.
        """
        wanted = {*features, *self.label.columns(), *([self.weight.name] if self.weight else [])}
        read = [column for column in self.read if column.name in wanted]
        parts = []
        for batch in coerced(raw, read):
            label = self.label.compute(batch)
            parts.append(self.batch(batch, label).filter(label.is_valid()))
        table = pa.Table.from_batches(parts)
        if not table.num_rows:
            raise DataError("no row has a label", where=WHERE)
        return table.unify_dictionaries()

    def batch(self, coerced: pa.RecordBatch, label: pa.Array) -> pa.RecordBatch:
        """The stored columns of a batch; one that the batch lacks is null."""
        arrays = [
            coerced.column(column.name) if column.name in coerced.schema.names else pa.nulls(len(label), column.arrow)
            for column in self.columns[:-1]
        ]
        arrays.append(label.dictionary_encode() if self.columns[-1].encoding == "dictionary" else label)
        return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in self.columns])


@dataclass(frozen=True)
class StoredRows:
    """The rows of each split as stored columns."""

    stored: Stored
    configs: Mapping[str, ColumnConfig]
    splits: Mapping[str, pa.Table]
    """With `UNIT` where a key splits them."""
    statistics: Mapping[str, SplitStatistics]
    rejected: pa.Table
    """file, row (from 1; of rows in memory from 0), column, value and reason of each row that does not fit."""
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        raw: RawRows,
        *,
        label: LabelConfig,
        columns: Configs = "auto",
        split: SplitConfig | None = None,
        task: str = "auto",
    ) -> Self:
        """Infer the schema, coerce the rows, compute their labels and split them.

        Args:
            columns: as in pipeline.yaml.
            split: None: all rows are train rows.

        Raises:
            ConfigError: a column that does not exist, or settings that do not go with it.
            DataError: more rows do not fit than an ingest would let pass, or their labels cannot be learned.
        """
        sample = raw.sample()
        configs, only_named = _configs(columns)
        needed = label.columns() | (split.columns() if split else frozenset())
        schema, inferred = infer(sample, configs, only=only_named, needed=needed, where=WHERE, typed=raw.typed)
        notes = [str(note) for note in inferred]
        read = tuple(
            configured(column, configs.get(column.name), _role(column.name, label, split, configs, only_named))
            for column in schema.columns
            if column.name in needed or column.name in configs or not only_named
        )
        check_columns(read, where="columns", notes=inferred, only_named=only_named)
        group = named_for(read, "group")
        if split is not None and group is not None and split.by_row:
            split = split.model_copy(update={"key": (group,)})
        work = _Work(read, label, split, _hashed(sample, label, split))
        for file, chunk in raw.chunks(*work.wanted(raw)):
            work.add(file, chunk)
        tables, rejected = work.tables(), pa.concat_tables([quarantine.SCHEMA.empty_table(), *work.rejected])
        statistics = {name: _statistics(table, work.stored.columns) for name, table in tables.items()}
        if work.unlabelled:
            notes.append(f"{counted(work.unlabelled, 'row has', 'rows have')} no label, and were left out")
        notes += _checked(work.rows, rejected, statistics, task, named_for(read, "weight"))
        return cls(work.stored, configs, tables, statistics, rejected, tuple(notes))


def coerced(raw: RawRows, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    """The rows as stored columns, each one of them.

    Raises:
        DataError: a column is missing, a row does not fit, or there are none.
    """
    types, empty = raw_types(columns), True
    for file, chunk in raw.chunks([column.name for column in columns], types):
        empty = False
        result = coerce(chunk.batch, columns)
        if result.rejected.num_rows or chunk.malformed:
            bad = _rejected(file, chunk, result.rejected).slice(0, 1).to_pylist()[0]
            raise DataError(f"{_said(bad)}", where=file or WHERE, fix="mend the row, or leave it out")
        yield result.batch
    if empty:
        raise DataError("there are no rows", where=WHERE)


class _Work:
    """The rows of each split, chunk by chunk."""

    def __init__(self, read: Sequence[Column], label: LabelConfig, split: SplitConfig | None, hashed: Sequence[Column]):
        self._read, self._label = tuple(read), label
        self._assign = RowSplit(split, read, hashed) if split is not None else None
        self._key = split.key if split is not None and split.key != (named_for(read, "group"),) else ()
        columns = (*(column for column in read if is_stored(column)), label.stored(self._read))
        self.stored = Stored(self._read, columns, label)
        self.rejected: list[pa.Table] = []
        self.rows = self.unlabelled = 0
        self._parts: dict[str, list[pa.RecordBatch]] = {}

    def wanted(self, raw: RawRows) -> tuple[list[str], dict[str, pa.DataType]]:
        """The columns to read, and their types."""
        types = raw_types(self._read)
        if self._assign is not None:
            types = self._assign.types(raw.names(), types)
        return list(dict.fromkeys([*(column.name for column in self._read), *types])), types

    def add(self, file: str, chunk: Chunk) -> None:
        self.rows += chunk.batch.num_rows + len(chunk.malformed)
        result = coerce(chunk.batch, self._read)
        self.rejected.append(_rejected(file, chunk, result.rejected))
        batch, rows, label = result.batch, result.fitting_rows, self._label.compute(result.batch)
        if label.null_count:  # first: a row that does not count may have a wrong value where the split looks
            self.unlabelled += label.null_count
            there = label.is_valid().to_numpy(zero_copy_only=False)
            rows = np.flatnonzero(there) if rows is None else rows[there]
            batch, label = batch.filter(pa.array(there)), label.filter(pa.array(there))
        codes: NDArray[np.int8] = np.zeros(batch.num_rows, np.int8)
        if self._assign is not None and batch.num_rows:
            codes = self._assign.assigned(batch, chunk.batch, rows).codes
        units = unit_codes(batch, self._key) if self._key else None
        batch = self.stored.batch(batch, label)
        if units is not None:
            batch = batch.append_column(UNIT, units)
        for code in np.unique(codes).tolist():
            self._parts.setdefault(SPLITS[code], []).append(batch.filter(pa.array(codes == code)))

    def tables(self) -> dict[str, pa.Table]:
        return {name: pa.Table.from_batches(parts).unify_dictionaries() for name, parts in self._parts.items()}


def _statistics(table: pa.Table, columns: Sequence[Column]) -> SplitStatistics:
    statistics = SplitStatistics.create(columns)
    for batch in table.to_batches():
        statistics.update(batch)
    return statistics


def _configs(columns: Configs) -> tuple[dict[str, ColumnConfig], bool]:
    """The settings of single columns, and whether only those that are named are taken."""
    if columns == "auto":
        return {}, False
    spelled = spelled_out(columns)
    if not isinstance(spelled, dict) or not spelled:
        fix = 'give settings by column, such as {"fare": "ignore", "*": "auto"}'
        raise ConfigError(f"{columns!r} is neither 'auto' nor settings of columns", where="columns", fix=fix)
    named = {name: value for name, value in spelled.items() if name != "*"}
    return {n: load(ColumnConfig, v, where=f"columns: {n}") for n, v in named.items()}, "*" not in spelled


def _role(
    name: str, label: LabelConfig, split: SplitConfig | None, configs: Mapping[str, ColumnConfig], only_named: bool
) -> Any:
    if name in configs:
        return configs[name].role
    if name in label.columns():
        return "ignore"
    if split is not None and name in split.columns():
        return "key"
    return "ignore" if only_named else "feature"


def _hashed(sample: Sample, label: LabelConfig, split: SplitConfig | None) -> tuple[Column, ...]:
    """The raw columns whose hash splits rows that have no key."""
    if split is None or not split.by_row:
        return ()
    return chosen(row_columns(sample, label.columns())[0], label.columns())


def _rejected(file: str, chunk: Chunk, table: pa.Table) -> pa.Table:
    """The quarantine of a chunk: rows that do not fit, and those that could not be cut into columns."""
    at = chunk.positions()[table.column("row").to_numpy()] + bool(file)
    places = pa.array(at.astype(np.int64)), pa.array([file] * table.num_rows, pa.string())
    table = table.set_column(1, "row", places[0]).set_column(0, "file", places[1])
    lines = [
        quarantine.rejected([line.row + bool(file)], line.column, [line.text], line.reason, file)
        for line in chunk.malformed
    ]
    return pa.concat_tables([table, *lines])


def _said(row: Mapping[str, Any]) -> str:
    place = f"row {row['row']:,}" + (f", column {row['column']!r}" if row["column"] else "")
    return f"{place}: {row['value']!r} {row['reason']}"


def _checked(
    rows: int, rejected: pa.Table, statistics: Mapping[str, SplitStatistics], task: str, weight: str | None
) -> list[str]:
    """Hold rejected rows, the size of the splits and their labels against what a pipeline's validation demands; notes."""
    config, notes = ValidateConfig(), list[str]()
    if rejected.num_rows:
        count, first = rejected.num_rows, rejected.slice(0, 3).to_pylist()
        said = f"{count:,} of {rows:,} rows ({count / rows:.2%}) {agree(count, 'does', 'do')} not fit"
        said += ": " + "; ".join(map(_said, first))
        if count > config.max_quarantined * rows:
            fix = "mend them, leave them out, or say what the column holds: columns={'*': 'auto', NAME: {'type': 'string'}}"
            raise DataError(said, where=first[0]["file"] or WHERE, fix=fix)
        notes.append(f"{said}; they were left out")
    if TRAIN not in statistics:
        raise DataError("no row is left to train on", where=WHERE, fix="check the label and the split")
    train = statistics[TRAIN].columns["label"]
    for name, split in statistics.items():
        for anomaly in weights(name, split.columns[weight]) if weight else ():
            raise DataError(anomaly.message, where="columns", fix=anomaly.fix)
        for anomaly in labels(name, split.columns["label"], train, task, config):
            if anomaly.severity == "error":
                raise DataError(anomaly.message, where="label", fix=anomaly.fix)
            notes.append(anomaly.message)
    return notes
