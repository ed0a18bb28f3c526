"""The request to ingest one span: plain data that is sent to workers and goes into the fingerprint.

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
"""The name of the file with the key index, from which the splits are later proven free of leakage."""
UNIT_VERSION = 1
"""The version of the code that numbers units. A unit is the rows that a split by key keeps together."""


class IngestRequest(Stage[Ingested]):
    """The request to ingest one span: its raw files, and the config."""

    name, version, runs = "ingest", VERSION, "beam_jobs.ingest.stage:ingest"
    runs_many, delivers = "beam_jobs.ingest.stage:ingest_many", True

    span: str
    files: tuple[InputFile, ...]
    source: SourceConfig
    read: tuple[Column, ...]
    """The columns to read and to convert to their types: the stored columns, and the columns that label, filter and split
    need."""
    stored: tuple[str, ...]
    """The names of the columns in `read` that go into the shards. The shards also get the label."""
    label: LabelConfig
    split: SplitConfig
    hashed: tuple[Column, ...] = ()
    """The columns by whose hash a split without a key divides the rows, in the types of the files. Empty: all columns in `read`
    that the label is not computed from."""
    by_place: bool = False
    """Whether a split without a key also hashes the number of a row's file and the row's number in that file."""
    rows_per_record: int = ROWS_PER_RECORD

    @property
    def input_bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def open(self) -> Source:
        """Returns the source that reads the files. A column that only later spans have is read as null where a file lacks it."""
        later = [column.name for column in self.read if column.since is not None and self.span < column.since]
        return open_source(self.source, self.files, later, self.read)

    def ranges(self) -> list[Range]:
        """Returns the ranges of the files that workers ingest. With `by_place` a range is a whole file."""
        ranges = open_source(self.source).ranges(self.files)
        return whole_files(ranges) if self.by_place else ranges

    def columns(self) -> tuple[Column, ...]:
        """Returns the columns that the shards hold: the stored columns, then the label."""
        stored = frozenset(self.stored)
        return (*(column for column in self.read if column.name in stored), self.label.stored(self.read))

    @property
    def unit(self) -> bool:
        """Whether records store which rows a split by key keeps together. Not if the key is the stored group column alone."""
        return bool(self.split.key) and self.split.key != (named_for(self.columns(), "group"),)

    def keys(self) -> frozenset[str]:
        """Returns the names of the columns with the role key or group, and of the columns of the split's key."""
        of_role = frozenset(column.name for column in self.read if column.role in ("key", "group"))
        return of_role.union(self.split.key)

    def record_columns(self) -> tuple[Column, ...]:
        """Returns the columns that records hold: `columns()`, then the column with each row's unit if `unit` is true."""
        return (*self.columns(), UNIT_COLUMN) if self.unit else self.columns()

    def row_columns(self) -> tuple[Column, ...]:
        """Returns the columns that a split without a key hashes; an empty tuple with another split."""
        if not self.split.by_row:
            return ()
        label = self.label.columns()
        return self.hashed or tuple(c for c in self.read if c.name not in label) or self.read

    def file_splits(self, files: Sequence[InputFile]) -> list[int]:
        """Returns for each file the index in `SPLITS` of its split, if paths name the splits (split.mode: path). Else returns [].

        Raises:
            DataError: a path names a split that split.values does not have.
        """
        if self.split.mode != "path":
            return []
        names = [split_name(self.source, file.path) for file in files]
        return [split_code(self.split, name, where=file.path) for name, file in zip(names, files, strict=True)]

    def _folders(self, path: str) -> dict[str, Any]:
        """Returns the values that a file's folder names give its rows. The file's checksum does not cover them."""
        folders = {} if self.source.format == "images" else folder_columns(self.source.path, path)
        return {"folders": folders} if folders else {}

    def filter_columns(self) -> tuple[Column, ...]:
        """Returns the columns of `read` that `source.where` uses."""
        names = parse(self.source.where).columns if self.source.where is not None else frozenset()
        return tuple(column for column in self.read if column.name in names)

    def check(self) -> None:
        """Raise a ConfigError if the config uses a column that is not read, or if a stored column has the label's name."""
        names = [column.name for column in self.read]
        looks = {"columns": frozenset(self.stored), "label": self.label.columns()}
        for name in sorted(self.split.columns()):
            looks[self.split.setting_of(name)] = looks.get(self.split.setting_of(name), frozenset()) | {name}
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
        """Returns the values that the output depends on: the checksums of the files, the settings that ingest uses, and of
        the files' paths only the values and the splits that folders name."""
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
