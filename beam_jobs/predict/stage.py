"""Batch prediction: reads raw files and writes Parquet or JSON lines with predictions, in the order of the rows.

    result = predict(request, out, Monitor(), runner=RunnerConfig(), max_quarantined=0.01)
    result["counts"], result["parts"], result["kept"]

`out`, a folder or a folder of a bucket, then holds `part-00003-of-00012.parquet` (one for each range of the input, so that
their names' order is the input's order), `quarantine.parquet` when rows were rejected, and `predictions.json`, written last:
without it there is no output. All of it is a function of the files and the request, whatever the runner and the number of its
workers.

Until `predictions.json` is written, finished ranges stay in `out/.ranges`. A call after a crash reuses the ranges with the same
key (input, model and settings), and runs only the others. A call on a complete output does nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beam_jobs.ingest.merge import quarantined_rows, rows_before
from beam_jobs.predict import range_scorer
from beam_jobs.predict.part_writer import PartWriter
from beam_jobs.predict.request import ROW, PredictRequest
from beam_jobs.runners.config import RunnerConfig
from beam_jobs.runners.driver import run_spans
from beam_jobs.runners.place import BucketPlace, FolderPlace, as_store_errors
from beam_jobs.runners.spans import RangeResult, SpanJob, SpanMerger, Tick
from headway.errors import DataError, Locked, StoreError
from headway.messages import agree
from headway.monitor import Monitor
from headway.sources.base import Range
from headway.sources.spans import open_source
from headway.storage.filesystem import open_file
from headway.storage.locks import Lock
from headway.storage.manifest import Counts, FileEntry
from headway.storage.store import RANGES
from headway.tabular import quarantine

__all__ = ["MANIFEST", "PredictJob", "predict"]

MANIFEST = "predictions.json"
FORMAT = 1
_LOCK = "locks/predict.json"
_OURS = re.compile(r"part-\d+-of-\d+\.(parquet|jsonl)|" + re.escape(quarantine.FILE_NAME))
_PROBE = re.compile(r"\.(probe|clock)-[0-9a-f]+")
"""The name of the object that a check of a bucket writes and deletes. A process killed in between leaves the object."""
_PROBE_SECONDS = 3600.0


@dataclasses.dataclass(frozen=True)
class PredictJob(SpanJob):
    """The prediction of a request's files, as a job for the runner's workers."""

    request: PredictRequest
    max_quarantined: float = 0.01
    fresh = False

    def cut(self) -> list[Range]:
        return with_first_rows(open_source(self.request.source).ranges(self.request.files))

    def key(self, piece: Range) -> str:
        return self.request.key(piece)

    def process(self, piece: Range, folder: Path, tick: Tick) -> dict[str, Any]:
        return range_scorer.predict_range(self.request, piece, folder, tick)

    def output_names(self, piece: Range, total: int, facts: Mapping[str, Any]) -> dict[str, str]:
        part = facts["part"]
        return {} if part is None else {part: f"part-{piece.index:05d}-of-{total:05d}.{self.request.write}"}

    def finish(self, done: Sequence[RangeResult], merging: SpanMerger) -> tuple[dict[str, Any], list[FileEntry]]:
        """Delete an earlier output; write quarantine and parts, with right row numbers. Returns the manifest, and no files."""
        counts = {name: sum(each.facts[name] for each in done) for name in ("rows", "predicted", "quarantined")}
        counts["read"] = counts.pop("rows")
        Counts(read=counts["read"], written=counts["predicted"], quarantined=counts["quarantined"], filtered=0)
        self._clear()
        quarantine.write(merging.out / quarantine.FILE_NAME, quarantined_rows(self.request.files, done, merging))
        quarantined = [_about(made) for made in merging.deliver()]
        # when it raises, the rejected rows stay to be looked at: without a manifest there is no output
        _bounded(counts, self.max_quarantined, self.place.objects.address(quarantine.FILE_NAME))
        parts = []
        befores = rows_before([each.piece for each in done], [each.facts["rows"] for each in done])
        for each, before in zip(done, befores, strict=True):
            for part, name in self.output_names(each.piece, len(done), each.facts).items():
                if each.facts["first_row"] == before:
                    merging.copy_to_output(each, part, name)
                    made = FileEntry(path=name, bytes=each.files[part][0], crc32c=each.files[part][1])
                else:
                    source = merging.fetch(each, part)
                    _renumbered(source, merging.out / name, self.request, before - (each.facts["first_row"] or 0))
                    merging.drop(source)  # or this machine's disk would have to hold the whole output
                    (made,) = merging.deliver()
                parts.append({"file": name, "rows": each.facts["predicted"]} | _about(made))
        result = {
            "format": FORMAT,
            "key": self.request.whole_key(),
            "model": self.request.digest,
            "counts": counts,
            "inputs": [
                {"file": name, "bytes": file.bytes, "crc32c": file.crc32c}
                for name, file in zip(self.request.file_names, self.request.files, strict=True)
            ],
            "parts": parts,
            **({"quarantine": quarantined[0]} if quarantined else {}),
        }
        return result, []

    def _clear(self) -> None:
        """Delete an earlier call's output, its manifest first. Also deletes old objects that checks of a bucket left."""
        objects = self.place.objects
        objects.delete([MANIFEST])
        old = (time.time() - _PROBE_SECONDS) * 1e9
        objects.delete(
            name
            for name, found in objects.listing().items()
            if _OURS.fullmatch(name) or (_PROBE.fullmatch(name) and found.changed < old)
        )


def predict(
    request: PredictRequest,
    out: Path | str,
    monitor: Monitor,
    *,
    runner: RunnerConfig | None = None,
    max_quarantined: float = 0.01,
) -> dict[str, Any]:
    """Predict every row of the request's files.

    Returns:
        What predictions.json holds: JSON values such as counts, and parts with their rows, bytes and crc32c. Besides, "cached":
        whether an earlier call wrote that file; "kept": how many ranges an earlier call had finished, 0 if cached.

    Raises:
        ConfigError: a column to pass through does not exist.
        DataError: a file is damaged or lacks a column, or more rows than `max_quarantined` (a share) were rejected.
        StoreError: `out` holds something else or cannot be written, or the model cannot be loaded.
        Locked: another process is predicting into `out`.
        Cancelled: the monitor asked to stop; finished ranges are kept.
    """
    monitor.check()
    job = PredictJob(request, str(out), max_quarantined)
    place = job.place
    _refuse_foreign(place)
    request.check()
    if (done := _finished(place, request.whole_key())) is not None:
        _bounded(done["counts"], max_quarantined, place.objects.address(quarantine.FILE_NAME))
        return done | {"kept": 0, "cached": True}
    with _alone(place) as still:
        (outcome,) = run_spans([job], monitor, runner or RunnerConfig())
        assert outcome.result is not None
        if outcome.kept:
            monitor.log(f"{outcome.kept} of {outcome.ranges} ranges were finished before")
        still()
        with as_store_errors(place.url):
            place.objects.write(MANIFEST, (json.dumps(outcome.result, indent=1) + "\n").encode())
            place.clear_ranges()
    return outcome.result | {"kept": outcome.kept, "cached": False}


@contextlib.contextmanager
def _alone(place: FolderPlace | BucketPlace) -> Iterator[Callable[[], None]]:
    """Lock the output folder against other predictions. Yields a function that raises if the lock has been lost since.

    In a bucket the lock is an object with a lease. In a folder the lock ends with its process and leaves no file.
    """
    problem, fix = "another prediction into this folder is going on", "wait for it to end, or name another folder"
    if isinstance(place, BucketPlace):
        lock = Lock(place.objects, _LOCK)
        try:
            with lock.held():
                yield lock.check
        except Locked as error:
            if error.where != lock.path:  # of another lock
                raise
            raise Locked(f"{problem}: the folder {error.problem}", where=place.url, fix=fix) from None
        return
    with as_store_errors(place.url):
        place.root.mkdir(parents=True, exist_ok=True)
    folder = os.open(place.root, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Locked(f"{problem}, in another process", where=place.url, fix=fix) from None
        except OSError:  # a file system without locks
            pass
        yield lambda: None
    finally:
        os.close(folder)


def _refuse_foreign(place: FolderPlace | BucketPlace) -> None:
    """Raise a StoreError if the place is a file, or a folder with files but without a prediction's manifest or ranges."""
    if isinstance(place, FolderPlace) and place.root.exists() and not place.root.is_dir():
        raise StoreError("is a file", where=place.url, fix="name a folder that is empty or does not exist")
    place.objects.check()
    names = {name for name in place.objects.children("") if not _PROBE.fullmatch(name)} - {_LOCK.split("/")[0]}
    if names and not names & {MANIFEST, RANGES}:
        problem = "the folder is not empty, and no prediction wrote what is in it"
        raise StoreError(problem, where=place.url, fix="name a folder that is empty or does not exist")


def with_first_rows(ranges: Sequence[Range]) -> list[Range]:
    """Returns the ranges. Each gets the fact `first_row`, the number of rows before it in its file, if the source knows that."""
    first_rows = rows_before(ranges, [piece.facts.get("rows") for piece in ranges])
    return [
        piece if first is None else dataclasses.replace(piece, facts={**piece.facts, "first_row": first})
        for piece, first in zip(ranges, first_rows, strict=True)
    ]


def _about(made: FileEntry) -> dict[str, Any]:
    return {"file": made.path, "bytes": made.bytes, "crc32c": made.crc32c}


def _renumbered(source: Path, path: Path, request: PredictRequest, offset: int) -> None:
    """Copy the part file `source` to `path`, in the request's format, with `offset` added to the row numbers."""
    with pq.ParquetFile(source) as file, PartWriter(path, request.write, str(source)) as part:
        part.write(pa.RecordBatch.from_pylist([], file.schema_arrow))  # a part without rows is a file, too
        for batch in file.iter_batches():
            place = batch.schema.get_field_index(ROW)
            part.write(batch.set_column(place, batch.schema.field(place), pc.add(batch.column(place), offset)))


def _bounded(counts: Mapping[str, int], bound: float, rejected: str) -> None:
    """Raise a DataError if more than the share `bound` of the rows read was rejected. `rejected` names the file of these rows."""
    if counts["quarantined"] > bound * counts["read"]:
        share = counts["quarantined"] / counts["read"]
        with open_file(rejected) as file:
            first = pq.ParquetFile(file).read_row_group(0).slice(0, 1).to_pylist()[0]
        column = "" if first["column"] is None else f"column {first['column']!r}: "
        comma = re.fullmatch(r"[+-]?[0-9]+,[0-9]+", first["value"] or "")
        mend = (
            f"write numbers as the model's training files do, {first['value'].replace(',', '.')}, or " if comma else ""
        )
        raise DataError(
            f"{counts['quarantined']:,} of {counts['read']:,} rows ({share:.2%}) {agree(counts['quarantined'], 'was', 'were')} "
            f"rejected; at most {bound:.2%} may be; the first is {first['file']} row {first['row']}: {column}"
            f"{'null' if first['value'] is None else repr(first['value'][:60])} {first['reason']}",
            where=rejected,
            fix=f"{mend}look at that file, mend the input, or raise validation.max_quarantined",
        )


def _finished(place: FolderPlace | BucketPlace, key: str) -> dict[str, Any] | None:
    """Returns an earlier call's manifest if it has this key and all files it lists are there, with the right sizes; else None."""
    try:
        done = json.loads(place.objects.read(MANIFEST) or b"")
        files = [*done["parts"], *([done["quarantine"]] if "quarantine" in done else [])]
        listed = place.objects.listing()
        whole = all(file["file"] in listed and listed[file["file"]].bytes == file["bytes"] for file in files)
        return done if whole and (done["format"], done["key"]) == (FORMAT, key) else None
    except (ValueError, KeyError, TypeError):
        return None
