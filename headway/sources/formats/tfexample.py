"""TFRecord files of classic tf.train.Examples, one row per record, as other tools write them; gzip too.

A feature that is absent is null; an empty list is an empty list, and null in a column of one value per row, which one is of
which at most one row in a hundred of a sample has several values, or none. Every checksum is checked.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from headway.errors import DataError
from headway.records.example import SEQUENCE
from headway.records.tfrecord import CRC_BYTES, HEADER, NotWhole, framed, masked
from headway.sources.base import Chunk, InputFile, Malformed, Range, sampled
from headway.sources.config import FORMATS, SourceConfig
from headway.sources.formats.tfexample_columns import ExampleBatch
from headway.sources.sample import ONE_IN, Sample
from headway.sources.sniff import not_a
from headway.sources.type_inference import as_numbers, not_one, with_several
from headway.storage import filesystem as storage
from headway.tabular.list_arrays import is_list, value_type
from headway.tabular.quarantine import CUT, text_of

_BATCH_RECORDS, _BATCH_BYTES, _READ_BYTES, _WINDOW = 8192, 16 << 20, 1 << 20, 1 << 18
_NAMES_ROWS = 1000
_FIX = "fetch or write the file again"


class ExamplesSource:
    """Reads TFRecord files; a range is bytes [start, end) of a file, cut between records, or a whole gzip file."""

    def __init__(self, config: SourceConfig):
        """Make a reader; nothing of the config matters to it."""

    def names(self, file: InputFile) -> list[str]:
        """The features of the first records."""
        for records in _batches(file.path, 0, None):
            return ExampleBatch.of(records[:_NAMES_ROWS]).names()
        return []

    def ranges(self, files: Sequence[InputFile]) -> list[Range]:
        ranges: list[Range] = []
        for number, file in enumerate(files):
            start = 0
            for end in [file.bytes] if _is_gzip(file.path) else self._cuts(file):
                ranges.append(Range(len(ranges), file.path, number, start, end))
                start = end
        return ranges

    def _cuts(self, file: InputFile) -> list[int]:
        cuts = _hops(file, FORMATS["examples"].range_size)
        if cuts is None:  # something is wrong: read every record, to say where
            for _ in _batches(file.path, 0, None):
                pass
        return cuts or []

    def read(self, piece: Range, columns: Sequence[str], types: Mapping[str, pa.DataType]) -> Iterator[Chunk]:
        first = 0
        for records in _batches(piece.path, piece.start, piece.end):
            batch = ExampleBatch.of(records)
            arrays, bad = [], {row: Malformed(first + row, None, why) for row, why in batch.broken.items()}
            for name in columns:
                kind = types.get(name)
                array, misfits = batch.column(name, several=None if kind is None else is_list(kind))
                if pa.types.is_null(array.type) and kind is not None:
                    array = pa.nulls(batch.rows, value_type(kind))
                arrays.append(array)
                for row, why in misfits.items():
                    cell_text = text_of(batch.column(name, several=None)[0].slice(row, 1).to_pylist()[0])[:CUT]
                    bad.setdefault(row, Malformed(first + row, cell_text, why, name))
            whole = pa.RecordBatch.from_arrays(arrays, names=list(columns))
            if bad:
                good = pa.array([row not in bad for row in range(batch.rows)], pa.bool_())
                rows = [first + row for row in range(batch.rows) if row not in bad]
                yield Chunk(whole.filter(good), first, rows, tuple(bad[row] for row in sorted(bad)))
            else:
                yield Chunk(whole, first)
            first += batch.rows

    def prefix(self, files: Sequence[InputFile], rows: int) -> Sample:
        batches: list[ExampleBatch] = []
        numbers: dict[str, bool] = {}
        counts: dict[str, Counter[int]] = {}
        count = 0
        for file in files:
            records: list[bytes] = []
            for piece in _batches(file.path, 0, None):
                records += piece
                if len(records) + count >= rows or sum(map(len, records)) > _BATCH_BYTES:
                    break
            if records:
                batch = ExampleBatch.of(records[:rows])
                if SEQUENCE in batch.broken.values():
                    problem = "holds tf.SequenceExamples, whose feature_lists cannot be read"
                    fix = "write each as a tf.Example: the context's features, and each feature list as one list of values"
                    raise DataError(problem, where=file.path, fix=fix)
                for name in batch.names():
                    if (is_number := batch.is_number(name)) is not None:
                        numbers[name] = numbers.get(name, True) and is_number
                    counts.setdefault(name, Counter()).update(batch.counts(name))
                batches.append(batch)
                count += len(records)
            if count >= rows:
                break
        if not batches:
            raise DataError("the files hold no rows", where=files[0].path)
        rare = {name: kinds for name, kinds in counts.items() if not_one(kinds) * ONE_IN <= kinds.total()}
        tables = []
        for batch in batches:
            names = batch.names()
            arrays = [batch.column(name, several=False if name in rare else None)[0] for name in names]
            tables.append(pa.Table.from_arrays(arrays, names=names))
        whole = as_numbers(sampled(_agreed(tables), rows), [name for name, all_of_it in numbers.items() if all_of_it])
        return with_several(whole, rare)


def _agreed(tables: list[pa.Table]) -> list[pa.Table]:
    """Make a column a list in all files where one file shows it as lists."""
    lists = {field.name for table in tables for field in table.schema if is_list(field.type)}
    for i, table in enumerate(tables):
        for place, field in enumerate(table.schema):
            if field.name in lists and not is_list(field.type):
                table = table.set_column(place, field.name, pa.nulls(table.num_rows, pa.list_(field.type)))
        tables[i] = table
    return tables


def _is_gzip(path: str) -> bool:
    with storage.open_file(path) as file, storage.reading(path):
        head = bytes(file.read(HEADER.size))
    plain = len(head) == HEADER.size and masked(head[:8]) == HEADER.unpack(head)[1]
    return head.startswith(b"\x1f\x8b") and not plain


def _hops(file: InputFile, step: int) -> list[int] | None:
    """The ends of ranges, found by reading one record's length after another; None when one is damaged."""
    cuts: list[int] = []
    at, start, base, window = 0, 0, 0, b""
    with storage.open_file(file.path) as handle, storage.reading(file.path):
        while at < file.bytes:
            if at + HEADER.size > base + len(window):
                handle.seek(at)
                base, window = at, bytes(handle.read(_WINDOW))
                if len(window) < HEADER.size:
                    return None
            size, crc = HEADER.unpack_from(window, at - base)
            end = at + HEADER.size + size + CRC_BYTES
            looked_at = not cuts or start == at or end >= file.bytes
            if looked_at and (masked(window[at - base : at - base + 8]) != crc or end > file.bytes):
                return None
            at = end
            if at - start >= step or at == file.bytes:
                cuts.append(at)
                start = at
    return cuts


def _batches(path: str, start: int, end: int | None) -> Iterator[list[bytes]]:
    """Yield the records of a range, some at a time, each checked.

    Raises:
        DataError: naming the file and the byte at which it stops being a TFRecord file.
    """
    zipped = _is_gzip(path)
    at, size, records = start, 0, list[bytes]()
    with storage.open_file(path) as file, storage.reading(path):
        if not zipped:
            file.seek(start)
        source = pa.CompressedInputStream(file, "gzip") if zipped else file
        try:
            stream = io.BufferedReader(source, _READ_BYTES)
            for at, record in framed(stream, start, None if zipped else end):  # noqa: B007 - named where it is damaged
                if len(records) >= _BATCH_RECORDS or size >= _BATCH_BYTES:
                    yield records
                    records, size = [], 0
                records.append(record)
                size += len(record)
        except NotWhole as error:
            raise _damaged(path, error.at, error.what) from None
        except (OSError, pa.ArrowException) as error:
            if not zipped:
                raise
            raise _damaged(path, at, f"not a whole gzip file: {str(error).splitlines()[0]}") from None
    if records:
        yield records


def _damaged(path: str, at: int, what: str) -> DataError:
    if not at and (other := not_a(path, "examples")):
        return other
    fix = "not a TFRecord file? check source.format and the file" if not at else _FIX
    return DataError(f"{what} (record at byte {at})", where=path, fix=fix)
