"""Finds the spans of a source and the files of each, by the path's pattern.

    spans(config)                                # ["2013-01", "2013-02"]
    found = files(config, "2013-01")             # path, bytes, crc32c of each file of the span

In a path, {span} stands for any name; {year}, {month}, {day} and {hour} for the parts of a date, and the span is then
called by that date: "2013-01-05", "2013-01-05T06". A date's parts may stand in the path more than once. {split} stands for
any name too, and tells no spans apart: `split_name` says what it is in a file's path. What a placeholder,
a wildcard or a folder stands for is hidden when it begins with "." or "_", at any depth; what the path itself names is not.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

import numpy as np

from headway.errors import ConfigError, DataError
from headway.messages import some
from headway.sources.base import InputFile
from headway.sources.config import DATE_PARTS, FORMATS, SPAN, SPLIT, SourceConfig
from headway.sources.csv_quotes import Quotes
from headway.sources.discovery.window import parse_date
from headway.storage import filesystem as storage
from headway.storage.manifest import crc32c

ONE_SPAN = "all"
"""The span of a source whose path tells none apart."""
_FAR_BYTES, _NEAR_BYTES = 4 << 20, 512 << 10
"""Read at a time for a checksum: a request to a bucket, or what stays in the processor's cache."""
_PLACE = re.compile(r"\{(span|year|month|day|hour|split)\}")
_DIGITS = {"year": r"\d{4}", "month": r"\d{1,2}", "day": r"\d{1,2}", "hour": r"\d{1,2}"}
_SEPARATORS = ("", "-", "-", "T")
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""What engines write for a null in a folder's name."""
_MAGIC = re.compile(r"(\*|\?|\[!?\]?[^\]/]*\])")


def spans(config: SourceConfig) -> list[str]:
    """The spans of the existing files, sorted; one span "all" when the path has no placeholder.

    Raises:
        ConfigError: no file matches.
    """
    if not config.has_spans:
        paths_of(config, ONE_SPAN)
        return [ONE_SPAN]
    pattern = re.compile(_regex(config.path) + r"(?:/.*)?$")
    spans = set()
    hidden = list[str]()
    for path in storage.matches(_PLACE.sub("*", config.path)):
        if (match := pattern.match(path)) and (name := _name(match)):
            if _is_hidden(path, config.path):
                hidden.append(path)
            else:
                spans.add(name)
    _refuse_undated(config.path)
    if not spans and hidden:
        raise _only_hidden(hidden, config.path)
    if not spans:
        raise ConfigError(
            f"no file matches {config.path}",
            where="source.path",
            fix=f"check the path; {SPAN} stands for any name" if SPAN in config.path else "check the path",
        )
    return sorted(spans)


def _refuse_undated(pattern: str) -> None:
    """Refuse folders in which engines write the rows without a date, where folders are named by a date: they are of no span."""
    parts = pattern.split("/")
    for place, part in enumerate(parts):
        name, equals, value = part.partition("=")
        if equals and _PLACE.search(value) and SPAN not in value:
            undated = _PLACE.sub("*", "/".join([*parts[:place], f"{name}={_NO_VALUE}"]))
            for path in storage.matches(undated):
                fix = "give these rows a date, or move the folder elsewhere"
                raise ConfigError("its rows have no date, and so they are of no span", where=path, fix=fix)


def _name(match: re.Match[str]) -> str | None:
    """The span's name; None when its digits are not a date."""
    parts = match.groupdict()
    if SPAN[1:-1] in parts:
        return parts["span"]
    name = ""
    for part, separator in zip(DATE_PARTS, _SEPARATORS, strict=True):
        if part[1:-1] in parts:
            name += separator + parts[part[1:-1]].zfill(2)
    return None if parse_date(name) is None else name


def folder_columns(pattern: str, path: str) -> dict[str, str | None]:
    """The columns that a file's folders name, as in `test=01/part.csv`, and their value for its rows; None: null. A folder
    that the source's path names itself is none, nor is one that a placeholder stands in."""
    written, folders = pattern.rstrip("/").split("/"), {}
    for place, part in enumerate(path.split("/")[:-1]):
        name, equals, value = part.partition("=")
        by_path = place < len(written) and (_PLACE.search(written[place]) or not _MAGIC.search(written[place]))
        if name and equals and not by_path:
            folders[unquote(name)] = None if value == _NO_VALUE else unquote(value)
    return folders


def split_name(config: SourceConfig, path: str) -> str:
    """What {split} of the source's path stands for in the path of one of its files."""
    match = re.match(_regex(config.path) + r"(?:/.*)?$", path)
    assert match is not None, path
    return match["split"]


def _regex(text: str) -> str:
    """A regular expression for a path's pattern, with a group for each placeholder."""
    parts, names = [], set[str]()
    for i, part in enumerate(_PLACE.split(text)):
        if not i % 2:
            parts.append(_regex_of_glob(part))
        elif part in names:
            parts.append(f"0*(?P={part})" if part != "year" else "(?P=year)")
        else:
            # {span} stands for one path part's worth of characters; the file's ending is not part of it
            names.add(part)
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


def patterns(config: SourceConfig, span: str) -> Iterator[str]:
    """The globs of a span's files. A month may be written 1 or 01 in a path."""
    path = config.path.replace(SPLIT, "*")
    if not config.has_spans:
        yield path
    elif SPAN in path:
        yield path.replace(SPAN, glob.escape(span))
    else:
        values = re.split("[-T]", span)
        if len(values) != sum(part in path for part in DATE_PARTS):
            return
        padded = short = path
        for part, value in zip(DATE_PARTS, values, strict=False):
            padded = padded.replace(part, value)
            short = short.replace(part, value if part == DATE_PARTS[0] else str(int(value)))
        yield padded
        if short != padded:
            yield short


def paths_of(config: SourceConfig, span: str) -> list[str]:
    """The paths of a span's files, in order, of which nothing is read.

    Raises:
        ConfigError: there are none.
    """
    files: list[str] = []
    others: list[str] = []
    hidden: list[str] = []
    globs = list(patterns(config, span))
    for pattern in globs:
        for path in storage.matches(pattern):
            inside = storage.below(path) if storage.kind(path) == "folder" else None
            for name in [path] if inside is None else inside:
                is_data = inside is None or re.search(FORMATS[config.format].pattern, PurePosixPath(name).name)
                (hidden if _is_hidden(name, pattern) else files if is_data else others).append(name)
    if files:
        return files
    if others:
        raise ConfigError(
            f"the folder holds no file that ends as {config.format} files do ({FORMATS[config.format].endings}); "
            f"it holds {some([PurePosixPath(name).name for name in others], 1)}",
            where=globs[0],
            fix="check source.format, or name the files, by a glob perhaps: those are taken whatever they end in",
        )
    if hidden:
        raise _only_hidden(hidden, globs[0])
    raise ConfigError(
        f"no file matches {globs[0] if globs else config.path}",
        where="source.path",
        fix="check the path and its files' endings",
    )


def _is_hidden(path: str, pattern: str) -> bool:
    """Whether a part of `path` begins with "." or "_" that the pattern does not write itself.

    Engines write aside in such folders (`_temporary/0/part.csv`) and leave markers under such names (`_SUCCESS`). A folder
    that the pattern names, as in `/data/_landing/*.csv`, is what the user wants.
    """
    written = pattern.rstrip("/").split("/")
    for i, part in enumerate(path.split("/")):
        matched = i >= len(written) or written[i][:1] in ("*", "?", "{") or written[i][:2] == "[!"
        if matched and part.startswith((".", "_")) and part not in (".", ".."):
            return True
    return False


def _only_hidden(hidden: list[str], pattern: str) -> ConfigError:
    return ConfigError(
        f"only hidden files match, and they are not read: {some(hidden, 1)}",
        where=f"source.path: {pattern}",
        fix="write the part that begins with '_' or '.' into source.path, or rename it",
    )


def files(config: SourceConfig, span: str) -> tuple[InputFile, ...]:
    """The span's files, sorted by path, each read once for its checksum.

    Raises:
        ConfigError: there are none.
        DataError: one cannot be read, or is empty.
    """
    paths = paths_of(config, span)
    if config.format == "images" and config.images.table is not None:
        from headway.sources.formats.images import table_path

        table = table_path(config, span)  # it is a part of what the span says, so it counts as one of its files
        paths = [path for path in paths if path != table] + [table]
    return tuple(_checked(config, path) for path in paths)


def _checked(config: SourceConfig, path: str) -> InputFile:
    # images are read whole
    changed = None if config.format == "images" else storage.size_and_time(path)[1]
    room = np.empty(_FAR_BYTES if storage.is_remote(path) else _NEAR_BYTES, np.uint8)
    quotes = Quotes(config.csv) if config.format == "csv" else None

    def blocks(file: Any) -> Iterator[Any]:
        while read := file.readinto(room):
            if quotes is not None:
                quotes.feed(room[:read])
            yield room[:read]

    with storage.open_file(path) as file, storage.reading(path):
        size, checksum = crc32c(blocks(file))
    if not size and config.format != "images":
        raise DataError("the file is empty", where=path, fix="remove it, or write it again")
    quoted = quotes is not None and quotes.newline_inside
    return InputFile(path=path, bytes=size, crc32c=checksum, changed=changed, quoted_newlines=quoted)
