"""Text files, plain or read as a stream: cuts them into ranges, and reads blocks of whole lines.

    text = TextFile(path)
    text.line(0)                                    # (0, b"a,b\\n")
    for at, data in text.blocks(0, None, 16 << 20, last_line_end): ...

What has to be read from its beginning (`text_stream`: compressed, UTF-16, ...) is never held whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from headway.errors import DataError
from headway.sources.sniff import another
from headway.sources.text_stream import LONGEST_LINE, TextStream, stream_form, too_long
from headway.storage import filesystem

BOM = b"\xef\xbb\xbf"
_PIECE, _HEAD = 1 << 16, 512
_TAIL = 16 << 10
_LONGEST = 64 << 20
"""Of a header, or of what is read at a time where no record ends."""
SAMPLE_FILES, SAMPLE_PIECES, SAMPLE_BYTES = 8, 8, 1 << 18
"""What a schema is inferred from: so many pieces of each of the first files."""


class TextFile:
    """One file of lines.

    Raises:
        DataError: from every method: the file cannot be read, is cut off, or holds no text.
    """

    def __init__(
        self,
        path: str,
        encoding: str | None = None,
    ):
        """
        Args:
            encoding: UTF-16 that the file is in, where its bytes do not show it; text in another one passes as its bytes.
        """
        self.path = path
        with filesystem.open_file(path) as file, filesystem.reading(path):
            self._form, self.head = stream_form(file, path, encoding)
        self.streamed = not self._form.plain
        """Whether it is read from its beginning: offsets then count what is read, not the file's bytes."""
        self.decoded = self._form.encoding is not None
        """Whether what is read was turned to UTF-8."""
        if self._form.compression is not None and not self.head:
            raise DataError("the file is empty", where=self.path, fix="remove it, or write it again")
        if other := another(self.head[:_HEAD], "csv"):
            raise DataError(f"is {other[0]}, not text", where=self.path, fix=other[1])
        if b"\0\0" in self.head[:_HEAD]:
            raise DataError("is not text: it holds zero bytes", where=self.path, fix="check source.format and the file")

    def line(self, number: int, quote: bytes = b"", escape: bytes = b"") -> tuple[int, bytes]:
        """(offset, data) of a line, from 0, up to its line end outside quotes and not escaped, which is included; nothing where
        there is no such line. The lines before it are cut at any line end."""
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
        """The end of the line that contains byte `offset` of a plain file; the file's size if it has none."""
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
        """Exactly the bytes [start, end) of a plain file."""
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
        """(offset, data) of pieces of about `size` bytes, each cut where `last_end` says; the last one may lack a line
        end. A stream is always read to its end."""
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
        """Yield the `blocks` of a plain file cut at line ends: as few as `size` allows, all of about one size.

        Each is read in one go: megabytes copied cost as much as read.
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
        """The number of line ends before a byte, counted anew: for errors alone."""
        with filesystem.open_file(self.path) as file, filesystem.reading(self.path):
            source: Any = TextStream(file, self._form, self.path) if self.streamed else file
            lines = 0
            while offset > 0 and (data := bytes(source.read(min(offset, _PIECE)))):
                lines, offset = lines + data.count(b"\n"), offset - len(data)
            return lines

    def _stop(self, file: pa.NativeFile, start: int, stop: int, end: int) -> int:
        """The last line end in [start, stop); if there is none, the first after it; else `end`."""
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
    """The end of the last whole line; 0 when there is none."""
    return data.rfind(b"\n") + 1


def row_offsets(data: bytes, rows: list[int]) -> list[int]:
    """The offsets of the lines of these numbers; empty lines, which are not rows, do not count."""
    array = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(array == 10)
    starts = np.concatenate([[0], ends + 1])
    stops = np.append(ends, len(data))
    filled = stops > starts
    filled &= ~((stops - starts == 1) & (array[np.minimum(starts, len(data) - 1)] == 13))
    starts = starts[filled]
    return [int(starts[row]) if row < len(starts) else -1 for row in rows]


def cuts(text: TextFile, start: int, size: int, step: int) -> Iterator[tuple[int, int]]:
    """(start, end) of a plain file's ranges: each ends at the first line end at or after `step` bytes."""
    while start < size:
        end = min(text.line_end(min(start + step, size)), size)
        if end <= start:
            raise DataError(f"ends at byte {start}, not at {size}", where=text.path)
        yield start, end
        start = end


def sample(
    text: TextFile, start: int, size: int, last_end: Callable[[bytes], int], *, plain: bool
) -> Iterator[tuple[int, bytes]]:
    """(offset, whole lines) to infer a schema from; from the beginning of a file that cannot be cut at line ends.

    Args:
        last_end: as of `TextFile.blocks`.
        plain: whether it can be cut.
    """
    if plain:
        yield from _spread(text, start, size)
        return
    for at, data in text.blocks(0, None, SAMPLE_PIECES * SAMPLE_BYTES + start, last_end):
        if at + len(data) > start:
            yield max(at, start), data[max(start - at, 0) :]
            return


def _spread(text: TextFile, start: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Pieces from places spread over a plain file, as one sorted by a column shows one value at its beginning; a small
    file whole."""
    length = size - start
    count = SAMPLE_PIECES if length > SAMPLE_PIECES * SAMPLE_BYTES else 1
    done = start
    for i in range(count):
        begin = text.line_end(start + length * i // count) if i else start
        if done <= begin < size:  # a line may be longer than the way to the next place
            done = text.line_end(min(begin + SAMPLE_BYTES, size)) if count > 1 else size
            yield begin, text.part(begin, done)
