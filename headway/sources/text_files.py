"""Text files, plain or read as a stream: cuts them into ranges, and reads blocks of whole lines.

    text = TextFile(path)
    text.line(0)                                    # (0, b"a,b\\n")
    for at, data in text.blocks(0, None, 16 << 20, last_line_end): ...

    form, head = stream_form(file, path)            # form.plain: lines of bytes, which can be cut anywhere
    TextStream(file, form, path).read(1 << 20)      # UTF-8; lines end in \\n

Some files have to be read from their beginning, and never stay in memory whole: text compressed by gzip, bzip2 or zstd,
the one file of a zip archive, UTF-16 (known by its byte order mark or its zeros), and text with other line ends.
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

from headway.errors import DataError
from headway.messages import some
from headway.sources.base import other_format
from headway.sources.config import is_wide
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
        DataError: from every method: the file cannot be read, is cut off, or holds no text.
    """

    def __init__(self, path: str, encoding: str | None = None):
        """
        Args:
            encoding: UTF-16 to assume if the bytes do not show it; of any other encoding the bytes stay as they are.
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
        """Returns the offset and the bytes of a line (from 0) with its line end; no bytes if there is no such line. A
        line end in quotes or after an escape does not end it, but ends the lines before it."""
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
        """Returns the end of the line that contains byte `offset` of a plain file; the file's size if it has none."""
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
        """Yields the offset and the bytes of blocks of about `size` bytes. `last_end(data)` returns where a block may
        end; the last one may lack a line end. A stream is always read to its end."""
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
        """Yields what `blocks` does for a plain file cut at line ends, in as few blocks of one size as `size` allows.

        Each is read at once, since to copy megabytes costs as much as to read them.
        """
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
        """Returns the number of line ends before an offset. It reads the whole file up to there: for errors only."""
        with filesystem.open_file(self.path) as file, filesystem.reading(self.path):
            source: Any = TextStream(file, self._form, self.path) if self.streamed else file
            lines = 0
            while offset > 0 and (data := bytes(source.read(min(offset, _PIECE)))):
                lines, offset = lines + data.count(b"\n"), offset - len(data)
            return lines

    def _stop(self, file: pa.NativeFile, start: int, stop: int, end: int) -> int:
        """Returns the offset after the last line end in [start, stop), else after the next one; at most `end`."""
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
    """Returns the offset after the last line end; 0 when there is none."""
    return data.rfind(b"\n") + 1


def row_offsets(data: bytes, rows: list[int]) -> list[int]:
    """Returns the offset of each of these rows, numbered from 0 without empty lines; -1 for a row that is not there."""
    array = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(array == 10)
    starts = np.concatenate([[0], ends + 1])
    stops = np.append(ends, len(data))
    filled = stops > starts
    filled &= ~((stops - starts == 1) & (array[np.minimum(starts, len(data) - 1)] == 13))
    starts = starts[filled]
    return [int(starts[row]) if row < len(starts) else -1 for row in rows]


def cuts(text: TextFile, start: int, size: int, step: int) -> Iterator[tuple[int, int]]:
    """Yields the start and the end of each range of a plain file of `size` bytes, from `start` on. A range ends at the
    first line end at or after `step` bytes."""
    while start < size:
        end = min(text.line_end(min(start + step, size)), size)
        if end <= start:
            raise DataError(f"ends at byte {start}, not at {size}", where=text.path)
        yield start, end
        start = end


def sample(
    text: TextFile, start: int, size: int, last_end: Callable[[bytes], int], *, plain: bool
) -> Iterator[tuple[int, bytes]]:
    """Yields the offset and the whole lines of each piece of a file that a schema is inferred from. A file that cannot
    be cut at line ends has one piece, its beginning.

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
    """Yields the offset and the bytes of pieces spread over a plain file, since the beginning of a sorted file shows
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
    """Returns the error for a line of more than LONGEST_LINE bytes, numbered from 1."""
    fix = "check that it is text of one row per line; large values can be written as Parquet"
    return DataError(f"line {line:,} has more than {LONGEST_LINE >> 20} MiB", where=path, fix=fix)


def stream_form(file: Any, path: str, encoding: str | None = None) -> tuple[StreamForm, bytes]:
    """Returns the compression, encoding and line ends of an open file, and its first text. Moves the file's position.

    Args:
        encoding: a UTF-16 encoding to assume where the bytes show none.

    Raises:
        DataError: it cannot be decompressed, or is an archive of several files.
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
    """Reads a file's text from its beginning: UTF-16 as UTF-8, and lines that end in \\n or \\r\\n."""

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
        """Returns at most `size` bytes; no bytes only at the end."""
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
