"""Recognizes files: their format, how they are written, and whether their names tell spans apart.

found_source("data")["path"]              # data/flights_{span}.csv
found_source("wine.csv")                  # {"format": "csv", "path": "wine.csv", "csv": {"delimiter": ";"}}
"""

import contextlib
import glob
import re
import zlib
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from headway.errors import ConfigError, DataError
from headway.first_pipeline.csv_form import csv_form
from headway.messages import some
from headway.sources.base import format_of
from headway.sources.config import CONVERT, FORMATS, Format, SourceConfig, by_ending
from headway.sources.spans import ONE_SPAN, open_source
from headway.sources.spans import files as files_of
from headway.sources.text_files import BOM, TextFile
from headway.storage import filesystem as storage

_HEAD_BYTES = 1 << 16
_LINES = 500
_MOST_LOOKED_AT = 20
_PACKED = re.compile(r"(?i)\.(gz|bz2|zst|zip)$")
_DATE = re.compile(
    r"(?<!\d)(?:19|20)\d\d([-_]?)(?:0[1-9]|1[0-2])(?:\1(?:0[1-9]|[12]\d|3[01])(?:T(?:[01]\d|2[0-3]))?)?(?!\d)"
)
_FOLDERS = re.compile(r"(?<=/)(?:19|20)\d\d/(?:0?[1-9]|1[0-2])(/(?:0?[1-9]|[12]\d|3[01]))?(?=/)")
SPLIT_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("eval", "evaluation", "valid", "validation", "val", "dev"), "eval"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""The names of folders of a ready-made split, with the split that each stands for."""
_READY = re.compile(rf"(?i)(?<=/)({'|'.join(SPLIT_WORDS)})(?=/)")


def found_source(data: str) -> dict[str, Any]:
    """Returns the section `source:` of pipeline.yaml for `data`: a file, a folder, a glob or a path with {span}. Keys with their
    default value are left out. A glob, or a path with {span}, stays as in `data`. Of a folder, the path may name the files.

    Raises:
        ConfigError: there is no such file, none of a format that Headway reads, or a folder has files of several formats.
        DataError: a file cannot be read, is empty, or has other columns than the first.
    """
    if "{" in data and storage.kind(data) is None:
        return _of_files(data, storage.matches(re.sub(r"\{[a-z]+\}", "*", data)))
    kind = storage.kind(data)
    if kind is None and storage.has_magic(data):
        return _of_files(data, storage.matches(data))
    if kind is None:
        raise ConfigError("there is no such file or folder", where=data, fix="check the path")
    if kind == "file":
        return _described(_literal(data), data)
    return _of_folder(data.rstrip("/"))


def _of_files(data: str, paths: list[str]) -> dict[str, Any]:
    files = [file for path in paths for file in (storage.below(path) if storage.kind(path) == "folder" else [path])]
    if not files:
        raise ConfigError(
            "no file matches", where=data, fix="check the path; quote it, so that the shell leaves it as it is"
        )
    source = _described(data, files[0])
    files = [path for path in files if not _is_hidden(PurePosixPath(path).name)]
    if "{" not in data:
        _check_columns(source, files)
    _check_headers(source, files)
    return source


def _literal(path: str) -> str:
    if "{" in path or "}" in path or "${" in path:
        raise ConfigError(
            "the name holds braces, which stand for spans in pipeline.yaml", where=path, fix="rename the file"
        )
    return path if storage.is_remote(path) else glob.escape(path)


def _of_folder(folder: str) -> dict[str, Any]:
    inside = [path for path in storage.below(folder) if not _is_hidden(path[len(folder) :])]
    by_format: dict[Format, list[str]] = {}
    for path in inside:
        if (format := by_ending(path)) is not None:
            by_format.setdefault(format, []).append(path)
    if not by_format:
        what = f"it holds {some([PurePosixPath(path).name for path in inside], 3)}" if inside else "it is empty"
        raise ConfigError(
            f"the folder holds no file of a known format; {what}", where=folder, fix="name the file, or a glob of files"
        )
    if 2 * len(by_format.get("images", [])) > len(inside):
        if (ready := _ready_splits(folder, by_format["images"])) is not None:
            return {"format": "images", "path": ready}
        if len({path.rpartition("/")[0] for path in by_format["images"]}) < 2:
            raise ConfigError(
                "its images lie in one folder, which says no class of them",
                where=folder,
                fix="make a folder for each class, or write pipeline.yaml with source.images.table: a table with the file and "
                "the label of each image",
            )
        return {"format": "images", "path": _literal(folder)}
    format, files = max(by_format.items(), key=lambda item: len(item[1]))
    if len(by_format) > 1 and sum(len(paths) == len(files) for paths in by_format.values()) > 1:
        raise ConfigError(
            f"the folder holds files of several formats: {some([PurePosixPath(path).name for path in inside], 4)}",
            where=folder,
            fix="name one of the files, or a glob",
        )
    if len(files) == 1:
        return _described(_literal(files[0]), files[0])
    ready = _ready_splits(folder, files)
    spans_path = None if ready else spans_of(folder, files)
    source = _described(ready or spans_path or _together(folder, files), files[0])
    if spans_path is None:
        _check_columns(source, files)
    _check_headers(source, files)
    return source


def _check_columns(source: Mapping[str, Any], files: list[str]) -> None:
    """Raises a DataError if the files of a table have different columns. Of many files, only some are checked."""
    if "names" in source.get("csv", {}):
        return
    first = _columns(source["format"], files[0])
    for path in files[1 :: 1 + len(files) // _MOST_LOOKED_AT]:
        if {*(names := _columns(source["format"], path))} != {*first}:
            raise DataError(
                f"its columns are {some(names, 4)}, and those of {PurePosixPath(files[0]).name} are {some(first, 4)}",
                where=path,
                fix="name one of the files, or a quoted glob of those that belong together",
            )


def _check_headers(source: Mapping[str, Any], files: list[str]) -> None:
    """Raises a DataError if columns are known by position only, and files differ in the line above the first row."""
    form = source.get("csv", {})
    if "names" not in form or not form.get("skip_lines"):
        return
    first, *others = (TextFile(path).line(form["skip_lines"] - 1)[1].strip() for path in files)
    for path, line in zip(files[1:], others, strict=True):
        if line != first:
            line_above = f"line {form['skip_lines']}, the last one above its rows,"
            raise DataError(
                f"{line_above} is not that of {PurePosixPath(files[0]).name}, and columns are known by their places only",
                where=path,
                fix="give each column one name of its own, in the first line of each file",
            )


def _ready_splits(folder: str, files: list[str]) -> str | None:
    """Returns a path with {split} if each file is in a folder named train, valid, test or the like; None if not."""
    found = [[*_READY.finditer(path[len(folder) :])] for path in files]
    if any(len(matches) != 1 for matches in found):
        return None
    before = {path[len(folder) :][: matches[0].start()] for path, matches in zip(files, found, strict=True)}
    splits = {SPLIT_WORDS[matches[0][0].lower()] for matches in found}
    return f"{_literal(folder)}{before.pop()}{{split}}" if len(before) == 1 and {"train"} < splits else None


def _columns(format: Format, path: str) -> list[str]:
    """Returns the names of a file's columns; an empty list for a format whose files do not name all columns."""
    if not FORMATS[format].named:
        return []
    config = SourceConfig.model_validate(_described(_literal(path), path))
    return open_source(config).names(files_of(config, ONE_SPAN)[0])


def _together(folder: str, files: list[str]) -> str:
    """Returns a glob, which no folder made there later matches; the folder itself if files lie deeper or differ in suffix."""
    suffixes = [PurePosixPath(path).suffixes for path in files]
    endings = {"".join(of[-2:] if of and _PACKED.search(of[-1]) else of[-1:]) for of in suffixes}
    beside = all("/" not in path[len(folder) + 1 :] for path in files)
    return f"{_literal(folder)}/*{endings.pop()}" if beside and len(endings) == 1 else _literal(folder)


def spans_of(folder: str, files: list[str]) -> str | None:
    """Returns the path of files that differ in one date, or lie in folders that do, with a placeholder for it; else None."""
    inside = [path[len(folder) :] for path in files]
    for pattern in (_DATE, _FOLDERS):
        found = [[*pattern.finditer(name)] for name in inside]
        if any(len(matches) != 1 for matches in found):
            continue
        dates = [matches[0] for matches in found]
        before, after = ({name[: m.start()] for name, m in zip(inside, dates, strict=True)},
                         {name[m.end() :] for name, m in zip(inside, dates, strict=True)})  # fmt: skip
        if len(before) > 1 or len({m[0] for m in dates}) < 2:
            continue
        place = "{span}"
        if pattern is _FOLDERS:
            place = "{year}/{month}/{day}" if dates[0][1] else "{year}/{month}"
        start = _literal(folder + before.pop())
        if len(after) == 1:
            return start + place + _literal(after.pop())
        if all(name.startswith("/") for name in after):
            return start + place  # a folder, read with all below it
    return None


def _described(path: str, file: str) -> dict[str, Any]:
    """Returns the section `source:` for the files at `path`. Format and CSV settings are those of `file`, one of the files."""
    format = by_ending(file) or _by_content(file)
    if format == "images":
        raise ConfigError("is one image, and a model needs many", where=file, fix="name the folder of the images")
    source: dict[str, Any] = {"format": format, "path": path}
    if format == "csv":
        data = _head(file)
        western = not _is_utf8(data)
        encoding = "cp1252" if western else "utf-8"
        if western and (b"\0" in data or len(data.decode(encoding, "ignore")) < len(data)):
            raise ConfigError(
                "the file is neither text nor of a format that is read", where=file, fix="write it as CSV or Parquet"
            )
        form = csv_form(data.decode(encoding, "replace"))
        if form.get("delimiter", " ") == " " and _is_aligned(data):
            raise ConfigError(
                "its columns are aligned with blanks, which are not read",
                where=file,
                fix="write them with a separator, as pandas.read_fwf(FILE).to_csv(NEW, index=False) does",
            )
        if form := form | ({"encoding": "cp1252"} if western else {}):
            source["csv"] = form
    return source


def _is_aligned(data: bytes) -> bool:
    """Returns whether nearly all lines separate their values by runs of several blanks, and by nothing else."""
    lines = [line.strip() for line in data.split(b"\n")[:_LINES] if line.strip()]
    aligned = sum(b"  " in line and not re.search(rb"[,;\t|]", line) for line in lines)
    return 10 * aligned > 9 * len(lines)


def _is_utf8(data: bytes) -> bool:
    """Returns whether the beginning of a file is UTF-8. A few wrong letters may occur, and one cut off at the end."""
    own = data.replace("\ufffd".encode(), "é".encode())  # which a file may hold, and is a letter like others
    text = own.decode("utf-8", "replace").rstrip("\ufffd")
    wrong = text.count("\ufffd")
    return not wrong or sum(letter > "\x7f" for letter in text) >= 2 * wrong


def _by_content(path: str) -> Format:
    """Returns the format that a file's first bytes show, for a file with an unknown ending; CSV if they show none."""
    with storage.open_file(path) as file, storage.reading(path):
        head = file.read(_HEAD_BYTES)
    if not head:
        raise DataError("the file is empty", where=path, fix="write it again")
    ending = PurePosixPath(_PACKED.sub("", path)).suffix.lstrip(".").lower()
    with contextlib.suppress(zlib.error):  # TFRecords are compressed too, and no text
        head = zlib.decompressobj(wbits=31).decompress(head) if head.startswith(b"\x1f\x8b") else head
    found = format_of(head)
    if found is None and ending not in ("tsv", "json") and ending in CONVERT:
        raise ConfigError(f".{ending} files are not read", where=path, fix=CONVERT[ending])
    return found or format_of(_head(path)) or "csv"  # its reader says what is wrong with a file that holds no text


def _head(path: str) -> bytes:
    """Returns the first whole lines of a text file, decompressed and as UTF-8 if need be, without a byte order mark."""
    data = b""
    for _, piece in TextFile(path).blocks(0, None, _HEAD_BYTES, len):  # of a stream a piece may be less
        data += piece
        if len(data) >= _HEAD_BYTES:
            break
    data = data.removeprefix(BOM)
    cut = data.rfind(b"\n") + 1
    return data[:cut] if len(data) >= _HEAD_BYTES - len(BOM) and cut else data


def _is_hidden(inside: str) -> bool:
    return any(part.startswith((".", "_")) for part in inside.split("/"))
