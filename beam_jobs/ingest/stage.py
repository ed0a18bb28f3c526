"""Ingest: reads the raw files of a span, and writes sharded records, statistics and quarantine, in one pass.

    result = ingest(request, out, Monitor(), runner=RunnerConfig())
    results = ingest_many(requests, outs, Monitor())         # several spans in one pipeline: small ones cost less

`out` then holds `train-00003-of-00012.tfrecord` (one shard for each range and split, empty ones omitted),
`statistics/<split>/` and, when rows were rejected, `quarantine.parquet`. All of it is a function of the files and the
request, whatever the runner and the number of its workers. Beam is imported when a job runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from beam_jobs.ingest import range_worker
from beam_jobs.ingest.merge import merge_ranges, shard_name
from beam_jobs.ingest.range_worker import SHARD
from beam_jobs.ingest.request import VERSION, IngestRequest
from beam_jobs.runners.config import RunnerConfig
from beam_jobs.runners.driver import run_spans
from beam_jobs.runners.spans import RangeResult, SpanJob, SpanMerger, Tick
from headway.messages import counted
from headway.monitor import Monitor
from headway.sources.base import Range
from headway.storage.manifest import FileEntry

__all__ = ["VERSION", "IngestJob", "ingest", "ingest_many"]


@dataclass(frozen=True)
class IngestJob(SpanJob):
    """The ingest of one span, as a job for the runner's workers."""

    request: IngestRequest
    fingerprint: str | None = None
    """The request's fingerprint, by which ranges that a killed job had finished are reused. None: no range is reused."""

    def cut(self) -> list[Range]:
        return self.request.ranges()

    def key(self, piece: Range) -> str | None:
        return self.fingerprint and f"{self.fingerprint} {piece.index} {piece.start} {piece.end}"

    def process(self, piece: Range, folder: Path, tick: Tick) -> dict[str, Any]:
        return range_worker.ingest_range(self.request, piece, folder, tick)

    def output_names(self, piece: Range, total: int, facts: Mapping[str, Any]) -> dict[str, str]:
        return {f"{split}/{SHARD}": shard_name(split, piece.index, total) for split in facts["records"]}

    def finish(self, done: Sequence[RangeResult], merging: SpanMerger) -> tuple[dict[str, Any], list[FileEntry]]:
        result = merge_ranges(self.request, done, merging)
        shards = [
            FileEntry(path=path, bytes=each.files[name][0], crc32c=each.files[name][1])
            for each in done
            for name, path in self.output_names(each.piece, len(done), each.facts).items()
        ]
        return result, sorted((*shards, *merging.deliver()), key=lambda entry: PurePosixPath(entry.path))


def ingest(
    request: IngestRequest, out: Path, monitor: Monitor, *, runner: RunnerConfig | None = None
) -> dict[str, Any]:
    """Ingest one span into the folder `out`.

    Returns:
        A dict of JSON values: span; feature_spec, with which stock tf.io parses a record; columns; unit, whether records
        store each row's unit (the rows that a split by key keeps together); splits, each with rows, statistics and shards;
        counts, where read = written + quarantined + filtered. A shard's "rows" are the row counts of its records, as
        `headway.records.encode.packed` returns them.

    Raises:
        ConfigError: the request does not fit the files, or the runner is not usable.
        DataError: a file is damaged or cannot be stored.
        StoreError: `out` cannot be written.
        Cancelled: the monitor asked to stop.
    """
    (result,) = ingest_many([request], [out], monitor, runner=runner)
    del result["files"]
    return result


def ingest_many(
    requests: Sequence[IngestRequest],
    outs: Sequence[Path],
    monitor: Monitor,
    *,
    runner: RunnerConfig | None = None,
    places: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """Ingest several spans in one pipeline; each span's folder in `outs` gets the same bytes as from `ingest`.

    Args:
        places: the output folders, if they are in a bucket; None: the output folders are `outs`.

    Returns:
        For each span what `ingest` returns, and under "files" the path, bytes and crc32c of each file.
    """
    monitor.check()
    for request in requests:
        request.check()
    jobs = [
        IngestJob(request, str(where), request.fingerprint)
        for request, where in zip(requests, places or outs, strict=True)
    ]
    outcomes = run_spans(jobs, monitor, runner or RunnerConfig())
    if kept := sum(end.kept for end in outcomes):
        monitor.log(f"{counted(kept, 'range')} had been finished by a run that was killed")
    return [(end.result or {}) | {"files": [*end.files]} for end in outcomes]
