"""Arrow IPC files and streams (.arrow, .feather), read batch by batch on the calling thread.

A range of a file is a run of its batches. A stream has no list of its batches, so it is one range.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from headway.errors import DataError
from headway.sources.base import (
    BATCH_BYTES,
    BATCH_ROWS,
    Chunk,
    InputFile,
    Range,
    Source,
    check_columns,
    damaged_file_error,
    first_rows,
    leaves,
    pick,
    row_group_runs,
    rows_of_range,
    wrong_format_error,
)
from headway.sources.config import FORMATS
from headway.sources.sample import Sample
from headway.storage import filesystem as storage

_MAGIC, _FEATHER_1 = b"ARROW1", b"FEA1"


class ArrowSource(Source):
    """Reads Arrow files. A range is the batches [start, end) of a file, or the whole of a file in the stream format."""

    def names(self, file: InputFile) -> list[str]:
        with _open(file.path) as reader:
            return list(leaves(reader.schema, file.path))

    def ranges(self, files: Sequence[InputFile]) -> list[Range]:
        ranges: list[Range] = []
        for number, file in enumerate(files):
            with _open(file.path) as reader:
                most = rows_of_range(FORMATS["arrow"].range_size, len(reader.schema))
            with _open(file.path, columns=[]) as reader:
                if isinstance(reader, pa.RecordBatchStreamReader):
                    ranges.append(Range(len(ranges), file.path, number, 0, 0, {"stream": True}))
                    continue
                counts = [_batch(reader, i, file.path).num_rows for i in range(reader.num_record_batches)]
                for start, end, _ in row_group_runs(counts, most):
                    ranges.append(Range(len(ranges), file.path, number, start, end))
        return ranges

    def read(self, piece: Range, columns: Sequence[str], types: Mapping[str, pa.DataType]) -> Iterator[Chunk]:
        with _open(piece.path) as reader:
            ways = leaves(reader.schema, piece.path)
        check_columns(columns, ways, piece.path)
        first = 0
        with _open(piece.path, columns=[ways[name][0] for name in columns]) as reader:
            for batch in _batches(reader, piece.start, piece.end, piece.path):
                at_once = _rows_at_once(batch)
                for start in range(0, batch.num_rows, at_once):
                    part = pick(batch.slice(start, at_once), ways, columns)
                    yield Chunk(part, first)
                    first += part.num_rows

    def sample(self, files: Sequence[InputFile], rows: int) -> Sample:
        @contextlib.contextmanager
        def opened(path: str) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
            with _open(path) as reader:
                end = 0 if isinstance(reader, pa.RecordBatchStreamReader) else reader.num_record_batches
                yield rows, _batches(reader, 0, end, path)

        return first_rows(files, rows, opened)


@contextlib.contextmanager
def _open(
    path: str, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatchFileReader | pa.RecordBatchStreamReader]:
    """Yields the file's reader. If `columns` are given, the reader reads only these."""
    with _source(path) as file:
        with storage.reading(path):
            head = file.read(8)
            file.seek(0)
        if head.startswith(_FEATHER_1):
            raise DataError("is Feather of version 1", where=path, fix="write it again with pyarrow.feather, version 2")
        open_reader = pa.ipc.open_file if head.startswith(_MAGIC) else pa.ipc.open_stream
        try:
            reader = open_reader(file)
            if columns is not None:
                fields = sorted({reader.schema.get_field_index(name) for name in columns}) or [0]
                file.seek(0)
                options = pa.ipc.IpcReadOptions(included_fields=fields[: len(reader.schema)], use_threads=False)
                reader = open_reader(file, options=options)
        except (OSError, pa.ArrowException) as error:
            at = "its footer" if open_reader is pa.ipc.open_file else "byte 0"
            raise wrong_format_error(path, "arrow") or damaged_file_error("Arrow", path, error, at) from None
        yield reader


def _source(path: str) -> pa.NativeFile:
    """Opens a file. A local file is memory-mapped, so that columns that are not read cost nothing."""
    if storage.is_remote(path):
        return storage.open_file(path)
    with storage.reading(path):
        return pa.memory_map(path)


def _batches(
    reader: pa.RecordBatchFileReader | pa.RecordBatchStreamReader, start: int, end: int, path: str
) -> Iterator[pa.RecordBatch]:
    if not isinstance(reader, pa.RecordBatchStreamReader):
        for i in range(start, end):
            yield _batch(reader, i, path)
        return
    number = 0
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except (OSError, pa.ArrowException) as error:
            raise damaged_file_error("Arrow", path, error, f"batch {number} of its stream") from None
        number += 1
        yield batch


def _batch(reader: pa.RecordBatchFileReader, number: int, path: str) -> pa.RecordBatch:
    try:
        batch = reader.get_batch(number)
        batch.validate()
        return batch
    except (OSError, pa.ArrowException) as error:
        raise damaged_file_error("Arrow", path, error, f"batch {number}") from None


def _rows_at_once(batch: pa.RecordBatch) -> int:
    """Returns the rows per chunk that a batch is cut into: BATCH_ROWS, or fewer if the rows are wide."""
    size = batch.get_total_buffer_size()
    return max(1, min(BATCH_ROWS, BATCH_BYTES * batch.num_rows // max(1, size)))
