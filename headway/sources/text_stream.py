"""Text that is read as a stream from its beginning: compressed, in UTF-16, or with line ends of its own.

    form, head = stream_form(file, path)    # form.plain: lines of bytes, which can be cut anywhere
    stream = TextStream(file, form, path)
    stream.read(1 << 20)                    # UTF-8; lines end in \\n

Compressed by gzip, bzip2 or zstd, or the one file of a zip archive. UTF-16 is known by its byte order mark, or by its zeros.
"""

from __future__ import annotations

import codecs
import re
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headway.errors import DataError
from headway.messages import some

_HEAD = 1 << 16
_GZIP = b"\x1f\x8b"
_COMPRESSIONS = {
    _GZIP: "gzip",
    b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
}
_ARROW = {"gzip": "gzip", "bzip2": "bz2", "zstd": "zstd"}
_LETTERS = 16
"""Letters of ASCII at the beginning that tell UTF-16 without a mark."""
_WORKBOOK = "[Content_Types].xml"
_DOUBLED = re.compile(rb"\r+\n")
LONGEST_LINE = 128 << 20
"""Of any text: memory for it is taken before a row is cut at `source.max_cell_bytes`."""
_HIDDEN = re.compile(r"^__MACOSX/|(^|/)\.[^./]")


@dataclass(frozen=True)
class StreamForm:
    """What stands between the bytes of a file and its lines."""

    compression: str | None = None
    encoding: str | None = None
    """utf-16, utf-16-le or utf-16-be; None: as the bytes are."""
    line_ends: bytes | None = None
    r"""\r, or \r\r\n; None: \n or \r\n."""

    @property
    def plain(self) -> bool:
        return self == StreamForm()


def too_long(path: str, line: int) -> DataError:
    """The error for a line of more than LONGEST_LINE bytes, numbered from 1."""
    fix = "check that it is text of one row per line; large values can be written as Parquet"
    return DataError(f"line {line:,} has more than {LONGEST_LINE >> 20} MiB", where=path, fix=fix)


def is_wide(encoding: str) -> bool:
    """Whether an encoding takes two bytes for every letter, so that lines cannot be found in its bytes."""
    return encoding.startswith("utf-16")


def stream_form(file: Any, path: str, encoding: str | None = None) -> tuple[StreamForm, bytes]:
    """(the form of an open file, the beginning of its text). The file is then read up to some place.

    Args:
        encoding: taken where the bytes show none.

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
    """The text of a file from its beginning, as UTF-8 with line ends that are \\n or \\r\\n."""

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
        """At most `size` bytes; none at the end alone."""
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
