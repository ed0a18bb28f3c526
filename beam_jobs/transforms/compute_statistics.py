"""Statistics of Arrow batches as a CombineFn: `batches | beam.CombineGlobally(ComputeStatistics(columns))`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import apache_beam as beam
import pyarrow as pa

from beam_jobs.transforms.stored_batches import as_stored, to_stored_types, unwrapped_errors
from headway.schema.columns import Column
from headway.statistics.split_statistics import SplitStatistics


class ComputeStatistics(beam.CombineFn):
    """Computes the statistics of columns, as ingest does for a split.

        statistics = batches | beam.CombineGlobally(ComputeStatistics(columns))      # one SplitStatistics
        by_day = keyed | beam.CombinePerKey(ComputeStatistics(columns))              # one for each key

    Input: `pyarrow.RecordBatch` with at least the columns, in their stored types or in types that become them without loss.
    Output: `headway.statistics.split_statistics.SplitStatistics`, with `columns["x"].mean`, `.missing`, `.distinct`,
    `.quantile([0.5])`, `.top(5)`; `save(folder)` writes it.

    Counts, extremes and distinct values do not depend on how the runner splits the rows, and the mean only by rounding.
    A column with too many distinct values to keep has sketches. Texts are counted exactly and in memory.

    Args:
        columns: the columns to describe (`headway.schema.columns.Column`).

    Raises:
        ConfigError: no columns are given. Raised as the pipeline is built.
        DataError: a batch lacks a column, or a value does not fit; its message names both. Raised as the pipeline runs.
    """

    def __init__(self, columns: Sequence[Column]):
        self._columns = as_stored(columns)

    def create_accumulator(self) -> SplitStatistics:
        return SplitStatistics.create(self._columns)

    def add_input(self, accumulator: SplitStatistics, batch: pa.RecordBatch) -> SplitStatistics:
        if batch.num_rows:
            with unwrapped_errors():
                accumulator.update(to_stored_types(batch, self._columns))
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[SplitStatistics]) -> SplitStatistics:
        whole = self.create_accumulator()
        for accumulator in accumulators:
            whole.merge(accumulator)
        return whole

    def extract_output(self, accumulator: SplitStatistics) -> SplitStatistics:
        return accumulator
