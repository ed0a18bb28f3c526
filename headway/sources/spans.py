"""Which spans there are and which files each has, by the path's pattern.

    spans(config)                                # ["2013-01", "2013-02"]
    found = files(config, "2013-01")             # path, bytes, crc32c of each file of the span

In a path, {span} stands for any name; {year}, {month}, {day} and {hour} for the parts of a date, and the span is then
called by that date: "2013-01-05", "2013-01-05T06". A date's parts may stand in the path more than once.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

import google_crc32c
import numpy as np

from headway import files as storage
from headway.errors import ConfigError, DataError
from headway.sources.config import DATE_PARTS, SPAN, Format, SourceConfig
from headway.sources.interface import InputFile
from headway.sources.quotes import Quotes
from headway.sources.window import parse_date

ONE_SPAN = "all"
"""The span of a source whose path tells none apart."""
_FAR_BYTES, _NEAR_BYTES = 4 << 20, 512 << 10
"""Read at a time for a checksum: a request to a bucket, or what stays in the processor's cache."""
_PLACE = re.compile(r"\{(span|year|month|day|hour)\}")
_DIGITS = {"year": r"\d{4}", "month": r"\d{1,2}", "day": r"\d{1,2}", "hour": r"\d{1,2}"}
_SEPARATORS = ("", "-", "-", "T")
_MAGIC = re.compile(r"(\*|\?|\[!?\]?[^\]/]*\])")
ENDINGS: dict[Format, str] = {
    "csv": r"\.csv(\.gz)?$",
    "parquet": r"\.parquet$",
    "jsonl": r"\.(jsonl|ndjson|json)(\.gz)?$",
    "examples": r"\.tfrecords?(-\d+-of-\d+)?(\.gz)?$",
    "images": r"(?i)\.(jpe?g|png)$",
    "arrow": r"\.(arrow|arrows|feather|ipc)$",
}
"""What a folder's files must end in to be taken; a file that is named outright may end in anything."""
SAID_ENDINGS: dict[Format, str] = {
    "csv": ".csv, .csv.gz",
    "parquet": ".parquet",
    "jsonl": ".jsonl, .ndjson, .json, also .gz",
    "examples": ".tfrecord, .tfrecords, also .gz",
    "images": ".jpg, .jpeg, .png",
    "arrow": ".arrow, .arrows, .feather, .ipc",
}


def spans(config: SourceConfig) -> list[str]:
    """The spans among the files there are, sorted; one span "all" when the path tells none apart.

    Raises:
        ConfigError: no file matches.
    """
    if not config.has_spans:
        _matches(config, ONE_SPAN)
        return [ONE_SPAN]
    pattern = re.compile(_regex(config.path) + r"(?:/.*)?$")
    found = set()
    for path in storage.matches(_PLACE.sub("*", config.path)):
        if (match := pattern.match(path)) and (name := _name(match)):
            found.add(name)
    if not found:
        raise ConfigError(
            f"no file matches {config.path}",
            where="source.path",
            fix=f"check the path; {SPAN} stands for any name" if SPAN in config.path else "check the path",
        )
    return sorted(found)


def _name(match: re.Match[str]) -> str | None:
    """The span's name; None when the digits are no date."""
    parts = match.groupdict()
    if SPAN[1:-1] in parts:
        return parts["span"]
    name = ""
    for part, separator in zip(DATE_PARTS, _SEPARATORS, strict=True):
        if part[1:-1] in parts:
            name += separator + parts[part[1:-1]].zfill(2)
    return name if parse_date(name) else None


def _regex(text: str) -> str:
    """A path's pattern as a regular expression with a group for each placeholder."""
    parts, seen = [], set[str]()
    for i, part in enumerate(_PLACE.split(text)):
        if not i % 2:
            parts.append(_regex_of_glob(part))
        elif part in seen:
            parts.append(f"0*(?P={part})" if part != "year" else "(?P=year)")
        else:
            # {span} stands for one path part's worth of characters; the file's ending is not part of it
            seen.add(part)
            parts.append(f"(?P<{part}>{_DIGITS.get(part, '[^/]+?')})")
    return "".join(parts)


def _regex_of_glob(text: str) -> str:
    parts = []
    for i, part in enumerate(_MAGIC.split(text)):
        if not i % 2:
            parts.append(re.escape(part))
        elif part == "*":
            parts.append("[^/]*")
        elif part == "?":
            parts.append("[^/]")
        else:
            inside = part[1:-1]
            negated = inside.startswith("!")
            inside = re.sub(r"([\\\[\]^&~|])", r"\\\1", inside[negated:])
            parts.append(f"[^/{inside}]" if negated else f"[{inside}]")
    return "".join(parts)


def _patterns(config: SourceConfig, span: str) -> Iterator[str]:
    """The globs of a span's files. A month may be written 1 or 01 in a path."""
    if not config.has_spans:
        yield config.path
    elif SPAN in config.path:
        yield config.path.replace(SPAN, glob.escape(span))
    else:
        values = re.split("[-T]", span)
        if len(values) != sum(part in config.path for part in DATE_PARTS):
            return
        padded = short = config.path
        for part, value in zip(DATE_PARTS, values, strict=False):
            padded = padded.replace(part, value)
            short = short.replace(part, value if part == DATE_PARTS[0] else str(int(value)))
        yield padded
        if short != padded:
            yield short


def _matches(config: SourceConfig, span: str) -> list[str]:
    found: list[str] = []
    others: list[str] = []
    patterns = list(_patterns(config, span))
    for pattern in patterns:
        for path in storage.matches(pattern):
            if storage.kind(path) == "folder":
                inside = storage.below(path)
                found += [name for name in inside if _is_data(name, config.format)]
                others += [name for name in inside if not _is_data(name, config.format)]
            else:
                found.append(path)
    if not found and others:
        raise ConfigError(
            f"the folder holds no file that ends as {config.format} files do ({SAID_ENDINGS[config.format]}); "
            f"it holds {PurePosixPath(others[0]).name}" + f" and {len(others) - 1} more" * (len(others) > 1),
            where=patterns[0],
            fix="check source.format, or name the files, by a glob perhaps: those are taken whatever they end in",
        )
    if not found:
        raise ConfigError(
            f"no file matches {patterns[0] if patterns else config.path}",
            where="source.path",
            fix="check the path and its files' endings",
        )
    return found


def _is_data(name: str, format: Format) -> bool:
    path = PurePosixPath(name)
    hidden = any(part.startswith((".", "_")) for part in path.parts[-2:])
    return re.search(ENDINGS[format], path.name) is not None and not hidden


def files(config: SourceConfig, span: str) -> tuple[InputFile, ...]:
    """The span's files, sorted by path, each read once for its checksum.

    Raises:
        ConfigError: there are none.
        DataError: one cannot be read, or is empty.
    """
    paths = _matches(config, span)
    if config.format == "images" and config.images.table is not None:
        from headway.sources.images import table_path

        table = table_path(config, span)  # it is a part of what the span says, so it counts as one of its files
        paths = [path for path in paths if path != table] + [table]
    return tuple(_checked(config, path) for path in paths)


def _checked(config: SourceConfig, path: str) -> InputFile:
    checksum, size = 0, 0
    room = np.empty(_FAR_BYTES if storage.is_remote(path) else _NEAR_BYTES, np.uint8)
    quotes = Quotes(config.csv.quote) if config.format == "csv" else None
    with storage.open_file(path) as file, storage.reading(path):
        while read := file.readinto(room):
            block = room[:read]
            checksum = google_crc32c.extend(checksum, block)
            size += read
            if quotes is not None:
                quotes.feed(block)
    if not size and config.format != "images":
        raise DataError("the file is empty", where=path, fix="remove it, or write it again")
    return InputFile(
        path=path, bytes=size, crc32c=f"{checksum:08x}", quoted_newlines=quotes is not None and quotes.newline_inside
    )
