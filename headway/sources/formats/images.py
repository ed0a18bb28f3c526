"""Folders of JPEG and PNG images as columns `image` (the file's bytes), `path` (relative to the folder) and `label`.

An image's label is the name of its folder, or stands in a table of file names and labels. Every image is decoded once at ingest.
An image that cannot be decoded goes to the quarantine.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from headway.errors import ConfigError, DataError
from headway.messages import agree, counted, some
from headway.schema.columns import suggest
from headway.sources.base import Chunk, InputFile, Malformed, Range, check_columns, wrong_format_error
from headway.sources.config import DATE_PARTS, FORMATS, SPAN, SourceConfig
from headway.sources.sample import Sample
from headway.storage import filesystem as storage
from headway.tabular.list_arrays import decoded, is_number

_NAMES = ["image", "path", "label"]
_SHOWN = 3
"""The most names that a message lists."""
_MAGIC = {
    rb"BM": "BMP", rb"GIF8": "GIF", rb"RIFF....WEBP": "WEBP", rb"II\*\0|MM\0\*": "TIFF", rb"....ftyp(heic|mif1)": "HEIC",
    rb"....ftypavif": "AVIF",
}  # fmt: skip
_UNREAD = frozenset({".bmp", ".gif", ".webp", ".tif", ".tiff", ".heic", ".heif", ".avif"})
_CONVERT = "convert them to PNG or JPEG to have them read"
_CHUNK_BYTES, _CHUNK_FILES, _PREFIX_FILES = 16 << 20, 1024, 16
_RANGE_FILES = 16_384


class ImagesSource:
    """Reads folders of images. A range is a run of files. A table of labels, if any, is the span's last file and in no range."""

    def __init__(self, config: SourceConfig):
        self._config, self._images = config, config.images

    def names(self, file: InputFile) -> list[str]:
        return list(_NAMES)

    def ranges(self, files: Sequence[InputFile]) -> list[Range]:
        images, labels, _ = self._labelled(files)
        names = [_inside(self._config, file.path) for file in images]
        ranges: list[Range] = []
        start = size = 0
        for end, file in enumerate(images, 1):
            size += file.bytes
            if size < FORMATS["images"].range_size and end - start < _RANGE_FILES and end < len(images):
                continue
            facts = {
                "paths": [image.path for image in images[start:end]],
                "bytes": [image.bytes for image in images[start:end]],
                "names": names[start:end],
                "labels": labels.slice(start, end - start).to_pylist(),
                "label_type": str(labels.type),
            }
            ranges.append(Range(len(ranges), images[start].path, start, start, end, facts, row_per_file=True))
            start, size = end, 0
        return ranges

    def _labelled(self, files: Sequence[InputFile]) -> tuple[Sequence[InputFile], pa.Array, list[str]]:
        """Returns the images, each image's label (null for none), and notes for the user on names without a match."""
        if self._images.table is None:
            folders = [_inside(self._config, file.path).rpartition("/")[0].rpartition("/")[2] for file in files]
            return files, pa.array([folder or None for folder in folders], pa.string()), []
        images, table = files[:-1], _table(files[-1].path, self._images.file_column, self._images.label_column)
        listed = table.column(0).to_pylist()
        rows = {name: row for row, name in enumerate(listed)}
        if len(rows) != len(listed):
            again = [name for name, times in Counter(listed).items() if times > 1]
            stand = counted(len(again), "file name stands", "file names stand")
            fix = f"write one row per file; name images that share a name by their paths below {_folder(self._config)}"
            raise DataError(f"{stand} in it more than once: {some(again, _SHOWN, repr)}", where=files[-1].path, fix=fix)
        names = [_inside(self._config, file.path) for file in images]
        places = [rows.get(name, rows.get(name.rpartition("/")[2])) for name in names]
        used = {*places} - {None}
        if rows and images and not used:
            raise DataError(
                f"none of its {counted(len(rows), 'file name')} is an image's: it has {some(list(rows), _SHOWN, repr)}, "
                f"and the images are {some(names, _SHOWN, repr)}",
                where=files[-1].path,
                fix=f"write names with their endings, alone or as paths below {_folder(self._config)}; "
                "their column is source.images.file_column",
            )
        # one table may serve several spans, and images may be without a label: neither is an error
        missed = [name for name, row in rows.items() if row not in used]
        unlabelled = [name for name, place in zip(names, places, strict=True) if place is None]
        match = agree(len(missed), "matches", "match")
        have = agree(len(unlabelled), "has", "have")
        notes = [
            f"{files[-1].path}: {len(few):,} of {of}, e.g. {some(few, _SHOWN, repr)}"
            for few, of in (
                (missed, f"{counted(len(rows), 'name')} {match} no image of the first span"),
                (unlabelled, f"{counted(len(images), 'image')} {have} no label"),
            )
            if few
        ]
        return images, table.column(1).combine_chunks().take(pa.array(places, pa.int64())), notes

    def read(self, piece: Range, columns: Sequence[str], types: Mapping[str, pa.DataType]) -> Iterator[Chunk]:
        check_columns(columns, _NAMES, piece.path)
        rows: list[int] = []
        images: list[bytes] = []
        malformed: list[Malformed] = []
        labels, kind = piece.facts["labels"], pa.type_for_alias(piece.facts["label_type"])
        size, first = 0, 0
        total = len(piece.facts["paths"])
        for row in range(total):
            why = None
            data = b""
            if "image" in columns:
                data, why = self._image(piece.facts["paths"][row], piece.facts["bytes"][row])
            if why is None:
                rows.append(row)
                images.append(data)
                size += len(data)
            else:
                malformed.append(Malformed(row, piece.facts["names"][row], why, "image"))
            if size >= _CHUNK_BYTES or row + 1 - first >= _CHUNK_FILES or row + 1 == total:
                at = np.array(rows, np.int64)
                arrays = {
                    "image": pa.array(images, pa.binary()),
                    "path": pa.array([piece.facts["names"][i] for i in rows], pa.string()),
                    "label": pa.array([labels[i] for i in rows], kind),
                }
                batch = pa.RecordBatch.from_arrays([arrays[name] for name in columns], names=list(columns))
                yield Chunk(batch, first, at, tuple(malformed))
                rows, images, malformed, size, first = [], [], [], 0, row + 1

    def _image(self, path: str, size: int) -> tuple[bytes, str | None]:
        """Returns the file's bytes (none if too large), and the reason why it is rejected; None for a readable image."""
        if size > self._config.max_cell_bytes:
            return b"", f"{size} bytes, more than source.max_cell_bytes: {self._config.max_cell_bytes}"
        with storage.open_file(path) as file, storage.reading(path):
            data = bytes(file.read())
        if len(data) != size:
            raise DataError(
                f"has {len(data)} bytes, not the {size} it had when the span was listed",
                where=path,
                fix="run again, once nothing writes it",
            )
        return data, undecodable(data)

    def sample(self, files: Sequence[InputFile], rows: int) -> Sample:
        images, labels, notes = self._labelled(files)
        sampled = images[: min(rows, _PREFIX_FILES)]
        data = []
        for file in sampled:
            with storage.open_file(file.path) as handle, storage.reading(file.path):
                data.append(bytes(handle.read(min(file.bytes, 1 << 16))))
        if not sampled:
            raise DataError("the folder holds no images", where=self._config.path, fix="check source.path")
        if not any(head.startswith(FORMATS["images"].magic) for head in data):
            what = f"is {kind}, neither a JPEG nor a PNG" if (kind := _kind(data[0])) else "is neither a JPEG nor a PNG"
            why = wrong_format_error(sampled[0].path, "images") or DataError(what, where=sampled[0].path, fix=_CONVERT)
            if len(sampled) > 1:
                why = DataError(
                    f"none of the first {len(sampled)} files is a JPEG or PNG; this one {why.problem}", where=why.where
                )
            raise why
        names = [_inside(self._config, file.path) for file in sampled]
        notes += self._passed_over(sampled[0].path)
        arrays = [pa.array(data, pa.binary()), pa.array(names), labels.slice(0, len(sampled))]
        return Sample(pa.Table.from_arrays(arrays, names=_NAMES), tuple(notes))

    def _passed_over(self, path: str) -> list[str]:
        """Returns a note with the number of images of other formats in the source's folder. No note if the path is a glob."""
        parts = self._config.path.rstrip("/").split("/")
        if _depth(self._config) < len(parts) or parts[-1] == PurePosixPath(path).name:
            return []  # a glob says what is taken
        folder = "/".join(path.split("/")[: len(parts)])
        endings = Counter(PurePosixPath(name).suffix.lower() for name in storage.below(folder))
        others = [f"{endings[ending]:,} {ending}" for ending in sorted(endings) if ending in _UNREAD]
        number = counted(sum(endings[ending] for ending in _UNREAD), "image")
        return [f"{folder}: {number} of other formats passed over: {', '.join(others)}; {_CONVERT}"] if others else []


def _kind(data: bytes) -> str | None:
    """Returns the name of the unsupported image format that a file's first bytes show; None if they show none."""
    return next((name for magic, name in _MAGIC.items() if re.match(magic, data, re.DOTALL)), None)


def _folder(config: SourceConfig) -> str:
    """Returns the folder that the names of images are relative to."""
    return "/".join(config.path.rstrip("/").split("/")[: _depth(config)])


def undecodable(data: bytes) -> str | None:
    """Returns the reason why bytes are not a readable JPEG or PNG; None when they are."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as image:
            image.load()
    except Image.UnidentifiedImageError:
        return f"is {kind}, neither a JPEG nor a PNG" if (kind := _kind(data)) else "neither a JPEG nor a PNG"
    except Exception as error:  # whatever Pillow's decoders throw at broken input
        return f"cannot be decoded: {error}".splitlines()[0]
    return None


def table_path(config: SourceConfig, span: str) -> str:
    """Returns the path of a span's table of labels."""
    table = (config.images.table or "").replace(SPAN, span)
    if storage.is_remote(table) or table.startswith("/"):
        return table
    folder = config.path.replace(SPAN, span)
    if config.has_spans and SPAN not in config.path:
        for part, value in zip(DATE_PARTS, re.split("[-T]", span), strict=False):
            folder = folder.replace(part, value)
    return "/".join([*folder.split("/")[: _depth(config)], table])


def _depth(config: SourceConfig) -> int:
    """Returns how many parts of the source's path stand before the first glob. They are the folder that names are relative to."""
    parts = config.path.rstrip("/").split("/")
    for i, part in enumerate(parts):
        if storage.has_magic(part):
            return i
    return len(parts)


def _inside(config: SourceConfig, path: str) -> str:
    parts = path.split("/")
    return "/".join(parts[min(_depth(config), len(parts) - 1) :])


def _table(path: str, file_column: str, label_column: str) -> pa.Table:
    """Returns the table of labels, with two columns: `file`, the file names, and `label`."""
    if storage.kind(path) != "file":
        raise ConfigError("there is no such file", where=path, fix="check source.images.table, the table of labels")
    try:
        with storage.open_file(path) as file:
            whole = (
                pq.read_table(file, page_checksum_verification=True)
                if path.endswith(".parquet")
                else pacsv.read_csv(file)
            )
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        fix = "source.images.table: name a CSV or Parquet file"
        raise DataError(
            f"the table of labels cannot be read: {str(error).splitlines()[0]}", where=path, fix=fix
        ) from None
    for name in (file_column, label_column):
        if name not in whole.column_names:
            fix = f"name it in source.images.file_column or label_column; {suggest(name, whole.column_names)}"
            raise ConfigError(f"the table of labels has no column {name!r}", where=path, fix=fix)
    labels = decoded(whole.column(label_column))
    if not (is_number(labels.type) or pa.types.is_boolean(labels.type)):
        labels = labels.cast(pa.string())  # whatever it is, ranges carry it as plain values
    return pa.table({"file": whole.column(file_column).cast(pa.string()), "label": labels})
