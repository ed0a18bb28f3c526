"""Pipelines of the tests of transforms, and what their rows have to be."""

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing import test_pipeline


def pipeline():
    return test_pipeline.TestPipeline(runner="FnApiRunner", options=PipelineOptions(flags=[]))


def rows_of(batches):
    return sorted(
        (row for batch in batches for row in batch.to_pylist()), key=lambda row: row.get("id", row.get("source_row"))
    )


def has_rows(wanted):
    """A check for `assert_that`: these rows, in any order of the batches."""

    def check(batches):
        assert rows_of(batches) == wanted, f"{len(rows_of(batches))} rows instead of {len(wanted)}"

    return check
