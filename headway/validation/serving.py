"""Statistics of rows without labels, for comparison with those of the train rows: logged serving requests, or raw files.

    logged = requests(Path("requests.jsonl"), feature_columns)
    logged.statistics, logged.unfit          # of the rows that fit, and (rows that do not, the first reason)

The file holds a request a line as JSON ({"carrier": "AA", "distance": 733}, or TensorFlow Serving's {"instances": [...]}), or
is a TFRecord of tf.Examples, read as ingest reads them. Features that no request names count as missing in all of them.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headway.errors import DataError
from headway.monitor import Monitor
from headway.schema.columns import Column
from headway.sources.base import Chunk, InputFile
from headway.sources.config import SourceConfig
from headway.sources.discovery.spans import files, open_source
from headway.sources.formats.jsonl import Parser, counted_in, parser_of
from headway.sources.formats.tfexample import ExamplesSource
from headway.sources.text_files import BOM, TextFile, last_line_end
from headway.statistics.split_statistics import SplitStatistics
from headway.storage import filesystem
from headway.storage.filesystem import open_file, reading
from headway.tabular.coerce import coerce, raw_types
from headway.tabular.expressions import parse
from headway.tabular.quarantine import PLACE

_GZIP = b"\x1f\x8b"
_BATCH = 32_768
_JSON_BLOCK = 4 << 20


@dataclass(frozen=True)
class Logged:
    rows: int
    statistics: SplitStatistics
    unfit: tuple[int, str]
    """How many requests are broken or hold a value that does not fit its column, and the first with its line and reason."""


def checksum(path: Path) -> dict[str, int | str]:
    """The identity of a file of requests: its size and crc32c; DataError when it cannot be read."""
    size, crc = filesystem.checksum(str(path))
    return {"bytes": size, "crc32c": crc}


def requests(path: Path, columns: Sequence[Column]) -> Logged:
    """Statistics of logged requests. A broken line, or a value that does not fit, rejects its request only.

    Raises:
        DataError: the file holds no request, or a TFRecord is damaged.
    """
    statistics = SplitStatistics.create(columns)
    read_as = [column.model_copy(update={"nullable": True}) for column in columns]
    rows, unfit, first = 0, 0, ""

    def add(number: int, reason: str, place: str) -> None:
        nonlocal unfit, first
        if not unfit:
            first = f"{place} {number}: {reason}"
        unfit += 1

    for chunk, numbers, place in _chunks(path, columns):
        rows += chunk.batch.num_rows + len(chunk.malformed)
        for bad in chunk.malformed:
            reason = re.sub(PLACE, "", bad.reason)  # the line's number says it, and blocks are rewritten
            reason = f"{bad.column!r}: {bad.text!r} {reason}" if bad.column else reason
            add(numbers(bad.row), reason, place)
        at = chunk.positions()
        for start in range(0, chunk.batch.num_rows, _BATCH):
            coerced = coerce(chunk.batch.slice(start, _BATCH), read_as)
            statistics.update(coerced.batch)
            for bad in coerced.rejected.to_pylist():
                add(numbers(int(at[start + bad["row"]])), f"{bad['column']!r}: {bad['value']!r} {bad['reason']}", place)
    if unfit == rows:
        problem = (
            f"none of its lines is a request that fits the schema; the first: {first}"
            if rows
            else "there is no request in the file"
        )
        raise DataError(problem, where=str(path), fix="log one JSON object of features per line, or leave it out")
    return Logged(rows, statistics, (unfit, first))


def span_statistics(source: SourceConfig, span: str, columns: list[Column], monitor: Monitor) -> SplitStatistics:
    """Statistics of a span's raw columns, whether or not its rows have a label.

    Args:
        columns: in the types to be counted in; a value that does not fit leaves out its row.
    """
    reader, of_span = open_source(source, columns=columns), files(source, span)
    read = [column.model_copy(update={"nullable": True}) for column in columns]
    statistics = SplitStatistics.create(read)
    where = None if source.where is None else parse(source.where)
    ranges = reader.ranges(of_span)
    for done, piece in enumerate(ranges):
        monitor.check()
        monitor.progress(done, len(ranges), "ranges")
        extra = [] if where is None else [n for n in where.columns if n in reader.names(of_span[piece.file])]
        names = list(dict.fromkeys([*(column.name for column in read), *extra]))
        for chunk in reader.read(piece, names, raw_types(read)):
            batch: pa.RecordBatch = chunk.batch
            if where is not None and set(where.columns) <= set(batch.schema.names):
                batch = batch.filter(where.keep(batch))
            statistics.update(coerce(batch, read).batch)
    return statistics


Numbers = Callable[[int], int]


def _chunks(path: Path, columns: Sequence[Column]) -> Iterator[tuple[Chunk, Numbers, str]]:
    """(rows, a function from a row to its place in the file, the word for that place) of each chunk."""
    types, names = raw_types(columns), [column.name for column in columns]
    with open_file(str(path)) as file:
        head, size = file.read(len(_GZIP)), file.size()
        file.seek(0)
        with reading(str(path)):
            head = (pa.CompressedInputStream(file, "gzip") if head == _GZIP else file).read(8)
    if b"\0" not in head:  # a record begins with its length, some bytes of which are zero; text holds none
        yield from ((chunk, numbers, "line") for chunk, numbers in _json(path, names, types))
        return
    source = ExamplesSource(SourceConfig(format="examples", path=str(path)))
    before = 0
    for piece in source.ranges([InputFile(path=str(path), bytes=size, crc32c="")]):
        rows = 0
        for chunk in source.read(piece, names, types):
            yield chunk, lambda row, before=before: before + row + 1, "record"  # type: ignore[misc]
            rows += chunk.batch.num_rows + len(chunk.malformed)
        before += rows


def _json(path: Path, names: Sequence[str], types: Mapping[str, pa.DataType]) -> Iterator[tuple[Chunk, Numbers]]:
    text = TextFile(str(path))
    parser: Parser | None = None
    lines = 0
    for at, data in text.blocks(0, None, _JSON_BLOCK, last_line_end):
        data = data.removeprefix(BOM) if not at else data
        single, numbers = _one_a_line(data, lines)
        lines += data.count(b"\n")
        if not single:
            continue
        parser = parser or parser_of(counted_in(single, str(path))[0], names, types)
        chunk, _ = parser.parse(single, at, 0)
        yield chunk, numbers.__getitem__


def _one_a_line(data: bytes, before: int) -> tuple[bytes, list[int]]:
    """Read requests, one per line, with the line number of each."""
    requests, numbers = list[bytes](), list[int]()
    for number, line in enumerate(data.split(b"\n"), before + 1):
        if not line.strip(b" \t\r"):
            continue
        rows = [line]
        if b'"instances"' in line:
            with contextlib.suppress(ValueError, RecursionError):
                value = json.loads(line)
                if isinstance(value, dict) and isinstance(value.get("instances"), list):
                    rows = [json.dumps(row).encode() for row in value["instances"]]
        requests += rows
        numbers += [number] * len(rows)
    return b"\n".join(requests), numbers
