"""TFRecord files: length, masked crc32c of the length, data, masked crc32c of the data.

    with ShardWriter(path) as shard:
        shard.write_groups([[record]], rows=[4096])
    shard.rows                                # [4096]

The framing is TensorFlow's (tensorflow/core/lib/io/record_writer.h).
"""

import contextlib
import gzip
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Self

import google_crc32c

from headway.errors import DataError
from headway.storage.atomic_io import writing

HEADER, _LENGTH, _CRC = struct.Struct("<QI"), struct.Struct("<Q"), struct.Struct("<I")
CRC_BYTES = _CRC.size
_MOST = 1 << 31
"""The largest length of a record; a larger one is taken for damage, since protobuf has no longer messages."""
_FIX = "check that it is a TFRecord file; if it is a shard in the store, delete it and run again"


def masked_crc32c(data: bytes) -> int:
    """Returns the masked crc32c of some data, the checksum of TFRecord files."""
    crc = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def frame(record: bytes) -> bytes:
    """Returns a record with its length and checksums around it, as it stands in a file."""
    length = _LENGTH.pack(len(record))
    return b"".join((length, _CRC.pack(masked_crc32c(length)), record, _CRC.pack(masked_crc32c(record))))


class ShardWriter:
    """Writes one shard, a TFRecord file.

    Attributes:
        rows: the number of rows of each record so far.
        bytes: the number of bytes written so far.
    """

    def __init__(self, path: Path):
        self.path = path
        self.rows: list[int] = []
        self.bytes = 0
        with writing(path.parent):
            # buffered: a raw file may write a part of what it is given and say so only in its return value
            self._file = path.open("wb", buffering=1 << 16)

    def __enter__(self) -> Self:
        return self

    def write_groups(self, records: Iterable[Sequence[bytes | memoryview]], rows: Sequence[int]) -> None:
        """Append records, each as pieces to be joined; `rows`: the row count of each. StoreError for a full disk."""
        for pieces in records:
            record = b"".join(pieces)
            size = _LENGTH.pack(len(record))
            self._append(size + _CRC.pack(masked_crc32c(size)))
            self._append(record)
            self._append(_CRC.pack(masked_crc32c(record)))
        self.rows.extend(rows)

    def write_many(self, records: Sequence[bytes]) -> None:
        """Append records of one row each; StoreError when the disk is full."""
        self._append(b"".join(map(frame, records)))
        self.rows.extend([1] * len(records))

    def _append(self, data: bytes) -> None:
        with writing(self.path.parent):
            self._file.write(data)
        self.bytes += len(data)

    def close(self) -> None:
        """Flush and close the file; does nothing when called again."""
        with writing(self.path.parent):
            self._file.close()

    def __exit__(self, *exc: object) -> None:
        self.close()


def read_records(path: Path) -> Iterator[bytes]:
    """Yields the records of a TFRecord file, plain or gzip, after a check of their checksums.

    Raises:
        DataError: naming the file and the byte at which it stops being a TFRecord file.
    """
    try:
        file = path.open("rb")
        head = file.read(HEADER.size)
        file.seek(0)
    except OSError as error:
        raise DataError(
            f"cannot be read: {(error.strerror or str(error)).lower()}", where=str(path), fix=_FIX
        ) from None
    # a plain file's first bytes are a length, whose checksum holds; gzip's are not
    plain = len(head) == HEADER.size and masked_crc32c(head[:8]) == HEADER.unpack(head)[1]
    zipped = head.startswith(b"\x1f\x8b") and not plain
    with file, gzip.GzipFile(fileobj=file) if zipped else contextlib.nullcontext(file) as source:
        try:
            for _, record in framed(source):
                yield record
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataError(f"not a whole gzip file: {error}", where=str(path), fix=_FIX) from None
        except DamagedRecord as error:
            raise DataError(f"{error.what} (record at byte {error.at})", where=str(path), fix=_FIX) from None


class DamagedRecord(Exception):
    """Raised for a damaged TFRecord file, with the problem and the offset of the damaged record."""

    def __init__(self, what: str, at: int):
        super().__init__(what, at)
        self.what, self.at = what, at


def framed(file: IO[bytes] | gzip.GzipFile, at: int = 0, end: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Yields (offset, record) for every record of an open file, after a check of its checksums.

    Args:
        at: the offset at which the file is now.
        end: the offset at which the last record ends; None: the file's end.

    Raises:
        DamagedRecord: a record is damaged or cut off.
    """
    while (end is None or at < end) and (header := file.read(HEADER.size)):
        if len(header) < HEADER.size:
            raise DamagedRecord("the file is cut off in a record's length", at)
        size, crc = HEADER.unpack(header)
        if masked_crc32c(header[:8]) != crc or size > _MOST:
            raise DamagedRecord("the checksum of a record's length does not hold", at)
        body = file.read(size + CRC_BYTES)
        if len(body) < size + CRC_BYTES:
            raise DamagedRecord("the file is cut off in a record", at)
        record = body[:size]
        if masked_crc32c(record) != _CRC.unpack_from(body, size)[0]:
            raise DamagedRecord("the checksum of a record does not hold", at)
        yield at, record
        at += HEADER.size + len(body)
    if end is not None and at < end:
        raise DamagedRecord(f"the file ends before byte {end}", at)
