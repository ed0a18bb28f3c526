"""Headway's steps as Beam transforms for pipelines of your own; docs/transforms.md has examples.

    with beam.Pipeline("FnApiRunner") as pipeline:
        rows = pipeline | ReadRowGroups("store/stages/ingest/3f2a...", split="train")
        rows | beam.CombineGlobally(ComputeStatistics(columns))
        rows | WriteRowGroups("s3://team/rows", columns)

Elements are Arrow batches (`pyarrow.RecordBatch`). A PCollection has no order: rows come in no promised order.
Importing this package imports Beam.
"""

from beam_jobs.transforms.compute_statistics import ComputeStatistics
from beam_jobs.transforms.ingest_spans import IngestSpans
from beam_jobs.transforms.read_row_groups import ReadRowGroups
from beam_jobs.transforms.score_batches import Predict
from beam_jobs.transforms.write_row_groups import WriteRowGroups

__all__ = ["ComputeStatistics", "IngestSpans", "Predict", "ReadRowGroups", "WriteRowGroups"]
