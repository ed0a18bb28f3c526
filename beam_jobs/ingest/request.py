"""The ingest request of one span: plain data that crosses to a worker and into a fingerprint.

request = IngestRequest(span="2013-01", files=files(source, "2013-01"), source=source,
                        read=schema.columns, stored=("carrier", "distance"),
                        label=LabelConfig(expression="arr_delay > 15"), split=SplitConfig())
request.columns()            # those of a record, the label last
request.key()                # what the output depends on
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headway.errors import ConfigError
from headway.records.encode import ROWS_PER_RECORD
from headway.schema.columns import LABEL, UNIT_COLUMN, Column, column_yaml, named_for, no_column
from headway.sources.base import InputFile, Range, Source, whole_files
from headway.sources.config import SourceConfig
from headway.sources.spans import folder_columns, open_source, split_name
from headway.stages.ingested import Ingested
from headway.stages.stage_class import Stage
from headway.tabular.expressions import parse
from headway.tabular.label import LabelConfig
from headway.tabular.splits import SplitConfig, split_code

VERSION = 16
"""The version of ingest. It is raised whenever ingest writes other bytes for the same request."""

NOTES = "splits"
"""The name of the key index file, by which the splits are proven free of leakage."""
UNIT_VERSION = 1
"""The version of the code that numbers units; only the records of a split with a key have units."""


class IngestRequest(Stage[Ingested]):
    """The request to ingest one span: its raw files, and the config."""

    name, version, runs = "ingest", VERSION, "beam_jobs.ingest.stage:ingest"
    runs_many, delivers = "beam_jobs.ingest.stage:ingest_many", True

    span: str
    files: tuple[InputFile, ...]
    source: SourceConfig
    read: tuple[Column, ...]
    """The columns that are read and coerced: the stored ones, and the ones that the label, the filter and the
    split need."""
    stored: tuple[str, ...]
    """The columns of `read` that go into the shards; the label is added to them."""
    label: LabelConfig
    split: SplitConfig
    hashed: tuple[Column, ...] = ()
    """The columns that a split without a key hashes, in the types of the files; empty: all that are read, except the
    label's."""
    by_place: bool = False
    """Whether a split without a key also hashes a row's file and its number in the file."""
    rows_per_record: int = ROWS_PER_RECORD

    @property
    def input_bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def open(self) -> Source:
        """Returns the source of the files; a column that exists only since a later span is null where it is missing."""
        later = [column.name for column in self.read if column.since is not None and self.span < column.since]
        return open_source(self.source, self.files, later, self.read)

    def ranges(self) -> list[Range]:
        """Returns the ranges of the files; whole files if rows are split by their place in the file."""
        ranges = open_source(self.source).ranges(self.files)
        return whole_files(ranges) if self.by_place else ranges

    def columns(self) -> tuple[Column, ...]:
        """Returns the columns of the shards: the stored ones, and the label last."""
        stored = frozenset(self.stored)
        return (*(column for column in self.read if column.name in stored), self.label.stored(self.read))

    @property
    def unit(self) -> bool:
        """Whether records have each row's unit: with a split by key, unless that is the stored group column alone."""
        return bool(self.split.key) and self.split.key != (named_for(self.columns(), "group"),)

    def keys(self) -> frozenset[str]:
        """Returns the names of the columns with the role key or group, and of the columns of the split's key."""
        of_role = frozenset(column.name for column in self.read if column.role in ("key", "group"))
        return of_role.union(self.split.key)

    def record_columns(self) -> tuple[Column, ...]:
        """Returns the columns of the shards' records: `columns`, then the column of each row's unit if `unit`."""
        return (*self.columns(), UNIT_COLUMN) if self.unit else self.columns()

    def row_columns(self) -> tuple[Column, ...]:
        """Returns the columns that a split without a key hashes; an empty tuple with another split."""
        if not self.split.by_row:
            return ()
        label = self.label.columns()
        return self.hashed or tuple(c for c in self.read if c.name not in label) or self.read

    def file_splits(self, files: Sequence[InputFile]) -> list[int]:
        """Returns the index in `SPLITS` of each file's split, with split.mode: path; else an empty list.

        Raises:
            DataError: a path names a split that split.values does not have.
        """
        if self.split.mode != "path":
            return []
        names = [split_name(self.source, file.path) for file in files]
        return [split_code(self.split, name, where=file.path) for name, file in zip(names, files, strict=True)]

    def _folders(self, path: str) -> dict[str, Any]:
        """Returns the values that the names of a file's folders give its rows: its checksum does not cover them."""
        folders = {} if self.source.format == "images" else folder_columns(self.source.path, path)
        return {"folders": folders} if folders else {}

    def filter_columns(self) -> tuple[Column, ...]:
        """Returns the columns of `read` that `source.where` uses."""
        names = parse(self.source.where).columns if self.source.where is not None else frozenset()
        return tuple(column for column in self.read if column.name in names)

    def check(self) -> None:
        """Raise a ConfigError if a column that the config uses is not read, or a stored one has the label's name."""
        names = [column.name for column in self.read]
        looks = {"columns": frozenset(self.stored), "label": self.label.columns()}
        for name in sorted(self.split.columns()):
            looks[self.split.named_by(name)] = looks.get(self.split.named_by(name), frozenset()) | {name}
        if self.source.where is not None:
            looks["source.where"] = parse(self.source.where).columns
        for what, columns in looks.items():
            for name in sorted(columns - set(names)):
                raise no_column(name, names, where=what)
        if LABEL in self.stored:
            raise ConfigError(
                f"a column is called {LABEL!r}, the name that the label is stored under",
                where="columns",
                fix=f"make it the label, rename it in the files, or leave it out: {column_yaml(LABEL, 'ignore')}",
            )

    def key(self) -> dict[str, Any]:
        """Returns the values that the output depends on: checksums, not paths, and the parts of configs that ingest
        reads."""
        hashed = {c.name: f"{c.type}{list(c.shape) or ''}" for c in self.row_columns()}
        splits = self.file_splits(self.files)
        return {
            "stage": "ingest",
            "version": VERSION,
            "span": self.span,
            "files": [{"bytes": f.bytes, "crc32c": f.crc32c, **self._folders(f.path)} for f in self.files],
            "source": self.source.at_ingest(),
            "columns": {c.name: c.model_dump(mode="json", exclude={"name"}) for c in self.read},
            "stored": list(self.stored),
            "label": self.label.model_dump(mode="json"),
            "split": self.split.at_ingest() | self.split.index_settings() | ({"files": splits} if splits else {}),
            "rows_per_record": self.rows_per_record,
            **({"hashed": hashed} if hashed else {}),
            **({"unit": UNIT_VERSION} if self.unit else {}),
            **({"by_place": True} if self.by_place else {}),
        }
