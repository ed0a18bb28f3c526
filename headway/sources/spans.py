"""Finds the spans of a source and the files of each, by the path's pattern, and opens the source.

    spans(config)                                # ["2013-01", "2013-02"]
    found = files(config, "2013-01")             # path, bytes, crc32c of each file of the span
    source = open_source(config)                          # reads the format, renames columns, rejects too large values
    for piece in source.ranges(found):
        for chunk in source.read(piece, ["carrier", "arr_delay"], types={}):
            chunk.batch, chunk.first_row, chunk.malformed
    select_window(known, 30)                              # the last 30 spans
    select_window(known, "30d", until="2013-01-31")       # the spans of the 30 days that end with 31 January
    select_window(known, "12m", gaps="allow")             # a missing month is not an error

In a path, {span} stands for any name; {year}, {month}, {day} and {hour} for the parts of a date, and the span is then
called by that date: "2013-01-05", "2013-01-05T06". A date's parts may stand in the path more than once. {split} stands for any
name too. It does not tell spans apart; `split_name` returns what stands in its place in a file's path. A file is hidden, and not
read, if its name or a folder's begins with "." or "_", unless the path itself writes that name.

An open source rejects rows with a value of more than `max_cell_bytes`, so that batches stay small. Columns of fixed width are not
checked. Other columns are checked row by row only if a batch's whole column is larger than that limit.

If all spans are named by dates of one kind ("2013", "2013-01", "2013-01-05", "2013-01-05T06"), no date may be missing from a
window. The error names the missing dates; `gaps: allow` permits them. `flows.config.window` decides which window a run uses.
"""

from __future__ import annotations

import dataclasses
import glob
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.errors import ConfigError, DataError
from headway.messages import agree, counted, some
from headway.schema.columns import Column, suggest
from headway.sources.base import Chunk, InputFile, Malformed, Range, Source
from headway.sources.config import DATE_PARTS, FORMATS, SPAN, SPLIT, CsvConfig, Gaps, SourceConfig
from headway.sources.sample import Sample
from headway.sources.text_files import Quotes
from headway.storage import filesystem as storage
from headway.storage.manifest import crc32c
from headway.tabular.list_arrays import cell_bytes, decoded, flatten, has_bytes, is_list
from headway.tabular.quarantine import CUT, text_of

ONE_SPAN = "all"
"""The name of the only span of a source whose path has no placeholder."""
_FAR_BYTES, _NEAR_BYTES = 4 << 20, 512 << 10
"""The bytes read at a time for a checksum: in a bucket as many as one request, on a disk as many as the processor's
cache holds."""
_PLACE = re.compile(r"\{(span|year|month|day|hour|split)\}")
_DIGITS = {"year": r"\d{4}", "month": r"\d{1,2}", "day": r"\d{1,2}", "hour": r"\d{1,2}"}
_SEPARATORS = ("", "-", "-", "T")
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The word that engines write for a null in a folder's name."""
_MAGIC = re.compile(r"(\*|\?|\[!?\]?[^\]/]*\])")


def spans(config: SourceConfig) -> list[str]:
    """Returns the sorted names of the spans that have files; only "all" if the path has no placeholder for spans.

    Raises:
        ConfigError: no file matches, or a folder holds rows without a date.
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
    """Raise ConfigError if a folder such as `month=__HIVE_DEFAULT_PARTITION__` holds rows without a date: they belong to no
    span."""
    parts = pattern.split("/")
    for place, part in enumerate(parts):
        name, equals, value = part.partition("=")
        if equals and _PLACE.search(value) and SPAN not in value:
            undated = _PLACE.sub("*", "/".join([*parts[:place], f"{name}={_NO_VALUE}"]))
            for path in storage.matches(undated):
                fix = "give these rows a date, or move the folder elsewhere"
                raise ConfigError("its rows have no date, and so they are of no span", where=path, fix=fix)


def _name(match: re.Match[str]) -> str | None:
    """Returns the name of the span that a matched path belongs to; None when the digits in the path are not a date."""
    parts = match.groupdict()
    if SPAN[1:-1] in parts:
        return parts["span"]
    name = ""
    for part, separator in zip(DATE_PARTS, _SEPARATORS, strict=True):
        if part[1:-1] in parts:
            name += separator + parts[part[1:-1]].zfill(2)
    return None if parse_date(name) is None else name


def folder_columns(pattern: str, path: str) -> dict[str, str | None]:
    """Returns {column: value} for a file's folders that are named like `test=01`. The value holds for all rows of the file; None
    is null. A folder gives no column if the source's path (`pattern`) names this folder or has a placeholder for it."""
    written, folders = pattern.rstrip("/").split("/"), {}
    for place, part in enumerate(path.split("/")[:-1]):
        name, equals, value = part.partition("=")
        by_path = place < len(written) and (_PLACE.search(written[place]) or not _MAGIC.search(written[place]))
        if name and equals and not by_path:
            folders[unquote(name)] = None if value == _NO_VALUE else unquote(value)
    return folders


def split_name(config: SourceConfig, path: str) -> str:
    """Returns the part of a file's path that stands in the place of {split} in the source's path."""
    match = re.match(_regex(config.path) + r"(?:/.*)?$", path)
    assert match is not None, path
    return match["split"]


def _regex(text: str) -> str:
    """Returns a regular expression for the paths that a source's path matches, with a named group for each placeholder."""
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
    """Yields the globs that match a span's files. There may be two, since a path may write a month as 1 or as 01."""
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
    """Returns the paths of a span's files, in order, without reading the files.

    Raises:
        ConfigError: the span has no files.
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
    """Returns whether a file is hidden: a part of its path begins with "." or "_", and `pattern` does not write this part itself.

    Engines such as Spark write temporary files into hidden folders (`_temporary/0/part.csv`), and hidden marker files
    (`_SUCCESS`). A folder that the pattern itself names, as in `/data/_landing/*.csv`, is what the user wants."""
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
    """Returns the span's files as `paths_of` orders them, a table of images last. Each is read once, to compute its checksum.

    Raises:
        ConfigError: the span has no files.
        DataError: a file cannot be read; or it is empty, and the format is not images.
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
    quotes = Quotes(config.options) if isinstance(config.options, CsvConfig) else None

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


_DATE = re.compile(r"(?!0000)\d{4}(-\d{2}(-\d{2}(T\d{2})?)?)?")
_WINDOW = re.compile(r"(\d+)([hdwmy]?)")
_UNITS: dict[str, Any] = {"h": "h", "d": "D", "w": "W"}
_RESOLUTIONS = ("Y", "M", "D", "h")
_NAMED = 5
_LONGEST, _FIRST = 10**9, np.datetime64("0001-01-01T00")
ALL = "all"
"""The window of all spans; it has a name, since null means that no window is given."""
Date = np.datetime64
"""A calendar period: a year, a month, a day or an hour. The next one is `date + 1`."""


def parse_date(name: str) -> Date | None:
    """Returns the date that a span's name stands for; None when the name is not a date."""
    try:
        return np.datetime64(name) if _DATE.fullmatch(name) else None
    except ValueError:
        return None


def _before(end: Date, count: int, unit: str) -> Date:
    """Returns the hour that is `count` units of time (hours, days, weeks, months or years) before `end`.

    Months and years follow the calendar. If the month lacks the day, the result is the end of that month: one month before 31
    March is the end of February, which is 1 March, 0:00."""
    count, hour = min(count, _LONGEST), end.astype("M8[h]")
    if unit in _UNITS:
        return max(hour - np.timedelta64(count, _UNITS[unit]), _FIRST)
    month = hour.astype("M8[M]")
    first = month - count * (12 if unit == "y" else 1)
    begin = first.astype("M8[h]") + (hour - month.astype("M8[h]"))
    return max(min(begin, (first + 1).astype("M8[h]")), _FIRST)


def check_window(window: int | str | None) -> int | str | None:
    """Returns the window setting if it is valid. A number of spans is returned as an int, anything else as it is.

    Raises:
        ValueError: the setting is not a window.
    """
    if isinstance(window, bool) or not isinstance(window, int | str | None):
        raise ValueError(f"{window!r} is not a window; write a number of spans, a time such as 30d or 12m, or all")
    try:
        count, unit = _parsed(window)
    except ConfigError as error:
        raise ValueError(f"{error.problem}; {error.fix}") from None
    return count if count is not None and unit is None else window


def select_window(
    spans: Sequence[str],
    window: int | str | None,
    until: str = "latest",
    gaps: Gaps = "error",
    *,
    where: str = "--window",
) -> list[str]:
    """Returns the spans of a window, in order.

    Args:
        spans: all the spans there are, sorted.
        window: a number of spans (3 or "3"), or a length of time that ends with `until` ("48h", "30d", "8w", "12m", "2y");
            None or "all": all spans up to `until`.
        until: the last span, or "latest". If spans are dates, a longer period such as 2013 means its last span.
        gaps: "error" or "allow": whether a window of dates may lack a span.
        where: the setting that the window comes from, for error messages.

    Raises:
        ConfigError: `until` is no span, there are too few spans, or a span within the window is missing.
    """
    try:
        return _selected(spans, window, until, gaps)
    except ConfigError as error:
        raise ConfigError(error.problem, where=error.where or where, fix=error.fix) from None


def _selected(spans: Sequence[str], window: int | str | None, until: str, gaps: Gaps) -> list[str]:
    count, unit = _parsed(window)
    dates = _dates(spans)
    if unit is not None and dates is None:
        fix = f"use {{year}}/{{month}}/{{day}} in source.path, or count spans: --window {count}"
        raise ConfigError(f"a window of {window} needs spans that are named by their dates", fix=fix)
    last = _until(spans, dates, until, gaps)
    upto = [name for name in spans if name <= last] if dates else list(spans[: spans.index(last) + 1])
    if dates is None:
        return _counted(upto, count, until)
    date = parse_date(until)
    end = (date if date is not None and _coarse(date, dates) else dates[last]) + 1
    begin = _before(end, count, unit) if unit is not None and count is not None else None
    chosen = _counted(upto, count, until) if begin is None else [name for name in upto if dates[name] >= begin]
    if not chosen:
        raise ConfigError(f"a window of {window} until {until} holds no span", fix="take a longer one")
    if gaps == "error":
        first = dates[chosen[0]]
        if begin is not None:
            first = begin.astype(first.dtype)
            first = first if first >= begin else first + 1
        _no_gaps(dates, chosen, first, end)
    return chosen


def _parsed(window: int | str | None) -> tuple[int | None, str | None]:
    """Returns the number and the unit of a window: 30, "d" for 30d; 3, None for 3 spans; None, None for all spans."""
    if window in (None, ALL):
        return None, None
    match = _WINDOW.fullmatch(str(window).strip())
    count = int(match[1]) if match else 0
    if match is None and not re.fullmatch(r"-\d+", str(window)):
        raise ConfigError(
            f"{window!r} is not a window", fix="write a number of spans, a time such as 30d or 12m, or all"
        )
    if count < 1:
        raise ConfigError(f"a window of {window} spans is empty", fix="take at least 1")
    return count, (match[2] or None) if match else None


def _dates(spans: Sequence[str]) -> dict[str, Date] | None:
    """Returns {span: date} if all spans are named by dates of one unit, such as months; else None."""
    dates = {name: date for name in spans if (date := parse_date(name)) is not None}
    same = len({date.dtype for date in dates.values()}) == 1
    return dates if same and len(dates) == len(spans) else None


def _until(spans: Sequence[str], dates: dict[str, Date] | None, until: str, gaps: Gaps) -> str:
    """Returns the name of the window's last span; raises ConfigError if `until` names no span."""
    if until == "latest":
        return spans[-1]
    if until in spans:
        return until
    date = parse_date(until)
    if dates and date is not None and _coarse(date, dates):
        upto = [name for name in spans if dates[name] + 1 <= date + 1]
        if upto and (gaps == "allow" or dates[upto[-1]] >= date):
            return upto[-1]
    raise ConfigError(
        f"there is no span {until!r}", where="--until", fix=f"there is: {', '.join(spans[-24:])} (or 'latest')"
    )


def _coarse(date: Date, dates: dict[str, Date]) -> bool:
    """Returns whether the period `date`, such as a year, is at least as long as each of the spans in `dates`."""
    units = (np.datetime_data(each.dtype)[0] for each in (date, next(iter(dates.values()))))
    unit, unit_of_spans = map(_RESOLUTIONS.index, units)
    return unit <= unit_of_spans


def _no_gaps(dates: dict[str, Date], chosen: Sequence[str], first: Date, end: Date) -> None:
    """Raise ConfigError if `chosen` lacks spans from `first` until before `end`. The error names the missing spans."""
    covered = {dates[name] for name in chosen}
    missing = [str(date) for date in np.arange(first, end.astype(first.dtype)) if date not in covered]
    if missing:
        problem = f"the window lacks the {agree(len(missing), 'span', 'spans')} {some(missing, _NAMED)}"
        raise ConfigError(problem, fix="bring the data, take another window, or say 'gaps: allow' under source")


def _counted(upto: list[str], count: int | None, until: str) -> list[str]:
    if count is None:
        return upto
    if len(upto) < count:
        problem = (
            f"{counted(count, 'span')} wanted, but there {agree(len(upto), 'is', 'are')} only {len(upto)} up to {until}"
        )
        raise ConfigError(problem, fix=f"take --window {len(upto)} or less, or a later --until")
    return upto[-count:]


def open_source(
    config: SourceConfig, files: Sequence[InputFile] = (), later: Collection[str] = (), columns: Sequence[Column] = ()
) -> Source:
    """Opens the source of a config's format. Rows with a cell of more than `max_cell_bytes` come out as malformed.

    Args:
        later: columns that first appear in later spans. A file in `files` that lacks such a column gets it as nulls.
        columns: the schema's columns. A word such as NA may mean null in one column and be a value in another. Then it is
            read as text in all columns; `headway.tabular.coerce` makes it null where it means null.
    """
    if isinstance(config.options, CsvConfig):
        missing = [column.null for column in columns if column.null is not None]
        words = tuple(word for word in config.csv.null_values if not word or all(word in of for of in missing))
        config = config.model_copy(update={"csv": config.csv.model_copy(update={"null_values": words})})
    module, name = FORMATS[config.format].reader.split(".")
    reader = getattr(import_module(f"headway.sources.formats.{module}"), name)
    folders = {} if config.format == "images" else {"folders": partial(folder_columns, config.path)}
    return ConfiguredSource(reader(config), config.max_cell_bytes, config.rename, files, later, **folders)


class ConfiguredSource:
    """Wraps a format's source: rejects rows with too large values, renames columns, and adds columns that files lack.

    Args:
        names: {name in the files: name in the pipeline}.
        files: the span's files. A file that lacks a column in `later` gets the column as nulls.
        folders: a function of a file's path that returns the columns that its folders name, {name: text}. If the file itself
            has a column of that name, the file's column is used.
    """

    def __init__(
        self,
        source: Source,
        max_bytes: int,
        names: Mapping[str, str],
        files: Sequence[InputFile] = (),
        later: Collection[str] = (),
        folders: Callable[[str], dict[str, str | None]] = lambda path: {},
    ):
        self.source, self._max, self._names = source, max_bytes, dict(names)
        self._files, self._later, self._folders = files, frozenset(later), folders

    def names(self, file: InputFile) -> list[str]:
        names = dict.fromkeys([*self.source.names(file), *self._folders(file.path)])
        return [self._names.get(name, name) for name in names]

    def ranges(self, files: Sequence[InputFile]) -> list[Range]:
        return self.source.ranges(files)

    def read(self, piece: Range, columns: Sequence[str], types: Mapping[str, pa.DataType]) -> Iterator[Chunk]:
        lacking = self._later and self._later - {*self.names(self._files[piece.file])}
        folders = self._folders(piece.path)
        look = self._names or folders or lacking
        own = self.source.names(InputFile(path=piece.path, bytes=0, crc32c="")) if look else []
        # a file may have the new name already; of JSON lines and tf.Examples `own` are the first rows' names only
        there = {*own, *folders}
        already = {new for raw, new in self._names.items() if raw not in there and new in there} - {*self._names}
        raw_of = {new: raw for raw, new in self._names.items() if new not in already}
        given: dict[str, tuple[str | None, pa.DataType]] = {}
        for name in columns:
            raw = raw_of.get(name, name)
            if name in lacking:
                given[name] = None, types.get(name, pa.string())
            elif raw in folders and raw not in own:
                given[name] = folders[raw], pa.binary()
        read = [raw_of.get(name, name) for name in columns if name not in given]
        if given and not read:
            read = own[:1]  # a read of no column counts no rows
        raw_types = {raw_of.get(name, name): kind for name, kind in types.items() if name not in given}
        for chunk in self.source.read(piece, read, raw_types):
            chunk = reject_large_rows(chunk, self._max)
            if self._names:
                chunk = self._renamed(chunk)
            if given:
                batch = chunk.batch
                for name, (value, kind) in given.items():
                    rows = batch.num_rows
                    array = pa.nulls(rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), rows)
                    batch = batch.append_column(name, array)
                chunk = dataclasses.replace(chunk, batch=batch.select(list(columns)))
                del batch
            yield chunk
            del chunk  # batches are large: none is held here while the next one is read

    def _renamed(self, chunk: Chunk) -> Chunk:
        batch = chunk.batch.rename_columns([self._names.get(name, name) for name in chunk.batch.schema.names])
        malformed = tuple(
            dataclasses.replace(bad, column=self._names.get(bad.column, bad.column)) if bad.column else bad
            for bad in chunk.malformed
        )
        return dataclasses.replace(chunk, batch=batch, malformed=malformed)

    def sample(self, files: Sequence[InputFile], rows: int) -> Sample:
        sample = self.source.sample(files, rows)
        table, folders = sample.table, [self._folders(file.path) for file in files]
        for name in dict.fromkeys(name for each in folders for name in each):
            if name not in table.column_names:  # which row is of which file does not matter to a type
                values = pa.array([each.get(name) for each in folders], pa.string())
                places = np.arange(table.num_rows) * len(files) // max(table.num_rows, 1)
                table = table.append_column(name, values.take(pa.array(places)))
        names = table.column_names
        for raw, new in self._names.items():
            if raw not in names and (new not in names or new in self._names):
                raise ConfigError(
                    f"there is no column {raw!r} in the files", where="source.rename", fix=suggest(raw, names)
                )
            if raw in names and new in names and new not in self._names:
                raise ConfigError(
                    f"{raw!r} is renamed to {new!r}, but the files have a column of that name already",
                    where="source.rename",
                    fix="give it another name",
                )
        return dataclasses.replace(sample, table=table).renamed(self._names)


_FIXED = frozenset(kind.id for kind in (pa.int64(), pa.float32(), pa.float64(), pa.int32(), pa.bool_()))
Sizes = NDArray[np.int64]


def reject_large_rows(chunk: Chunk, max_bytes: int) -> Chunk:
    """Returns the chunk with each row that has a value of more than `max_bytes` bytes among the malformed rows, not in the
    batch."""
    batch, large = chunk.batch, dict[int, tuple[str, int]]()
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if array.type.id in _FIXED:
            continue
        if (sizes := _large(array, max_bytes)) is not None:
            for row in np.flatnonzero(sizes > max_bytes).tolist():
                large.setdefault(row, (name, int(sizes[row])))
    if not large:
        return chunk
    at = chunk.positions()
    bad = [
        Malformed(
            int(at[row]),
            _cell_text(batch.column(name).slice(row, 1)),
            f"{size} bytes, more than source.max_cell_bytes: {max_bytes}",
            name,
        )
        for row, (name, size) in sorted(large.items())
    ]
    keep = np.delete(np.arange(batch.num_rows), sorted(large))
    # rows are given by their place from here on, so first_row says nothing more
    return Chunk(batch.take(pa.array(keep)), chunk.first_row, at[keep], (*chunk.malformed, *bad))


def _cell_text(cell: pa.Array) -> str:
    cell = decoded(cell)
    if is_list(cell.type):
        cell = flatten(cell).values.slice(0, 1)
    value = cell[0].as_py() if len(cell) else ""
    return text_of(value[:CUT])[:CUT] if isinstance(value, bytes) else str(value)[:CUT]


def _large(array: pa.Array, max_bytes: int) -> Sizes | None:
    """Returns the bytes of each row's value if the array is so large that some value may exceed the limit; else None."""
    if pa.types.is_dictionary(array.type):
        values = _large(array.dictionary, max_bytes)
        return None if values is None else values[pc.fill_null(array.indices, 0).to_numpy(zero_copy_only=False)]
    try:  # at least the bytes of the values that the array, perhaps a slice, refers to
        size = int(array.nbytes)
    except pa.ArrowException:  # of a list view
        size = int(array.get_total_buffer_size())
    if size <= max_bytes or not (is_list(array.type) or has_bytes(array.type)):
        return None
    sizes = cell_bytes(array)
    return np.full(len(array), sizes) if isinstance(sizes, int) else sizes
