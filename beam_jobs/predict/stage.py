"""Batch prediction: reads raw files, writes Parquet or JSON lines with predictions, in the order of the rows.

    result = predict(request, out, Monitor(), runner=RunnerConfig(), max_quarantined=0.01)
    result["counts"], result["parts"], result["kept"]

`out` then holds `part-00003-of-00012.parquet` (one for each range of the input, so that their names' order is the input's
order), `quarantine.parquet` when rows were rejected, and `predictions.json`, written last: without it there is no
output. All of it is a function of the files and the request, whatever the runner and the number of its workers.

A range that is whole stays in `out/.ranges` until then. A call after a crash checks the keys of those (input, model and
config) and runs only the others; a call when everything is there does nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beam_jobs.ingest.merge import check_counts, quarantined_rows, rows_before
from beam_jobs.predict.part_writer import PartWriter
from beam_jobs.predict.request import ROW, PredictRequest
from beam_jobs.runners.config import RunnerConfig
from beam_jobs.runners.driver import whole_ranges
from beam_jobs.runners.range_job import RangeJob
from beam_jobs.runners.work_dir import FOLDER, WorkDir, writable
from headway.errors import DataError, Locked, StoreError
from headway.messages import agree
from headway.monitor import Monitor
from headway.sources.base import Range
from headway.sources.discovery.formats_table import open_source
from headway.storage.atomic_io import link_or_copy, replace_text, sync_path
from headway.storage.fingerprint import fingerprint
from headway.storage.manifest import checksum
from headway.tabular import quarantine

__all__ = ["MANIFEST", "predict"]

_WORK = "beam_jobs.predict.range_scorer:predict_range"
MANIFEST = "predictions.json"
FORMAT = 1


def predict(
    request: PredictRequest,
    out: Path,
    monitor: Monitor,
    *,
    runner: RunnerConfig | None = None,
    max_quarantined: float = 0.01,
) -> dict[str, Any]:
    """Predict every row of the request's files; see the module.

    Returns:
        What predictions.json holds (JSON values: counts, parts with their rows, bytes and crc32c), and "kept": how many
        ranges an earlier call had finished, "cached": whether that was all of it.

    Raises:
        ConfigError: a column to pass through does not exist.
        DataError: a file is damaged or lacks a column, or more rows than `max_quarantined` (a share) were rejected.
        StoreError: `out` holds something else or cannot be written, or the model cannot be loaded.
        Locked: another process is predicting into `out`.
        Cancelled: the monitor asked to stop; finished ranges are kept.
    """
    monitor.check()
    _refuse_foreign(out)
    request.check()
    ranges = _with_rows(open_source(request.source).ranges(request.files))
    keys = {piece.index: request.key(piece) for piece in ranges}
    whole = fingerprint({"ranges": [keys[piece.index] for piece in ranges], "names": request.names})
    if (done := _finished(out, whole)) is not None:
        _bounded(done["counts"], max_quarantined, out)
        return done | {"kept": len(ranges), "cached": True}
    work_dir = WorkDir.of(out)
    with writable(out):
        out.mkdir(parents=True, exist_ok=True)
    with _alone(out):
        with writable(out):
            finished = work_dir.resume(keys)
        if finished:
            monitor.log(f"{len(finished)} of {len(ranges)} ranges were finished before")
        whole_ranges([RangeJob(request, work_dir, _WORK)], [ranges], monitor, runner or RunnerConfig())
        with writable(out):
            result = _publish(request, ranges, work_dir, out, whole, max_quarantined)
            work_dir.remove()
    return result | {"kept": len(finished), "cached": False}


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Lock `out` against other processes' predictions. The kernel drops the lock with the process; no file stays."""
    folder = os.open(out, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            problem = "another process is writing predictions here"
            raise Locked(problem, where=str(out), fix="wait for it to end, or name another folder") from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(folder)


def _refuse_foreign(out: Path) -> None:
    """Raise for a folder that holds files not written by a prediction."""
    if out.exists() and not out.is_dir():
        raise StoreError("is a file", where=str(out), fix="name a folder that is empty or does not exist")
    if out.is_dir() and any(out.iterdir()) and not (out / MANIFEST).is_file() and not (out / FOLDER).is_dir():
        problem = "the folder is not empty, and no prediction wrote what is in it"
        raise StoreError(problem, where=str(out), fix="name a folder that is empty or does not exist")


def _with_rows(ranges: Sequence[Range]) -> list[Range]:
    """Ranges with the number of their first row in the file, where the source tells."""
    first_rows = rows_before(ranges, [piece.facts.get("rows") for piece in ranges])
    return [
        piece if first is None else dataclasses.replace(piece, facts={**piece.facts, "first_row": first})
        for piece, first in zip(ranges, first_rows, strict=True)
    ]


def _publish(
    request: PredictRequest, ranges: Sequence[Range], work_dir: WorkDir, out: Path, key: str, max_quarantined: float
) -> dict[str, Any]:
    """Give the parts their names in `out`; the manifest comes last."""
    facts = [work_dir.facts(piece.index) for piece in ranges]
    counts = {name: sum(fact[name] for fact in facts) for name in ("rows", "predicted", "quarantined")}
    counts["read"] = counts.pop("rows")
    check_counts(counts, where=str(out))
    _clear(out)
    quarantined = out / quarantine.FILE_NAME
    quarantine.write(quarantined, quarantined_rows(request.files, ranges, facts, work_dir))
    # when it raises, the rejected rows stay to be looked at: without a manifest there is no output
    _bounded(counts, max_quarantined, out)
    parts = []
    width = len(ranges)
    befores = rows_before(ranges, [fact["rows"] for fact in facts])
    for piece, fact, before in zip(ranges, facts, befores, strict=True):
        if fact["part"] is None:
            continue
        path = out / f"part-{piece.index:05d}-of-{width:05d}.{request.write}"
        source = work_dir.of_range(piece.index) / fact["part"]
        if fact["first_row"] == before:
            link_or_copy(source, path)  # the range stays whole until the output is
        else:
            _renumbered(source, path, request, before - (fact["first_row"] or 0))
        parts.append({"file": path.name, "rows": fact["predicted"]} | _entry(path))
    files = {"quarantine": _entry(quarantined)} if quarantined.exists() else {}
    result = {
        "format": FORMAT,
        "key": key,
        "model": request.digest,
        "counts": counts,
        "inputs": [
            {"file": name, "bytes": file.bytes, "crc32c": file.crc32c}
            for name, file in zip(request.names, request.files, strict=True)
        ],
        "parts": parts,
        **files,
    }
    replace_text(out / MANIFEST, json.dumps(result, indent=1) + "\n")
    return result


def _entry(path: Path) -> dict[str, Any]:
    """The manifest's entry for a file, which is synced."""
    size, crc = checksum(path)
    sync_path(path)
    return {"file": path.name, "bytes": size, "crc32c": crc}


def _renumbered(source: Path, path: Path, request: PredictRequest, offset: int) -> None:
    """Write a part with correct row numbers, from one whose rows were counted from another beginning."""
    with pq.ParquetFile(source) as file, PartWriter(path, request.write, str(source)) as part:
        part.write(pa.RecordBatch.from_pylist([], file.schema_arrow))  # a part without rows is a file, too
        for batch in file.iter_batches():
            place = batch.schema.get_field_index(ROW)
            part.write(batch.set_column(place, batch.schema.field(place), pc.add(batch.column(place), offset)))


def _clear(out: Path) -> None:
    """Remove an earlier call's output, its manifest first."""
    (out / MANIFEST).unlink(missing_ok=True)
    for pattern in ("part-*-of-*.parquet", "part-*-of-*.jsonl", quarantine.FILE_NAME):
        for path in out.glob(pattern):
            path.unlink()


def _bounded(counts: dict[str, int], bound: float, out: Path) -> None:
    if counts["quarantined"] > bound * counts["read"]:
        share = counts["quarantined"] / counts["read"]
        first = pq.ParquetFile(out / quarantine.FILE_NAME).read_row_group(0).slice(0, 1).to_pylist()[0]
        column = "" if first["column"] is None else f"column {first['column']!r}: "
        comma = re.fullmatch(r"[+-]?[0-9]+,[0-9]+", first["value"] or "")
        mend = (
            f"write numbers as the model's training files do, {first['value'].replace(',', '.')}, or " if comma else ""
        )
        raise DataError(
            f"{counts['quarantined']:,} of {counts['read']:,} rows ({share:.2%}) {agree(counts['quarantined'], 'was', 'were')} "
            f"rejected; at most {bound:.2%} may be; the first is {first['file']} row {first['row']}: {column}"
            f"{'null' if first['value'] is None else repr(first['value'][:60])} {first['reason']}",
            where=str(out / quarantine.FILE_NAME),
            fix=f"{mend}look at that file, mend the input, or allow more with --max-quarantine",
        )


def _finished(out: Path, key: str) -> dict[str, Any] | None:
    """The manifest of an earlier call with this key, if its files have their sizes."""
    try:
        done = json.loads((out / MANIFEST).read_bytes())
        files = [*done["parts"], *([done["quarantine"]] if "quarantine" in done else [])]
        whole = all((out / file["file"]).stat().st_size == file["bytes"] for file in files)
        return done if whole and (done["format"], done["key"]) == (FORMAT, key) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
