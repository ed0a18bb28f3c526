"""TFRecord files of classic tf.train.Examples, one row per record, as other tools write them; gzip too.

An absent feature is null. An empty list is null in a column of one value per row, and an empty list in others. A column
has one value per row if at most one sampled row in a hundred has several values or none. The checksum of each record is checked.

A batch is parsed with NumPy, without protobuf: first the first features of all records together, then the second ones, and so on.
A record with an unusual layout (unpacked numbers, unknown fields) is first rewritten in the usual layout.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headway.errors import DataError
from headway.records import wire
from headway.records.decode import SEQUENCE, usual_form, varints
from headway.records.tfrecord import CRC_BYTES, HEADER, DamagedRecord, framed, masked_crc32c
from headway.sources.base import Chunk, InputFile, Malformed, NoRows, Range, Source, sampled, wrong_format_error
from headway.sources.config import FORMATS
from headway.sources.sample import ONE_IN, Sample
from headway.sources.type_inference import as_numbers, note_several_values
from headway.storage import filesystem as storage
from headway.tabular.list_arrays import is_list, value_type
from headway.tabular.quarantine import CUT, text_of

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Misfits = dict[int, str]
"""The reason, by row, why its value does not fit the column."""
_BYTES, _FLOATS, _INTS = wire.BYTES[0], wire.FLOATS[0], wire.INTS[0]
_ONE, _TWO = 0x0A, 0x12
_PAD = 16
_LONG = 256
"""The mean length from which slices are joined one by one, since an index for each byte would cost more."""


class ExampleBatch:
    """The parsed features of a batch of records: the row, the name, and the kind and offset of the list of each feature."""

    def __init__(self, data: Bytes, rows: int, parts: list[tuple[Ints, ...]], broken: dict[int, str]):
        self.rows, self.broken = rows, broken
        """The number of rows, and the reason for each row that is no Example."""
        self._data = data
        row, key, key_size, tag, body, size = (
            (np.concatenate(part) for part in zip(*parts, strict=True)) if parts else (np.zeros(0, np.int64),) * 6
        )
        self._row, self._tag, self._body, self._size = row, tag, body, size
        keys = _binary(data, key, key_size).dictionary_encode()
        self._codes = keys.indices.to_numpy()
        self._keys = [name.decode("utf-8", "backslashreplace") for name in keys.dictionary.to_pylist()]

    @classmethod
    def of(cls, records: Sequence[bytes]) -> ExampleBatch:
        records, broken = list(records), dict[int, str]()
        for _ in range(2):
            data = np.frombuffer(b"".join([*records, bytes(_PAD)]), np.uint8)
            ends = np.cumsum([len(record) for record in records], dtype=np.int64)
            parts, unusual = _walk(data, ends)
            if not len(unusual):
                break
            for row in unusual.tolist():
                try:
                    records[row] = usual_form(records[row])
                except ValueError as error:
                    records[row], broken[row] = b"", str(error)
        return cls(data, len(records), parts, broken)

    def names(self) -> list[str]:
        return sorted(set(self._keys))

    def is_number(self, name: str) -> bool | None:
        """Returns whether the feature holds integers or floats in most rows that have the feature; None when no row has it."""
        tags = self._tag[self._codes == self._keys.index(name)]
        tags = tags[tags != 0]
        return bool((tags != _BYTES).mean() > 0.5) if len(tags) else None

    def counts(self, name: str) -> Counter[int]:
        """Returns {number of values: number of rows}. Rows without the feature or with a damaged list are left out."""
        array, _ = self.column(name, several=True)
        if pa.types.is_null(array.type):
            return Counter()
        return Counter(pc.list_value_length(array).drop_null().to_pylist())

    def column(self, name: str, *, several: bool | None) -> tuple[pa.Array, Misfits]:
        """Returns a feature as a column of lists, or of one value per row. Null stands for an absent feature, and for a value
        that does not fit.

        Args:
            several: True: lists; False: one value per row; None: lists if some row with the feature does not have exactly one.

        Returns:
            The array (int64, float32, binary or lists of one; binary for mixed types; null for no values), and {misfit row: why}.
        """
        place = np.full(self.rows, -1, np.int64)
        if name in self._keys:
            entries = np.flatnonzero(self._codes == self._keys.index(name))
            place[self._row[entries]] = entries  # of a feature that stands twice the last one counts, as in any map
        present = place >= 0
        present[present] = self._tag[place[present]] != 0
        where = place[present]
        tags = np.unique(self._tag[where]).tolist()
        if not tags:
            return pa.nulls(self.rows), {}
        rows = np.flatnonzero(present)
        if len(tags) == 1:
            values, counts, bad = self._values(tags[0], where)
        else:
            values, counts, bad = self._as_text(where)
        misfits = {int(rows[i]): "its list of values is cut off" for i in bad}
        lengths = np.zeros(self.rows, np.int64)
        lengths[rows] = counts
        if bad:
            present[list(misfits)] = False
        if several is None:
            several = bool((counts != 1).any())
        if several:
            offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
            mask = None if present.all() else pa.array(~present)
            return pa.ListArray.from_arrays(pa.array(offsets), values, mask=mask), misfits
        for i in np.flatnonzero(lengths > 1).tolist():
            misfits[i] = f"{lengths[i]} values in a scalar column"
        starts = np.cumsum(lengths) - lengths
        return values.take(pa.array(starts, mask=~(present & (lengths == 1)))), misfits

    def _values(self, tag: int, where: Ints) -> tuple[pa.Array, Ints, list[int]]:
        """Returns the values of features with one kind of list, the number of values per feature, and the damaged features."""
        body, size = self._body[where], self._size[where]
        if tag == _BYTES:
            return _strings(self._data, body, size)
        packed, length, fine = _packed(self._data, body, size)
        if tag == _FLOATS:
            fine &= length % 4 == 0
            length = np.where(fine, length, 0)
            floats = np.frombuffer(_slices(self._data, packed, length), "<f4").astype(np.float32)
            return pa.array(floats), length // 4, np.flatnonzero(~fine).tolist()
        last = self._data[np.where(length > 0, packed + length - 1, 0)]
        fine &= (length == 0) | (last < 0x80)
        for _ in range(2):
            length = np.where(fine, length, 0)
            joined = _slices(self._data, packed, length)
            try:
                ints = varints(joined)
                break
            except ValueError:
                fine &= _are_varints(self._data, packed, length)
        stops = np.concatenate([[0], np.cumsum(np.frombuffer(joined, np.uint8) < 0x80)])
        edges = np.cumsum(length)
        return pa.array(ints), stops[edges] - stops[edges - length], np.flatnonzero(~fine).tolist()

    def _as_text(self, where: Ints) -> tuple[pa.Array, Ints, list[int]]:
        """Does what `_values` does, for features with different kinds of lists. The values are returned as text."""
        texts: list[bytes] = []
        counts, bad = np.zeros(len(where), np.int64), list[int]()
        for i, at in enumerate(where.tolist()):
            values, count, wrong = self._values(int(self._tag[at]), np.array([at]))
            if wrong:
                bad.append(i)
                continue
            counts[i] = count[0]
            texts += [v if isinstance(v, bytes) else str(v).encode() for v in values.to_pylist()]
        return pa.array(texts, pa.binary()), counts, bad


def _walk(data: Bytes, ends: Ints) -> tuple[list[tuple[Ints, ...]], Ints]:
    """Returns the features (row, key offset, key size, tag, body offset, body size), and the rows with an unusual layout."""
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    unusual = np.zeros(len(ends), np.bool_)
    row = np.flatnonzero(ends > starts)
    at, fine = _enter(data, starts[row], ends[row], _ONE, ends[row])
    unusual[row[~fine]] = True
    row, at = row[fine], at[fine]
    parts: list[tuple[Ints, ...]] = []
    while len(row := row[(unread := at < ends[row])]):
        at = at[unread]
        size, item = _varint(data, at + 1)
        stop = item + size
        fine = (data[at] == _ONE) & (size >= 0) & (stop <= ends[row])
        stop = np.where(fine, stop, item)
        key_size, key = _varint(data, item + 1)
        fine &= (data[item] == _ONE) & (key_size >= 0) & (key + key_size <= stop)
        value = np.where(fine, key + key_size, 0)
        empty = value == stop
        inner, right = _enter(data, value, stop, _TWO, stop)
        fine &= empty | right
        tag = np.where(fine & ~empty & (inner < stop), data[np.where(fine, inner, 0)], 0).astype(np.int64)
        body, right = _enter(data, inner, stop, None, stop)
        valid = (tag == _BYTES) | (tag == _FLOATS) | (tag == _INTS)
        fine &= (tag == 0) & (empty | (inner == stop)) | valid & right
        first = data[np.where(fine & (body < stop), body, 0)]
        fine &= (tag == 0) | (body == stop) | (first == _ONE)
        number = fine & ((tag == _FLOATS) | (tag == _INTS)) & (body < stop)
        _, whole = _enter(data, np.where(number, body, 0), stop, _ONE, stop)
        fine &= ~number | whole
        unusual[row[~fine]] = True
        row, at = row[fine], stop[fine]
        parts.append((row, key[fine], key_size[fine], tag[fine], body[fine], np.where(tag > 0, stop - body, 0)[fine]))
    return parts, np.flatnonzero(unusual)


def _enter(data: Bytes, at: Ints, end: Ints, tag: int | None, stop: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """Enters the protobuf field at each offset `at`. Returns where the field's content begins, and whether the field has the tag
    (None: any) and ends at `stop`. If not, the first result is `stop`. Where `at` >= `end`, the results mean nothing."""
    at = np.where(at < end, at, 0)
    size, inner = _varint(data, at + 1)
    fine = (size >= 0) & (inner + size == stop)
    if tag is not None:
        fine &= data[at] == tag
    return np.where(fine, inner, stop), fine


def _varint(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """Returns the varint at each offset (-1 if it has more than 5 bytes), and the offset after each varint."""
    at = np.minimum(at, len(data) - _PAD)
    byte = data[at].astype(np.int64)
    value, at = byte & 0x7F, at + 1
    going = byte > 0x7F
    for shift in (7, 14, 21, 28):
        if not going.any():
            return value, at
        byte = np.where(going, data[np.minimum(at, len(data) - 1)], 0).astype(np.int64)
        value |= (byte & 0x7F) << shift
        at = at + going
        going = byte > 0x7F
    return np.where(going, -1, value), at


def _packed(data: Bytes, body: Ints, size: Ints) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Returns for each list the offset and the number of bytes of its packed numbers, and whether the list is packed at all."""
    not_empty = size > 0
    inner, fine = _enter(data, np.where(not_empty, body, 0), body + size, _ONE, body + size)
    fine |= ~not_empty
    return np.where(not_empty, inner, 0), np.where(not_empty & fine, body + size - inner, 0), fine


def _strings(data: Bytes, body: Ints, size: Ints) -> tuple[pa.Array, Ints, list[int]]:
    """Returns the strings of all lists, the number per list, and the damaged lists. The k-th strings are found together."""
    row, at, end = np.arange(len(body)), body, body + size
    counts, fine = np.zeros(len(body), np.int64), np.ones(len(body), np.bool_)
    places: list[tuple[Ints, Ints, Ints, Ints]] = []
    step = 0
    while len(row := row[(unread := at < end)]):
        at, end = at[unread], end[unread]
        length, inner = _varint(data, at + 1)
        good = (data[at] == _ONE) & (length >= 0) & (inner + length <= end)
        fine[row[~good]] = False
        row, at, end = row[good], (inner + length)[good], end[good]
        counts[row] += 1
        places.append((row, np.full(len(row), step, np.int64), inner[good], length[good]))
        step += 1
    if not places:
        return pa.array([], pa.binary()), counts, []
    rows, steps, starts, lengths = (np.concatenate(part) for part in zip(*places, strict=True))
    order = np.lexsort((steps, rows)) if step > 1 else np.arange(len(rows))
    order = order[fine[rows[order]]]
    return _binary(data, starts[order], lengths[order]), np.where(fine, counts, 0), np.flatnonzero(~fine).tolist()


def _binary(data: Bytes, starts: Ints, lengths: Ints) -> pa.Array:
    joined = _slices(data, starts, lengths)
    if len(joined) >= 1 << 31:
        raise ValueError("a batch of strings beyond 2 GiB")
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(joined)])


def _slices(data: Bytes, starts: Ints, lengths: Ints) -> bytes:
    """Returns the joined slices of `data` with these starts and lengths."""
    total = int(lengths.sum())
    if not total:
        return b""
    if total > _LONG * len(starts):
        view = memoryview(data)  # type: ignore[arg-type]
        return b"".join([view[a : a + n] for a, n in zip(starts.tolist(), lengths.tolist(), strict=True)])
    shift = starts - (np.cumsum(lengths) - lengths)
    return bytes(data[np.repeat(shift, lengths) + np.arange(total)])


def _are_varints(data: Bytes, starts: Ints, lengths: Ints) -> NDArray[np.bool_]:
    """Returns for each slice of `data` whether it consists of whole varints."""
    fine = np.ones(len(starts), np.bool_)
    for i, (at, size) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        try:
            varints(bytes(data[at : at + size]))
        except ValueError:
            fine[i] = False
    return fine


_BATCH_RECORDS, _BATCH_BYTES, _READ_BYTES, _WINDOW = 8192, 16 << 20, 1 << 20, 1 << 18
_NAMES_ROWS = 1000
_FIX = "fetch or write the file again"


class ExamplesSource(Source):
    """Reads TFRecord files. A range is bytes [start, end) of a file, cut between records; a gzip file is one range."""

    def names(self, file: InputFile) -> list[str]:
        """Returns the names of the features in the first records."""
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

    def sample(self, files: Sequence[InputFile], rows: int) -> Sample:
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
            raise NoRows("the files hold no rows", where=files[0].path)
        rare = {name: kinds for name, kinds in counts.items() if (kinds.total() - kinds[1]) * ONE_IN <= kinds.total()}
        tables = []
        for batch in batches:
            names = batch.names()
            arrays = [batch.column(name, several=False if name in rare else None)[0] for name in names]
            tables.append(pa.Table.from_arrays(arrays, names=names))
        whole = as_numbers(sampled(_agreed(tables), rows), [name for name, all_of_it in numbers.items() if all_of_it])
        return note_several_values(whole, rare)


def _agreed(tables: list[pa.Table]) -> list[pa.Table]:
    """Makes a column the same in all tables: if it has lists in one table, single values in another become null lists."""
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
    plain = len(head) == HEADER.size and masked_crc32c(head[:8]) == HEADER.unpack(head)[1]
    return head.startswith(b"\x1f\x8b") and not plain


def _hops(file: InputFile, step: int) -> list[int] | None:
    """Returns the end offsets of ranges of about `step` bytes, by the records' lengths. None if a checked length is wrong."""
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
            if looked_at and (masked_crc32c(window[at - base : at - base + 8]) != crc or end > file.bytes):
                return None
            at = end
            if at - start >= step or at == file.bytes:
                cuts.append(at)
                start = at
    return cuts


def _batches(path: str, start: int, end: int | None) -> Iterator[list[bytes]]:
    """Yields the records of a range in batches, after a check of their checksums.

    Raises:
        DataError: the range is damaged. The error names the file, and the byte of the damaged record.
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
        except DamagedRecord as error:
            raise _damaged(path, error.at, error.what) from None
        except (OSError, pa.ArrowException) as error:
            if not zipped:
                raise
            raise _damaged(path, at, f"not a whole gzip file: {str(error).splitlines()[0]}") from None
    if records:
        yield records


def _damaged(path: str, at: int, what: str) -> DataError:
    if not at and (other := wrong_format_error(path, "examples")):
        return other
    fix = "not a TFRecord file? check source.format and the file" if not at else _FIX
    return DataError(f"{what} (record at byte {at})", where=path, fix=fix)
