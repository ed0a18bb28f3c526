"""The section `source:` of pipeline.yaml: the format, the path and the options of each format.

config = load(SourceConfig, {"format": "csv", "path": "/data/{span}.csv"}, where="pipeline.yaml: source")
config.at_ingest()                           # the part that changes what ingest writes
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal, get_args

from pydantic import Field, field_validator, model_validator

from headway.config import Frozen, refuse_idle
from headway.schema.columns import suggest
from headway.tabular.expressions import ExpressionText

SPAN = "{span}"
SPLIT = "{split}"
DATE_PARTS = ("{year}", "{month}", "{day}", "{hour}")
MAX_CELL_BYTES = 16 << 20

Format = Literal["parquet", "csv", "jsonl", "examples", "images", "arrow"]
_PANDAS = "convert it to parquet, for example pandas.read_{}(file).to_parquet(new_file)"
CONVERT = {
    **dict.fromkeys(("xlsx", "xls", "xlsm", "ods", "excel"), _PANDAS.format("excel")),
    **{name: _PANDAS.format(name) for name in ("orc", "stata", "sas", "spss", "pickle", "hdf", "xml")},
    **dict.fromkeys(("h5", "hdf5"), _PANDAS.format("hdf")),
    **dict.fromkeys(("sql", "sqlite", "db", "duckdb"), "export the table or query to parquet or csv"),
    "pkl": _PANDAS.format("pickle"),
    "avro": "convert it to parquet",
    "tsv": 'write format: csv and csv: {delimiter: "\\t"}',
    "json": "write format: jsonl, which reads one object per line",
    "tfrecord": "write format: examples for TFRecord files of tf.train.Example",
    "feather": "write format: arrow",
}
"""The advice for a format that Headway knows by another name, or does not read."""
Gaps = Literal["error", "allow"]


@dataclass(frozen=True)
class FileFormat:
    """What a file format is called, how its files are recognized, and which class reads them."""

    noun: str
    """The name of a file of this format in messages."""
    reader: str
    """The format's Source in `headway.sources.formats`, as module.Class."""
    pattern: str
    """A pattern for the endings of the files that are read in a folder; a file that the path names may have any."""
    endings: str
    """The endings that are read, as messages list them."""
    magic: tuple[bytes, ...] = ()
    """The bytes that the format's files begin with."""
    text: bool = False
    typed: bool = True
    """Whether the files tell a number from text. The values of other formats are text until their columns' types are inferred."""
    named: bool = False
    """Whether the files name all their columns. In files of other formats, a column that is missing is null."""
    options: Literal["csv", "images"] | None = None
    """The field of `SourceConfig` that holds the format's options; None: it has none."""
    range_size: int = 16 << 20
    """The size of a range in bytes, or in rows for Parquet and Arrow. It decides how many workers can read at a time
    and how many shards there are; a worker holds only a part of its range. Each range costs some milliseconds."""


FORMATS: dict[Format, FileFormat] = {
    "parquet": FileFormat(
        "a Parquet file",
        "parquet.ParquetSource",
        r"\.parquet$",
        ".parquet",
        (b"PAR1",),
        named=True,
        range_size=524_288,
    ),
    "csv": FileFormat(
        "a CSV file",
        "csv.CsvSource",
        r"(?i)\.csv(\.(gz|bz2|zst|zip))?$",
        ".csv; also .gz, .bz2, .zst, .zip",
        text=True,
        typed=False,
        named=True,
        options="csv",
    ),
    "jsonl": FileFormat(
        "JSON lines",
        "jsonl.JsonlSource",
        r"(?i)\.(jsonl|ndjson|json)(\.(gz|bz2|zst|zip))?$",
        ".jsonl, .ndjson, .json; also .gz, .bz2, .zst, .zip",
        text=True,
    ),
    "examples": FileFormat(
        "a TFRecord file",
        "tfexample.ExamplesSource",
        r"\.tfrecords?(-\d+-of-\d+)?(\.gz)?$",
        ".tfrecord, .tfrecords, also .gz",
        range_size=32 << 20,
    ),
    "images": FileFormat(
        "an image",
        "images.ImagesSource",
        r"(?i)\.(jpe?g|png)$",
        ".jpg, .jpeg, .png",
        (b"\x89PNG\r\n", b"\xff\xd8\xff"),
        options="images",
        range_size=64 << 20,
    ),
    "arrow": FileFormat(
        "an Arrow file",
        "arrow.ArrowSource",
        r"\.(arrow|arrows|feather|ipc)$",
        ".arrow, .arrows, .feather, .ipc",
        (b"ARROW1", b"\xff\xff\xff\xff"),
        named=True,
        range_size=262_144,
    ),
}


def by_ending(path: str) -> Format | None:
    """Returns the format of a file by the ending of its name; None if the ending is of no known format."""
    return next((name for name, format in FORMATS.items() if re.search(format.pattern, PurePosixPath(path).name)), None)


def is_wide(encoding: str) -> bool:
    """Returns whether an encoding takes two bytes for every letter, so that lines cannot be found in the bytes."""
    return encoding.startswith("utf-16")


class CsvConfig(Frozen):
    """The form of CSV files: encoding, delimiter, quotes, header and words for a missing value."""

    delimiter: str = Field(default=",", min_length=1, max_length=1, description="the character between two cells")
    quote: str = Field(
        default='"',
        max_length=1,
        description="the character around a cell that holds a delimiter or a line break; empty: there is none",
    )
    escape: str = Field(
        default="",
        max_length=1,
        description="the character before a quote, a delimiter or a line break that is part of a cell, such as a backslash; "
        "empty: a quote within quotes is doubled",
    )
    header: bool = Field(
        default=True, description="whether the first line holds the column names; false: names says them"
    )
    names: tuple[str, ...] = Field(default=(), description="column names of files without a header")
    skip_lines: int = Field(
        default=0, ge=0, description="lines above the header, or above the first row, such as a title"
    )
    null_values: tuple[str, ...] = Field(default=("", "NA"), description="texts that mean a missing value")
    encoding: str = Field(
        default="utf-8",
        description="the encoding of the files, such as latin-1, cp1252 or shift_jis; without it, a value that is not "
        "UTF-8 is read as cp1252",
    )

    @field_validator("encoding")
    @classmethod
    def _knows(cls, value: str) -> str:
        try:
            survives = '\n,"'.encode(value) == b'\n,"'
            name = codecs.lookup(value).name
        except LookupError:
            raise ValueError(f"{value!r} is not an encoding that Python knows; latin-1, cp1252 and utf-8 are") from None
        if not survives and not is_wide(name):
            raise ValueError(
                f"{value!r} does not write line ends as ASCII does; convert the files: iconv -f {value} -t utf-8"
            )
        return name

    @field_validator("delimiter", "quote", "escape")
    @classmethod
    def _one_byte(cls, value: str) -> str:
        if not value.isascii() or (value and value in "\r\n\0"):
            raise ValueError("must be one ASCII character, not a line end")
        return value

    @model_validator(mode="after")
    def _named(self) -> CsvConfig:
        if not self.header and not self.names:
            raise ValueError("files without a header need csv.names")
        if self.escape and self.escape == self.quote:
            raise ValueError("a quote within quotes is doubled where csv.escape is left out: leave it out")
        if self.delimiter in (self.quote, self.escape):
            raise ValueError(
                f"delimiter and {'quote' if self.delimiter == self.quote else 'escape'} are the same character"
            )
        if self.header and self.names:
            raise ValueError(
                "csv.names is for files without a header: say header: false if the first line is a row; leave names out if it "
                "holds the names (source.rename renames columns)"
            )
        if len(set(self.names)) != len(self.names):
            raise ValueError("csv.names holds a name twice")
        return self


class ImagesConfig(Frozen):
    """Where the labels of a folder of images are: in the names of the folders, or in a table."""

    table: str | None = Field(
        default=None,
        description="a CSV or Parquet file of file names and labels; a relative path starts at the images' folder, "
        "and {span} stands for the span. Without one, a label is the name of the folder that an image lies in",
    )
    file_column: str = Field(default="file", min_length=1, description="the table's column of file names")
    label_column: str = Field(default="label", min_length=1, description="the table's column of labels")

    @model_validator(mode="after")
    def _columns_of_a_table(self) -> ImagesConfig:
        if self.table is None:
            refuse_idle(self, ("file_column", "label_column"), "with a table")
        return self


class SourceConfig(Frozen):
    """The config of the raw files: their format, their path, and how to read them."""

    format: Format = Field(description="what the files are")
    path: str = Field(
        description="a file, a folder or a glob, on a disk or in a bucket (s3://, gs://); {span} stands for the span's "
        "name, {year}, {month}, {day} and {hour} for the parts of a date, {split} for train, eval or test (split.mode: path)"
    )
    rename: dict[str, str] = Field(
        default_factory=dict, description="{name in the files: name in the pipeline}, such as {price/kg: price_per_kg}"
    )
    where: ExpressionText | None = Field(default=None, description="keep the rows for which this expression is true")
    gaps: Gaps = Field(default="error", description="whether it is an error if a window of dates lacks a span")
    max_cell_bytes: int = Field(
        default=MAX_CELL_BYTES, ge=1, lt=1 << 31, description="a row with a larger value goes to the quarantine"
    )
    csv: CsvConfig = Field(default=CsvConfig(), description="how a CSV file is written")
    images: ImagesConfig = Field(default=ImagesConfig(), description="how a folder of images is labelled")

    @field_validator("format", mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        """Refuses the name of a popular format that Headway does not read; the error names the workaround."""
        way = CONVERT.get(str(value).lower().lstrip("."))
        if way is not None:
            raise ValueError(f"{value!r} is not read: {way}; formats are {', '.join(map(repr, get_args(Format)))}")
        return value

    @field_validator("rename")
    @classmethod
    def _names(cls, value: dict[str, str]) -> dict[str, str]:
        for raw, new in value.items():
            if not new or "/" in new:
                raise ValueError(f"calls {raw!r} {new!r}: a name may not be empty or hold '/'")
        if len(set(value.values())) != len(value):
            raise ValueError("gives two columns one name")
        return value

    @field_validator("path")
    @classmethod
    def _one_span(cls, value: str) -> str:
        for part in re.findall(r"\{[^{}]*\}", value):
            if part not in (SPAN, *DATE_PARTS, SPLIT):
                hint = suggest(part.lower(), [SPAN, *DATE_PARTS, SPLIT], 0.75)
                raise ValueError(f"has the placeholder {part}, which is not known; {hint}")
        for part in (SPAN, SPLIT):
            if value.count(part) > 1:
                raise ValueError(f"has {part} more than once")
        dated = [part for part in DATE_PARTS if part in value]
        if dated and SPAN in value:
            raise ValueError(f"has both {SPAN} and {dated[0]}")
        if tuple(dated) != DATE_PARTS[: len(dated)]:
            lacking = next(part for part in DATE_PARTS if part not in dated)
            raise ValueError(f"has {dated[-1]} without {lacking}")
        return value

    @property
    def has_spans(self) -> bool:
        """Whether the path has placeholders for spans: {span}, or {year} and perhaps further parts of a date."""
        return SPAN in self.path or DATE_PARTS[0] in self.path

    @property
    def has_splits(self) -> bool:
        """Whether the path has the placeholder {split}, so that a file's path tells its split."""
        return SPLIT in self.path

    @model_validator(mode="after")
    def _one_table(self) -> SourceConfig:
        for name, format in FORMATS.items():
            if format.options not in (None, FORMATS[self.format].options):
                refuse_idle(self, (format.options,), f"with format: {name}")
        if DATE_PARTS[0] not in self.path and SPAN not in self.path:
            refuse_idle(self, ("gaps",), "with {span} or {year} in path")
        if self.has_splits and self.images.table is not None:
            raise ValueError(
                "images.table is one for all images, and {split} in path tells files apart: leave out one of them"
            )
        return self

    @property
    def options(self) -> CsvConfig | ImagesConfig | None:
        """The options of the format (for `csv` and `images`); None if the format has no options."""
        name = FORMATS[self.format].options
        return None if name is None else getattr(self, name)

    def at_ingest(self) -> dict[str, Any]:
        """Returns the part of the config that changes what ingest writes. The location of the files is not a part of it."""
        own = FORMATS[self.format].options
        bound = {} if self.max_cell_bytes == MAX_CELL_BYTES else {"max_cell_bytes": self.max_cell_bytes}
        return {
            "format": self.format,
            "where": self.where,
            **({own: getattr(self, own).model_dump(mode="json")} if own is not None else {}),
            **bound,
            **({"rename": self.rename} if self.rename else {}),
        }
