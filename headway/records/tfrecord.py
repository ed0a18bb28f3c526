"""TFRecord files: length, masked crc32c of the length, data, masked crc32c of the data.

    with ShardWriter(path) as shard:
        shard.write(record, rows=4096)
    shard.rows                                # [4096]

The framing is TensorFlow's (tensorflow/core/lib/io/record_writer.h).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import google_crc32c

from headway.errors import DataError

_HEADER = struct.Struct("<QI")
_MOST = 1 << 31
"""A record longer than this is taken for a damaged length."""


def masked(data: bytes) -> int:
    """TFRecord's masked crc32c."""
    crc = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def frame(record: bytes) -> bytes:
    """A record as it stands in a file."""
    length = struct.pack("<Q", len(record))
    return b"".join((length, struct.pack("<I", masked(length)), record, struct.pack("<I", masked(record))))


class ShardWriter:
    """Writes one shard; `rows` lists the rows of each record."""

    def __init__(self, path: Path):
        self.path = path
        self.rows: list[int] = []
        self._file = path.open("wb", buffering=0)

    def write(self, record: bytes, rows: int) -> None:
        self._file.write(frame(record))
        self.rows.append(rows)

    def write_many(self, records: list[bytes]) -> None:
        """Classic records, one row each."""
        self._file.write(b"".join(map(frame, records)))
        self.rows.extend([1] * len(records))

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def read_records(path: Path) -> Iterator[bytes]:
    """The records of a shard, each checked.

    Raises:
        DataError: naming the file and the byte at which it stops being a TFRecord file.
    """
    at = 0
    with path.open("rb") as file:
        while header := file.read(_HEADER.size):
            if len(header) < _HEADER.size:
                raise _damaged(path, at, "the file is cut off in a record's length")
            size, crc = _HEADER.unpack(header)
            if masked(header[:8]) != crc or size > _MOST:
                raise _damaged(path, at, "the checksum of a record's length does not hold")
            body = file.read(size + 4)
            if len(body) < size + 4:
                raise _damaged(path, at, "the file is cut off in a record")
            record = body[:size]
            if masked(record) != struct.unpack("<I", body[size:])[0]:
                raise _damaged(path, at, "the checksum of a record does not hold")
            yield record
            at += _HEADER.size + size + 4


def _damaged(path: Path, at: int, what: str) -> DataError:
    return DataError(
        f"{what} (record at byte {at})", where=str(path), fix="delete the file: the next run notices and makes it again"
    )
