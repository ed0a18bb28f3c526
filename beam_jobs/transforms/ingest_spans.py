"""Ingests raw files within a pipeline of your own: `pipeline | IngestSpans({"s3://team/rows/2013-01": request})`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam

from beam_jobs.ingest.request import IngestRequest
from beam_jobs.ingest.stage import IngestJob
from beam_jobs.runners.pipeline import ProcessSpans
from beam_jobs.runners.spans import Outcome
from beam_jobs.transforms.stored_batches import free_folder, unwrapped_errors
from headway.records.encode import SPEC


class IngestSpans(beam.PTransform):
    """Ingests spans of raw files into row groups, as `headway run` ingests them.

        ingested = pipeline | IngestSpans({"s3://team/rows/2013-01": request})      # IngestRequest
        ingested | beam.MapTuple(lambda folder, result: print(folder, result["counts"]))

    Input: the pipeline. Output: a PCollection with a pair (folder, result) for each span. The result is what
    `beam_jobs.ingest.stage.ingest` returns. The folder's examples.json holds it too, for ReadRowGroups.

    Shards and statistics have the same bytes as those of `headway run`. examples.json is written last: a folder without
    it holds an unfinished ingest, which the next ingest into the folder replaces.

    Args:
        requests: each span's request by its output folder: a local path that all workers see, or s3:// or gs://.

    Raises:
        ConfigError: a request does not fit, or row groups are in a folder already. Raised as the pipeline is built.
        StoreError: a folder cannot be made. Raised as the pipeline is built.
        DataError, StoreError: a file is damaged, or a folder cannot be written. Raised as the pipeline runs.
    """

    def __init__(self, requests: Mapping[str | Path, IngestRequest]):
        super().__init__()
        for request in requests.values():
            request.check()
        self._jobs = [_DescribedJob(request, free_folder(folder)) for folder, request in requests.items()]

    def expand(self, pipeline: Any) -> Any:
        for job in self._jobs:
            job.place.prepare(job.id)
        ended = pipeline | "ingest" >> ProcessSpans(self._jobs)
        return ended | "publish" >> beam.Map(_publish, self._jobs)


@dataclass(frozen=True)
class _DescribedJob(IngestJob):
    """The ingest of a span into a folder that also gets an examples.json, which describes the shards.

    A runner may fuse the end of a span with the user's steps after it. If such a step fails, the end of the span runs again, too.
    """

    def publish(self, result: dict[str, Any]) -> None:
        described = {"fingerprint": self.request.fingerprint, **result}
        self.place.write(SPEC, (json.dumps(described, indent=1) + "\n").encode())
        self.place.clear_ranges()

    def published(self) -> dict[str, Any] | None:
        objects = self.place.objects
        if (data := objects.read(SPEC)) is None:
            return None
        result: dict[str, Any] = json.loads(data)
        if result.pop("fingerprint", None) != self.request.fingerprint:
            return None
        shards = {shard["file"] for split in result["splits"].values() for shard in split["shards"]}
        return result if shards <= objects.listing().keys() else None


@unwrapped_errors()
def _publish(ended: tuple[int, Outcome], jobs: Sequence[_DescribedJob]) -> tuple[str, dict[str, Any]]:
    """Write a span's examples.json, and return the span's folder and result. Raises the span's failure, if any. May run twice."""
    span, outcome = ended
    if outcome.failure is not None:
        raise outcome.failure.exception()
    job, result = jobs[span], outcome.result or {}
    job.publish(result)
    return job.where, result
