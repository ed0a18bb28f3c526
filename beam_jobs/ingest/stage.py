"""Ingest: reads the raw files of a span, and writes sharded records, statistics and quarantine, in one pass.

    result = ingest(request, out, Monitor(), runner=RunnerConfig())
    results = ingest_many(requests, outs, Monitor())         # several spans in one pipeline: small ones cost less

`out` then holds `train-00003-of-00012.tfrecord` (one shard for each range and split, empty ones omitted),
`statistics/<split>/` and, when rows were rejected, `quarantine.parquet`. All of it is a function of the files and the
request, whatever the runner and the number of its workers. Beam is imported only if it runs the ranges.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from beam_jobs.ingest.merge import collect
from beam_jobs.ingest.request import VERSION, IngestRequest
from beam_jobs.runners.config import RunnerConfig
from beam_jobs.runners.driver import whole_ranges
from beam_jobs.runners.range_job import RangeJob
from beam_jobs.runners.work_dir import WorkDir, writable
from headway.monitor import Monitor
from headway.sources.base import Range

__all__ = ["VERSION", "ingest", "ingest_many"]

_WORK = "beam_jobs.ingest.range_worker:ingest_range"


def ingest(
    request: IngestRequest, out: Path, monitor: Monitor, *, runner: RunnerConfig | None = None
) -> dict[str, Any]:
    """Ingest one span into `out`; see the module.

    Returns:
        JSON values: span, rows_per_record, feature_spec (what parses a record with stock tf.io), columns, unit (true;
        of a split by key: records say what it keeps together), splits (rows, shards with the rows of their records
        (`headway.records.spec`), statistics),
        counts (read = written + quarantined + filtered).

    Raises:
        ConfigError: the request does not fit the files, or the runner is not usable.
        DataError: a file is damaged or cannot be stored.
        StoreError: `out` cannot be written.
        Cancelled: the monitor asked to stop.
    """
    return ingest_many([request], [out], monitor, runner=runner)[0]


def ingest_many(
    requests: Sequence[IngestRequest], outs: Sequence[Path], monitor: Monitor, *, runner: RunnerConfig | None = None
) -> list[dict[str, Any]]:
    """Ingest several spans in one pipeline; every `out` gets the same bytes as from `ingest`."""
    monitor.check()
    jobs = [RangeJob(request, WorkDir.of(out), _WORK) for request, out in zip(requests, outs, strict=True)]
    ranges: list[list[Range]] = []
    for request in requests:
        request.check()
        ranges.append(request.ranges())
    try:
        for job, out in zip(jobs, outs, strict=True):
            with writable(out):
                job.work_dir.begin()
        whole_ranges(jobs, ranges, monitor, runner or RunnerConfig())
        results = []
        for job, pieces, out in zip(jobs, ranges, outs, strict=True):
            with writable(out):
                results.append(collect(job.request, pieces, job.work_dir, out))
        return results
    finally:
        for job in jobs:
            job.work_dir.remove()
