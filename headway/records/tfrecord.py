"""Shards: TFRecord files whose records hold many rows each.

    shard = Shard(Path("train.tfrecord"), columns, 4096)
    shard.add(batch)                               # any number of batches; each full record is written
    shard.finish()                                 # the row counts of its records, run-length encoded
    read_records(path)                             # the bytes of each record, checked

    grouper = RowGrouper(4096)
    for rows, sizes in grouper.add(batch): ...     # a batch of whole records, and the number of rows of each
    for rows, sizes in grouper.finish(): ...       # the rows that are left at the end of a range

For each record, a file holds the length, the length's masked crc32c, the data and the data's masked crc32c, as TensorFlow does
(tensorflow/core/lib/io/record_writer.h). A record has a fixed number of rows, or fewer if their cells are large. Where a record
ends depends on its rows and the earlier rows of the range, a part of the input files, never on how the rows came in batches.

With a group column, no record cuts a group: a run of successive rows with one value in that column. A record then ends with a
group, at or before the row at which it would end without groups. A group that is larger than a record becomes a record of its
own. A row whose group is null is a group by itself. A group that the end of a range cuts counts as two groups.
"""

import contextlib
import gzip
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Self

import google_crc32c
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.errors import DataError
from headway.records.encode import encode_records, packed
from headway.schema.columns import Column, named_for
from headway.tabular.list_arrays import as_batch, cell_bytes, run_starts
from headway.tabular.splits import column_hash

HEADER, _LENGTH, _CRC = struct.Struct("<QI"), struct.Struct("<Q"), struct.Struct("<I")
CRC_BYTES = _CRC.size
_MOST = 1 << 31
"""The largest length of a record in bytes. A larger length counts as damage, since no protobuf message is that long."""
_FIX = "check that it is a TFRecord file; if it is a shard in the store, delete it and run again"


def masked_crc32c(data: bytes) -> int:
    """Returns the masked crc32c of some data, the checksum of TFRecord files."""
    crc = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def frame(record: bytes) -> bytes:
    """Returns a record as framed in a TFRecord file: its length, the record, and a checksum after each of the two."""
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
        # buffered: a raw file may write a part of what it is given and say so only in its return value
        self._file = path.open("wb", buffering=1 << 16)

    def __enter__(self) -> Self:
        return self

    def write_groups(self, records: Iterable[Sequence[bytes | memoryview]], rows: Sequence[int]) -> None:
        """Append records, each given as pieces to be joined. `rows` holds each record's row count. OSError for a full disk."""
        for pieces in records:
            record = b"".join(pieces)
            size = _LENGTH.pack(len(record))
            self._append(size + _CRC.pack(masked_crc32c(size)))
            self._append(record)
            self._append(_CRC.pack(masked_crc32c(record)))
        self.rows.extend(rows)

    def write_many(self, records: Sequence[bytes]) -> None:
        """Append records of one row each; OSError when the disk is full."""
        self._append(b"".join(map(frame, records)))
        self.rows.extend([1] * len(records))

    def _append(self, data: bytes) -> None:
        self._file.write(data)
        self.bytes += len(data)

    def close(self) -> None:
        """Flush and close the file; does nothing when called again."""
        self._file.close()

    def __exit__(self, *exc: object) -> None:
        self.close()


def read_records(path: Path) -> Iterator[bytes]:
    """Yields the records of a TFRecord file, plain or gzip, after a check of their checksums.

    Raises:
        DataError: the file cannot be opened, or is damaged; it names the file and, unless gzip is broken, the record's place.
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
    """Yields the offset and the bytes of every record of an open file, after a check of the record's checksums.

    Args:
        at: the offset in bytes at which the open file is now.
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


# --- how rows are cut into records

RECORD_BYTES = 1 << 20
"""The most bytes that a record of several rows takes in memory, approximately. So a large image is a record of its own, and
thousands of rows of numbers share a record."""
COLUMN_BYTES = 2 << 10
"""The bytes per column that a record of a very wide table may take. In smaller records, the column names would take most."""
GROUP_BYTES = 1 << 29
"""The most bytes that a group of rows may take in memory. One record holds all of a group, and 2 GiB could not be read back."""
_CODE = 2
"""The approximate number of bytes that one code of a dictionary column takes in a record."""


Group = tuple[pa.RecordBatch, list[int]]
"""The rows of one or more whole records, and the number of rows of each of these records."""


def group_starts(
    column: pa.Array, hashes: NDArray[np.uint64] | None = None, before: np.uint64 | None = None
) -> NDArray[np.int64]:
    """Returns the index of each row at which a group begins, int64, ascending. A group is one null or a run of one value.

    Args:
        column: the group column, of scalars.
        hashes: the `column_hash` of the column; None: it is computed.
        before: the hash of the row before these rows; None: no row came before, so the first row begins a group.
    """
    hashes = column_hash(column) if hashes is None else hashes
    begins = run_starts(hashes)
    if before is not None and len(hashes):
        begins[0] = hashes[0] != before
    if column.null_count:
        begins |= column.is_null().to_numpy(zero_copy_only=False)
    return np.flatnonzero(begins)


class RowGrouper:
    """Cuts batches into records of `rows` rows, or fewer if `bytes` (None: about 1 MiB) are full. The last may be shorter.

    Args:
        group: the group column: no record cuts a run of rows with one value in it. None: rows have no groups.
        bound: the most bytes that one group may take.
    """

    def __init__(self, rows: int, group: str | None = None, bytes: int | None = None, bound: int = GROUP_BYTES):
        self._rows, self._group, self._most, self._bound = rows, group, bytes, bound
        self._waiting: list[pa.RecordBatch] = []  # rows of the record at hand
        self._count = 0
        self._starts = np.zeros(0, np.int64)  # of the groups among them
        self._ends = np.zeros(0, np.int64)  # what they take, summed up
        self._last: np.uint64 | None = None

    def add(self, batch: pa.RecordBatch) -> Iterator[Group]:
        """Add rows, and yield the records that are complete.

        Raises:
            DataError: a group takes more than `bound` bytes.
        """
        rows = batch.num_rows
        if not rows:
            return
        starts = self._starts
        if self._group is not None:
            column = batch.column(self._group)
            hashes = column_hash(column)
            starts = np.append(starts, self._count + group_starts(column, hashes, self._last))
            self._last = hashes[-1]
        sizes = row_bytes(batch)
        ends = np.arange(1, rows + 1) * sizes if isinstance(sizes, int) else np.cumsum(sizes)
        if self._count:
            ends = np.append(self._ends, self._ends[-1] + ends)
        cuts = self._cuts(batch, starts, ends)
        carry, self._count = self._count, self._count + rows
        if not cuts and self._group is not None and ends[-1] > self._bound:
            name = column[rows - 1].as_py()
            raise DataError(
                f"the group {name!r} takes more than {self._bound >> 20:,} MiB, and one record must hold it",
                where=f"column {self._group!r}",
                fix="use a group column whose values fewer rows share",
            )
        if not cuts:
            self._waiting.append(batch)
            self._starts, self._ends = starts, ends
            return
        # records that begin among the rows of earlier batches
        across = next((number for number, cut in enumerate(cuts) if cut >= carry), len(cuts) - 1) + 1 if carry else 0
        at = 0
        if across:
            at = max(cuts[across - 1] - carry, 0)
            whole = one_batch([*self._waiting, batch.slice(0, at)] if at else self._waiting)
            if cuts[across - 1] < carry:  # and so does the one after them
                self._waiting = [whole.slice(cuts[across - 1])]
                whole = whole.slice(0, cuts[across - 1])
            else:
                self._waiting = []
            yield whole, np.diff(cuts[:across], prepend=0).tolist()
        if across < len(cuts):
            yield batch.slice(at, cuts[-1] - carry - at), np.diff([carry + at, *cuts[across:]]).tolist()
            at = cuts[-1] - carry
        if at < rows:
            self._waiting.append(copied(batch.slice(at), rows))
        begin = cuts[-1]
        self._starts = starts[np.searchsorted(starts, begin) :] - begin
        self._ends = ends[begin:] - (ends[begin - 1] if begin else 0)
        self._count -= begin

    def _cuts(self, batch: pa.RecordBatch, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> list[int]:
        """Returns the row at which each complete record ends, counted from the first waiting row."""
        most = self._most or max(RECORD_BYTES, COLUMN_BYTES * batch.num_columns)
        cuts: list[int] = []
        begin = before = 0
        while True:
            cut = begin + self._rows
            if cut > len(ends) or ends[cut - 1] - before > most:
                cut = max(int(np.searchsorted(ends, before + most, side="right")), begin + 1)
                if cut >= len(ends):  # there may be room for more
                    return cuts
            if self._group is not None:
                place = int(np.searchsorted(starts, cut, side="right")) - 1
                if starts[place] <= begin:  # a group that is larger than a record
                    place += 1
                if cut >= len(ends) or place == len(starts):  # the last group may go on
                    return cuts
                cut = int(starts[place])
            cuts.append(cut)
            begin, before = cut, ends[cut - 1]

    def finish(self) -> Iterator[Group]:
        if self._waiting:
            whole = one_batch(self._waiting)
            self._waiting, self._count = [], 0
            yield whole, [whole.num_rows]


def grouper(rows: int, columns: Sequence[Column]) -> RowGrouper:
    """Returns a RowGrouper for rows of these columns, with records of `rows` rows and their group column, if any."""
    return RowGrouper(rows, named_for(columns, "group"))


def copied(piece: pa.RecordBatch, of: int) -> pa.RecordBatch:
    """Returns a copy of a slice, so that its batch of `of` rows can be freed. A slice of at least half of them is not copied."""
    if 2 * piece.num_rows >= of:
        return piece
    return piece.take(pa.array(np.arange(piece.num_rows)))


def row_bytes(batch: pa.RecordBatch) -> int | NDArray[np.int64]:
    """Returns the approximate bytes that each row takes in a record, int64 [rows]; a single int if all rows take equally many."""
    fixed = 0
    varying: NDArray[np.int64] | None = None
    for array in batch.columns:
        size = _CODE if pa.types.is_dictionary(array.type) else cell_bytes(array, _CODE)
        if isinstance(size, int):
            fixed += size
        else:
            varying = size if varying is None else varying + size
    return fixed if varying is None else varying + fixed


def one_batch(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Returns the concatenation of batches of one schema, with one dictionary per column."""
    if len(batches) == 1:
        return batches[0]
    return as_batch(pa.Table.from_batches(batches).unify_dictionaries())


def cut_between_groups(table: pa.Table, columns: Sequence[Column], shards: int) -> list[pa.Table]:
    """Returns a table cut into at most `shards` non-empty tables of about equal length. No group (see `group_starts`) is cut."""
    length = max(1, -(-table.num_rows // shards))
    cuts = np.arange(0, table.num_rows, length)
    if group := named_for(columns, "group"):
        starts = group_starts(table.column(group).combine_chunks())
        cuts = np.unique(starts[np.searchsorted(starts, cuts, side="right") - 1]) if table.num_rows else cuts
    ends = np.append(cuts[1:], table.num_rows)
    return [table.slice(first, end - first).combine_chunks() for first, end in zip(cuts, ends, strict=False)]


class Shard(ShardWriter):
    """Writes batches of rows to one shard. Methods raise OSError for a full disk, and DataError for a group that is too large."""

    def __init__(self, path: Path, columns: Sequence[Column], rows_per_record: int):
        super().__init__(path)
        self._columns = columns
        self._grouper = grouper(rows_per_record, columns)

    def add(self, batch: pa.RecordBatch) -> None:
        self._records(self._grouper.add(batch))

    def _records(self, groups: Iterator[Group]) -> None:
        for batch, sizes in groups:
            self.write_groups(encode_records(batch, sizes, self._columns), sizes)

    def finish(self) -> list[list[int]]:
        """Write the remaining rows, and close the file. Returns all records' row counts, run-length encoded (`packed`)."""
        self._records(self._grouper.finish())
        self.close()
        return packed(self.rows)
