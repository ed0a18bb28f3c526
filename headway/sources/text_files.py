"""Text files, plain or read as a stream: cuts them into ranges, reads blocks of whole lines, and finds misplaced quotes.

    text = TextFile(path)
    text.line(0)                                    # (0, b"a,b\\n")
    for at, data in text.blocks(0, None, 16 << 20, last_line_end): ...

    form, head = stream_form(file, path)            # form.plain: lines of bytes, which can be cut anywhere
    TextStream(file, form, path).read(1 << 20)      # UTF-8; lines end in \\n

    rules = QuoteRules(CsvConfig(), longest=16 << 20)
    rules.broken(b'1,"12" pipe"\\n2,x\\n', columns=2)    # one BrokenRecord: text follows a closing quote
    rules.record_end(b'1,"a\\nb"\\n2,"c\\n', columns=2)  # 8, where the first record ends; the second one may go on
    Quotes(CsvConfig())                                # feed(block) sets newline_inside if the file cannot be cut at newlines

Some files are read as a stream, from their beginning, and are never in memory as a whole. They are text compressed by gzip, bzip2
or zstd, the one file of a zip archive, UTF-16 (known by its byte order mark or its zeros), and text with unusual line ends.

In CSV a quote opens a value only as the value's first character. The quote that closes it stands before a delimiter or a
line end, perhaps with blanks in between. In a value that does not begin with a quote, a quote is an ordinary character. A
line is broken if a quote opens a value and does not close it properly. Only this line is rejected; the next one begins a record.
"""

from __future__ import annotations

import codecs
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.errors import DataError
from headway.messages import some
from headway.sources.base import other_format
from headway.sources.config import CsvConfig, is_wide
from headway.storage import filesystem

BOM = b"\xef\xbb\xbf"
_PIECE = 1 << 16
_SHOWN = 512
"""The number of first bytes by which another format is recognized."""
_TAIL = 16 << 10
_LONGEST = 64 << 20
"""The most bytes of a header, or of what is read at a time where no record ends."""
SAMPLE_FILES, SAMPLE_PIECES, SAMPLE_BYTES = 8, 8, 1 << 18
"""The sample that a schema is inferred from: the number of files, of pieces of each, and of bytes of a piece."""


class TextFile:
    """One text file, read by lines or in blocks of whole lines.

    Raises:
        DataError: it cannot be read, or holds no text. Methods raise it if reading fails; `part` and `blocks` if it is cut off.
    """

    def __init__(self, path: str, encoding: str | None = None):
        """
        Args:
            encoding: the configured one. UTF-16 is assumed if the bytes do not show it; with others, bytes stay as they are.
        """
        self.path = path
        with filesystem.open_file(path) as file, filesystem.reading(path):
            self._form, self.head = stream_form(file, path, encoding)
        self.streamed = not self._form.plain
        """Whether the file is read as a stream from its beginning. Offsets then count bytes of the text, not of the
        file."""
        self.decoded = self._form.encoding is not None
        """Whether the text was converted to UTF-8."""
        if self._form.compression is not None and not self.head:
            raise DataError("the file is empty", where=self.path, fix="remove it, or write it again")
        if other := other_format(self.head[:_SHOWN], "csv"):
            raise DataError(f"is {other[0]}, not text", where=self.path, fix=other[1])
        if b"\0\0" in self.head[:_SHOWN]:
            raise DataError("is not text: it holds zero bytes", where=self.path, fix="check source.format and the file")

    def line(self, number: int, quote: bytes = b"", escape: bytes = b"") -> tuple[int, bytes]:
        """Returns the offset and the bytes of line `number` (from 0), with its line end; no bytes if there is no such line. A
        line end in quotes or after an escape does not end this line. In the lines above, every line end counts."""
        line, start, looked = bytearray(), 0, 0
        quotes, counted = 0, 0
        for _, piece in self.blocks(0, None, _PIECE, len):
            line += piece
            while (at := line.find(b"\n", looked)) >= 0:
                looked = at + 1
                if number:
                    del line[:looked]
                    start, looked, number = start + looked, 0, number - 1
                    continue
                quotes += line.count(quote, counted, at) if quote else 0
                counted = at
                if quotes % 2 == 0 and not (escape and line.endswith(escape, 0, at)):
                    return start, bytes(line[:looked])
            if number:  # it is not needed
                start += len(line)
                line.clear()
            if len(line) > _LONGEST:
                problem = f"a line from byte {start} on has more than {_LONGEST >> 20} MiB"
                raise DataError(problem, where=self.path, fix="check source.format and the file")
            looked = len(line)
        return start, b"" if number else bytes(line)

    def line_end(self, offset: int) -> int:
        """Returns the offset just after the line of a plain file that holds byte `offset`; the file's size for the last line."""
        with filesystem.open_file(self.path) as file, filesystem.reading(self.path):
            offset = min(offset, file.size())
            file.seek(offset)
            while piece := file.read(_PIECE):
                at = piece.find(b"\n")
                if at >= 0:
                    return offset + at + 1
                offset += len(piece)
        return offset

    def part(self, start: int, end: int) -> bytes:
        """Returns exactly the bytes [start, end) of a plain file."""
        with filesystem.open_file(self.path) as file, filesystem.reading(self.path):
            file.seek(start)
            data = bytes(file.read(end - start))
            size = file.size()
        if len(data) != end - start:
            raise DataError(f"ends at byte {size}, not at {end}", where=self.path)
        return data

    def blocks(
        self, start: int, end: int | None, size: int, last_end: Callable[[bytes], int]
    ) -> Iterator[tuple[int, bytes]]:
        """Yields the offset and the bytes of each block of about `size` bytes. `last_end(data)` returns the last offset at which
        a block may end, 0 for none. The last block may lack a line end. A stream is read to its end, whatever `end` is."""
        if last_end is last_line_end and end is not None and not self.streamed:
            yield from self._whole_lines(start, end, size)
            return
        with filesystem.open_file(self.path) as file, filesystem.reading(self.path):
            source: Any = file
            if self.streamed:
                source = TextStream(file, self._form, self.path)
                left = start
                while left and (data := source.read(min(left, _PIECE))):
                    left -= len(data)
            else:
                file.seek(start)
            at, carry = start, b""
            while True:
                most = max(size, min(len(carry), _LONGEST))  # twice as much each time that no line ends
                if end is not None and not self.streamed:
                    most = min(most, end - at - len(carry))
                fresh = bytes(source.read(most)) if most else b""
                data = carry + fresh if carry else fresh
                if not fresh:
                    break
                cut = last_end(data)
                if cut:
                    yield at, data[:cut]
                at, carry = at + cut, data[cut:]
                if len(carry) > LONGEST_LINE and carry.find(b"\n", len(carry) - LONGEST_LINE) < 0:
                    raise too_long(self.path, self._lines_before(at + carry.rfind(b"\n") + 1) + 1)
            if end is not None and not self.streamed and at + len(carry) < end:
                raise DataError(f"ends at byte {file.size()}, not at {end}", where=self.path)
            if carry:
                yield at, carry

    def _whole_lines(self, start: int, end: int, size: int) -> Iterator[tuple[int, bytes]]:
        """Does what `blocks` does for a plain file that is cut at line ends. The blocks are about equally large, and as few as
        `size` allows.

        Each block is one read: joining several reads would copy megabytes, which costs as much as reading them."""
        blocks = -(-(end - start) // size)
        with filesystem.open_file(self.path) as file, filesystem.reading(self.path):
            at = start
            while at < end:
                stop = self._stop(file, at, at + (end - at) // max(blocks, 1), end)
                blocks -= 1
                if stop - at > LONGEST_LINE + size:
                    raise too_long(self.path, self._lines_before(at) + 1)
                data = bytes(file.read_at(stop - at, at))
                if len(data) < stop - at:
                    raise DataError(f"ends at byte {file.size()}, not at {end}", where=self.path)
                yield at, data
                at = stop

    def _lines_before(self, offset: int) -> int:
        """Returns the number of line ends before an offset. Reads the whole file up to the offset: for error messages only."""
        with filesystem.open_file(self.path) as file, filesystem.reading(self.path):
            source: Any = TextStream(file, self._form, self.path) if self.streamed else file
            lines = 0
            while offset > 0 and (data := bytes(source.read(min(offset, _PIECE)))):
                lines, offset = lines + data.count(b"\n"), offset - len(data)
            return lines

    def _stop(self, file: pa.NativeFile, start: int, stop: int, end: int) -> int:
        """Returns where a block ends: at `end` if `stop` is `end`, else after the last line end before `stop`, or the next."""
        if stop == end:
            return end
        low = stop
        while low > start:
            low, high = max(start, low - _TAIL), low
            if cut := last_line_end(bytes(file.read_at(high - low, low))):
                return low + cut
        after = self.line_end(stop)
        return min(after, end) if after > stop else end  # not after it: the file was cut meanwhile


def last_line_end(data: bytes) -> int:
    """Returns the offset just after the last line end; 0 when there is none."""
    return data.rfind(b"\n") + 1


def row_offsets(data: bytes, rows: list[int]) -> list[int]:
    """Returns the byte offset of each of these rows; -1 for a row that does not exist. Rows count from 0, without empty lines."""
    array = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(array == 10)
    starts = np.concatenate([[0], ends + 1])
    stops = np.append(ends, len(data))
    filled = stops > starts
    filled &= ~((stops - starts == 1) & (array[np.minimum(starts, len(data) - 1)] == 13))
    starts = starts[filled]
    return [int(starts[row]) if row < len(starts) else -1 for row in rows]


def cuts(text: TextFile, start: int, size: int, step: int) -> Iterator[tuple[int, int]]:
    """Cuts a plain file into ranges, from byte `start` to its end at byte `size`. Yields the start and the end of each range. A
    range ends after the first line end at or after `step` bytes."""
    while start < size:
        end = min(text.line_end(min(start + step, size)), size)
        if end <= start:
            raise DataError(f"ends at byte {start}, not at {size}", where=text.path)
        yield start, end
        start = end


def sample(
    text: TextFile, start: int, size: int, last_end: Callable[[bytes], int], *, plain: bool
) -> Iterator[tuple[int, bytes]]:
    """Yields the offset and the bytes of pieces of a file, from which a schema is inferred. A piece is whole lines. A file that
    cannot be cut at line ends has one piece, its beginning.

    Args:
        last_end: as in `TextFile.blocks`.
        plain: whether the file can be cut at line ends.
    """
    if plain:
        yield from _spread(text, start, size)
        return
    for at, data in text.blocks(0, None, SAMPLE_PIECES * SAMPLE_BYTES + start, last_end):
        if at + len(data) > start:
            yield max(at, start), data[max(start - at, 0) :]
            return


def _spread(text: TextFile, start: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Yields the offset and the bytes of pieces spread over a plain file. If the file is sorted, its beginning alone could show
    one value only. A small file is one piece."""
    length = size - start
    count = SAMPLE_PIECES if length > SAMPLE_PIECES * SAMPLE_BYTES else 1
    done = start
    for i in range(count):
        begin = text.line_end(start + length * i // count) if i else start
        if done <= begin < size:  # a line may be longer than the way to the next place
            done = text.line_end(min(begin + SAMPLE_BYTES, size)) if count > 1 else size
            yield begin, text.part(begin, done)


_HEAD = 1 << 16
_GZIP = b"\x1f\x8b"
_COMPRESSIONS = {_GZIP: "gzip", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip"}
_ARROW = {"gzip": "gzip", "bzip2": "bz2", "zstd": "zstd"}
_LETTERS = 16
"""The number of ASCII letters at the beginning by which UTF-16 without a byte order mark is recognized."""
_WORKBOOK = "[Content_Types].xml"
_DOUBLED = re.compile(rb"\r+\n")
LONGEST_LINE = 128 << 20
"""The most bytes of a line, since a line is in memory before its row is checked against `source.max_cell_bytes`."""
_HIDDEN = re.compile(r"^__MACOSX/|(^|/)\.[^./]")


@dataclass(frozen=True)
class StreamForm:
    """The form of a text file: compression, encoding and line ends."""

    compression: str | None = None
    encoding: str | None = None
    """The encoding: utf-16, utf-16-le or utf-16-be; None: the bytes are read as they are."""
    line_ends: bytes | None = None
    r"""The line end, where it is \r or \r\r\n; None: it is \n or \r\n."""

    @property
    def plain(self) -> bool:
        return self == StreamForm()


def too_long(path: str, line: int) -> DataError:
    """Returns the error for a line of more than LONGEST_LINE bytes; `line` is its number, from 1."""
    fix = "check that it is text of one row per line; large values can be written as Parquet"
    return DataError(f"line {line:,} has more than {LONGEST_LINE >> 20} MiB", where=path, fix=fix)


def stream_form(file: Any, path: str, encoding: str | None = None) -> tuple[StreamForm, bytes]:
    """Returns the compression, encoding and line ends of an open file, and the beginning of its text. Moves the file's position.

    Args:
        encoding: a UTF-16 encoding to assume where the bytes show none.

    Raises:
        DataError: the file cannot be decompressed, or is an archive of several files.
    """
    head = bytes(file.read(_HEAD))
    compression = next((name for magic, name in _COMPRESSIONS.items() if head.startswith(magic)), None)
    if compression is not None:
        file.seek(0)
        head = TextStream(file, StreamForm(compression), path).read(_HEAD)
        if head.startswith(_GZIP):
            raise DataError(
                f"holds a gzip file, compressed with {compression} again", where=path, fix="decompress it once"
            )
    encoding = _encoding(head) or (encoding if encoding and is_wide(encoding) else None)
    if encoding is not None:
        head = head.decode(encoding, "replace").encode()
    return StreamForm(compression, encoding, _line_ends(head)), head


def _encoding(head: bytes) -> str | None:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    first, second = head[: 2 * _LETTERS : 2], head[1 : 2 * _LETTERS : 2]
    if len(second) == _LETTERS:
        if all(first) and not any(second):
            return "utf-16-le"
        if all(second) and not any(first):
            return "utf-16-be"
    return None


def _line_ends(head: bytes) -> bytes | None:
    if b"\r" not in head:
        return None
    if b"\n" not in head:
        return b"\r" if b"\r" in head.rstrip(b"\r") else None
    return b"\r\r\n" if b"\r\r\n" in head else None


class TextStream:
    """Reads a file's text from its beginning. UTF-16 comes as UTF-8; line ends other than \\n and \\r\\n come as \\n."""

    def __init__(self, file: Any, form: StreamForm, path: str):
        self._path, self._form = path, form
        self._decoder = codecs.getincrementaldecoder(form.encoding)() if form.encoding else None
        self._file = file
        self._carry = self._ready = b""
        self._end = b"\r" if form.line_ends == b"\r" else b"\n"
        self._lines = 0
        self._read = 0
        self._source = self._opened(file)

    def _opened(self, file: Any) -> Any:
        kind = self._form.compression
        if kind is None:
            return file
        if kind in _ARROW:
            return pa.CompressedInputStream(file, _ARROW[kind])
        try:
            archive = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, OSError, pa.ArrowException) as error:
            raise self._damaged(error) from None
        inside = [info for info in archive.infolist() if not info.is_dir()]
        names = [info.filename for info in inside if not _HIDDEN.search(info.filename)]
        if _WORKBOOK in names:
            raise DataError("is an Excel workbook, not text", where=self._path, fix="save it as CSV")
        if len(names) != 1:
            what = f"holds {len(names)} files: {some(names, 3)}" if names else "holds no file"
            fix = "unpack it (unzip FILE), and name the folder or one of the files"
            raise DataError(f"is a zip archive that {what}", where=self._path, fix=fix)
        try:
            return archive.open(names[0])
        except (RuntimeError, NotImplementedError) as error:  # a password, another method
            fix = "unpack it (unzip FILE), and name the file"
            raise DataError(f"is a zip archive that cannot be read: {error}", where=self._path, fix=fix) from None

    def read(self, size: int) -> bytes:
        """Returns the next bytes of the text, at most `size`. No bytes mean the end of the text."""
        while size and not self._ready:
            fresh = self._bytes(size)
            self._ready = self._text(fresh)
            if not fresh:
                break
        data, self._ready = self._ready[:size], self._ready[size:]
        return data

    def _bytes(self, size: int) -> bytes:
        try:
            fresh = bytes(self._source.read(size))
        except (OSError, EOFError, pa.ArrowException, zlib.error, zipfile.BadZipFile) as error:
            if self._form.compression is None:
                raise
            raise self._damaged(error) from None
        self._read += len(fresh)
        return fresh

    def _text(self, fresh: bytes) -> bytes:
        if self._decoder is not None:
            try:
                text = self._decoder.decode(fresh, final=not fresh)
            except UnicodeDecodeError as error:
                problem = (
                    f"is not whole {self._form.encoding}: byte {self._read - len(error.object) + error.start} is wrong"
                )
                raise DataError(problem, where=self._path, fix="save it as UTF-8") from None
            fresh, done = text.encode("utf-8", "replace"), not fresh
        else:
            done = not fresh
        if self._form.line_ends is None:
            return fresh
        data = self._carry + fresh
        if not done:  # whole lines, with whole line ends
            cut = data.rfind(self._end) + 1
            data, self._carry = data[:cut], data[cut:]
            if len(self._carry) > LONGEST_LINE:
                raise too_long(self._path, self._lines + 1)
            self._lines += data.count(self._end)
        else:
            self._carry = b""
        return data.replace(b"\r", b"\n") if self._form.line_ends == b"\r" else _DOUBLED.sub(b"\n", data)

    def _damaged(self, error: BaseException) -> DataError:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return DataError(
            f"not a whole {self._form.compression} file, after byte {self._read} of its contents: {reason}",
            where=self._path,
            fix="fetch or write the file again" + (", or unzip it" if self._form.compression == "zip" else ""),
        )


_ROWS = 20
"""If the text between two quotes has at least so many lines, each with as many values as a row, it is rows and not one
value."""


@dataclass(frozen=True)
class BrokenRecord:
    """A CSV record that cannot be read, at bytes [start, end) of the data, and the reason."""

    start: int
    end: int
    reason: str


class QuoteRules:
    """The rules for where quotes may stand in CSV files with a given config.

    Args:
        longest: the most bytes of a value that has line ends in it.
    """

    def __init__(self, config: CsvConfig, longest: int):
        self._quote, self._escape = config.quote.encode(), config.escape.encode()
        self._delimiter, self._longest = config.delimiter.encode(), longest
        quote, escape, ends = re.escape(self._quote), re.escape(self._escape), re.escape(self._delimiter) + rb"\n\r"
        letters = b"[^%b]++" % (quote + escape) if quote or escape else rb"[\s\S]++"
        within, outside = [letters], [letters]
        if escape:
            within.append(rb"%b[\s\S]" % escape)
            outside.append(rb"%b[^\n]%b" % (escape, quote + b"*+" if quote else b""))
        if quote:
            within.append(quote * 2)
            opening = b"(?<![^%b])%b(?:%b)*+" % (ends, quote, b"|".join(within))
            blanks = re.escape(b" \t".replace(self._delimiter, b""))
            closed = b"%b%b(?=[%b]*+(?:[%b]|\\Z))" % (opening, quote, blanks, ends)
            one_line = closed.replace(letters, b"[^%b\\n]++" % (quote + escape)).replace(rb"[\s\S]", rb"[^\n]")
            outside += [one_line, b"(?<=[^%b])%b" % (ends, quote)]
            self._opening, self._closed = re.compile(opening), re.compile(closed)
        self._plain = re.compile(b"(?:%b)*+" % b"|".join(outside))
        """A pattern for data whose quotes stand where they may, with each value on one line."""

    def record_end(self, data: bytes, columns: int) -> int:
        """Returns the offset just after the last whole record in `data`, a block of a longer text; 0 when no record is whole."""
        if not self._holds_marks(data):
            return data.rfind(b"\n") + 1
        return self._walk(data, columns, newlines=True, final=False)[0]

    def broken(self, data: bytes, columns: int, *, newlines: bool = True) -> list[BrokenRecord]:
        """Returns the records that cannot be read because of a misplaced quote. `data` must end with a whole record.

        Args:
            newlines: whether a value may hold a line end; false for a file that was cut at any line end.
        """
        if not self._holds_marks(data):
            return []
        if not self._escape and _are_plain(data, self._quote[0], self._delimiter[0]):
            return []
        return self._walk(data, columns, newlines, final=True)[1]

    def escaped(self, data: bytes) -> bytes:
        r"""Returns the data with each escape before an ordinary character doubled. The parser then keeps the escape as a part of
        the text: C:\dir becomes C:\\dir."""
        if not self._escape or self._escape not in data:
            return data
        escape, others = re.escape(self._escape), self._quote + self._escape + self._delimiter
        stray = rb"(?<!%b)((?:%b%b)*)%b(?![%b\n\r])" % (escape, escape, escape, escape, re.escape(others))
        return re.sub(stray, lambda found: found[1] + 2 * self._escape, data)

    def _holds_marks(self, data: bytes) -> bool:
        """Returns whether the data hold a quote or an escape character."""
        return any(mark and mark in data for mark in (self._quote, self._escape))

    def _walk(self, data: bytes, columns: int, newlines: bool, final: bool) -> tuple[int, list[BrokenRecord]]:
        """Returns the offset just after the last whole record, and the broken records. `final`: no more data follow."""
        # line ends before `floor` may lie inside a value, and the record that reaches `floor` begins at `record`
        broken: list[BrokenRecord] = []
        at = floor = record = 0
        while (found := self._plain.match(data, at)) and (at := found.end()) < len(data):
            start = data.rfind(b"\n", floor, at) + 1 or record
            end = self._end_of_piece(data, at, start, columns) if newlines else -1
            line_end = data.find(b"\n", at) + 1
            if not final and (end >= len(data) or not line_end):
                return start, broken
            if 0 < end <= len(data):
                at, floor, record = end, end, start
                continue
            if data[at : at + 1] == self._escape:  # a line end that it escapes, where none can be
                at += 1
                continue
            end = line_end or len(data)
            opened = self._opening.match(data, at)
            closes = opened is not None and opened.end() < end
            reason = "text follows a closing quote" if closes else "a quote opens a value and does not close it"
            broken.append(BrokenRecord(start, end, f"{reason} (see csv.quote, csv.escape)"))
            at = floor = record = end
        return len(data) if final else data.rfind(b"\n", floor) + 1 or record, broken

    def _end_of_piece(self, data: bytes, at: int, start: int, columns: int) -> int:
        """Returns the end of what begins at offset `at`: a quoted value of several lines, or an escaped line end. The result lies
        beyond the data if the value is not closed within the data, and is -1 if the value's quotes are broken."""
        if data[at : at + 1] == self._escape:
            return min(at + 2, len(data))
        value = self._closed.match(data, at)
        if value is None:
            opened = self._opening.match(data, at)
            open_yet = opened is not None and data[opened.end() :] in (b"", self._escape)
            return len(data) + 1 if open_yet and len(data) - at <= self._longest else -1
        end = value.end()
        if end - at > self._longest:
            return -1
        if columns > 1 and data.count(b"\n", at, end) >= _ROWS - 1:
            lines = data[start : (data.find(b"\n", end) + 1 or len(data) + 1) - 1].split(b"\n")
            if all(line.count(self._delimiter) == columns - 1 for line in lines):
                return -1
        return end


_WORD = 64
_SHIFTS = [np.uint64(1 << power) for power in range(6)]
_ONE, _LAST, _ALL = np.uint64(1), np.uint64(_WORD - 1), np.uint64(0xFFFFFFFFFFFFFFFF)
Words = NDArray[np.uint64]


class Quotes:
    """Searches the blocks of a CSV file for a newline inside quotes. An escape character counts too: a newline may follow it."""

    def __init__(self, config: CsvConfig):
        self._quote, self._escape = config.quote.encode(), config.escape.encode()
        self._open = np.uint64(0)
        self._equal = np.empty(0, np.bool_)  # memory that is new for every block would cost more than the search
        self.newline_inside = False

    def feed(self, block: bytes | NDArray[np.uint8]) -> None:
        """Searches the next block. 64 bytes at a time become the bits of a word: three times as fast as finding each quote."""
        if self.newline_inside or not len(block):
            return
        data = np.frombuffer(block, np.uint8)
        if len(data) > len(self._equal):
            self._equal = np.empty(len(data), np.bool_)
        equal = self._equal[: len(data)]
        if self._escape and np.equal(data, self._escape[0], out=equal).any():
            self.newline_inside = True
        elif self._quote:
            inside, after = _inside(_bits(np.equal(data, self._quote[0], out=equal)), self._open)
            self.newline_inside = bool((inside & _bits(np.equal(data, ord("\n"), out=equal))).any())
            self._open = after


def _bits(mask: NDArray[np.bool_]) -> Words:
    """Returns a mask as 64-bit words. The first value is the lowest bit; zeros fill up the last word."""
    packed = np.packbits(mask, bitorder="little")
    if short := -len(packed) % (_WORD // 8):
        packed = np.append(packed, np.zeros(short, np.uint8))
    return packed.view("<u8")


def _inside(quotes: Words, open_before: np.uint64) -> tuple[Words, np.uint64]:
    """Returns bits that are 1 from an opening quote until before the closing one; and 1 if a quote is open at the end."""
    inside = quotes.copy()
    for shift in _SHIFTS:  # a bit becomes the parity of itself and all before it in its word
        inside ^= inside << shift
    after = np.bitwise_xor.accumulate(inside >> _LAST) ^ open_before
    inside[1:] ^= after[:-1] * _ALL
    inside[0] ^= open_before * _ALL
    return inside, after[-1]


def _are_plain(data: bytes, quote: int, delimiter: int) -> bool:
    """Returns whether every quote opens or closes a value of one line, or is doubled inside such a value."""
    array = np.frombuffer(data, np.uint8)
    quotes, newlines = _bits(array == quote), _bits(array == ord("\n"))
    inside, after = _inside(quotes, np.uint64(0))
    if after or (inside & newlines).any():
        return False
    edges = quotes | newlines | _bits(array == delimiter)
    if b"\r" in data:
        edges |= _bits(array == ord("\r"))
    before, behind = edges << _ONE, edges >> _ONE
    before[1:] |= edges[:-1] >> _LAST
    before[0] |= _ONE
    behind[:-1] |= edges[1:] << _LAST
    behind[-1] |= _ONE << np.uint64((len(array) - 1) % _WORD)
    return not ((quotes & inside & ~before) | (quotes & ~inside & ~behind)).any()
