"""The statistics stage: merges the statistics of a window's spans, split by split. It also writes them for TFDV and Facets.

Transforms are fitted on the statistics of train only; validation reads those of every split. statistics.pb is a
DatasetFeatureStatisticsList of tensorflow_metadata.
"""

import itertools
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from headway.monitor import Monitor
from headway.schema.columns import Column
from headway.stages.refs import Part
from headway.stages.stage_class import Key, Stage
from headway.statistics.column_statistics import ColumnStatistics
from headway.statistics.split_statistics import SplitStatistics, merge_all, summary
from headway.statistics.summary import WindowStatistics

VERSION = 8


class StatisticsRequest(Stage[WindowStatistics]):
    """The request of the stage: the stored columns, and for each split the saved statistics of its spans, in window order."""

    name, version, runs = "statistics", VERSION, "headway.statistics.stage:merge"
    columns: tuple[Column, ...]
    splits: Annotated[dict[str, tuple[Part, ...]], Key("inputs")]
    """By split: the saved statistics of each span. The path of each is a folder."""


def merge(request: StatisticsRequest, out: Path, monitor: Monitor) -> dict[str, Any]:
    """Merges the statistics of each split; writes out/<split>/ and out/statistics.pb. Returns rows and column summaries."""
    merged = {}
    total = sum(map(len, request.splits.values()))
    done = 0
    spill = out / ".spill"
    try:
        for split, parts in request.splits.items():
            monitor.check()
            folders = [part.path for part in parts]
            merged[split] = merge_all(folders, request.columns, spill=spill)
            merged[split].save(out / split)
            done += len(folders)
            monitor.progress(done, total, "spans")
        (out / "statistics.pb").write_bytes(to_proto(merged).SerializeToString(deterministic=True))
        return {
            "rows": {split: statistics.rows for split, statistics in merged.items()},
            "columns": {split: summary(statistics) for split, statistics in merged.items()},
        }
    finally:
        shutil.rmtree(spill, ignore_errors=True)


_BINS = 10
_TOP = 20
_AT = (*np.linspace(0, 1, _BINS + 1).tolist(), 0.5)


def to_proto(splits: Mapping[str, SplitStatistics]) -> Any:
    """Returns the statistics as TFDV's DatasetFeatureStatisticsList, with one DatasetFeatureStatistics per split."""
    from tensorflow_metadata.proto.v0 import statistics_pb2

    message = statistics_pb2.DatasetFeatureStatisticsList()
    for name, statistics in splits.items():
        dataset = message.datasets.add(name=name, num_examples=statistics.rows)
        for column in statistics.columns.values():
            feature = dataset.features.add()
            feature.path.step.append(column.name)
            kinds = statistics_pb2.FeatureNameStatistics
            feature.type = {"int64": kinds.INT, "float32": kinds.FLOAT, "bytes": kinds.STRING}[column.type]
            if column.type == "bytes":
                _text(feature.string_stats, column)
            else:
                _numbers(feature.num_stats, column)
    return message


def _common(common: Any, column: ColumnStatistics) -> None:
    common.num_non_missing, common.num_missing = column.present, column.missing
    common.min_num_values = column.shortest_list or 0 if column.shape else 1
    common.max_num_values = column.longest_list or 0 if column.shape else 1
    common.avg_num_values = column.values / column.present if column.present else 0.0 if column.shape else 1.0
    common.tot_num_values = column.values


def _text(stats: Any, column: ColumnStatistics) -> None:
    _common(stats.common_stats, column)
    stats.unique = column.distinct
    stats.avg_length = column.mean_bytes
    for rank, (value, count) in enumerate(column.top(_TOP) if column.complete else ()):
        text = value.decode("utf-8", "backslashreplace")
        stats.top_values.add(value=text, frequency=count)
        stats.rank_histogram.buckets.add(low_rank=rank, high_rank=rank, label=text, sample_count=count)


def _numbers(stats: Any, column: ColumnStatistics) -> None:
    _common(stats.common_stats, column)
    if not column.finite or column.minimum is None or column.maximum is None:
        return
    stats.mean, stats.std_dev = column.mean, column.std
    stats.num_zeros = column.zeros
    stats.min, stats.max = column.minimum, column.maximum
    *edges, stats.median = column.quantile(_AT).tolist()
    edges[0], edges[-1] = column.minimum, column.maximum
    quantiles = stats.histograms.add(type=1, num_nan=column.nan)  # QUANTILES
    each = column.finite / _BINS
    for low, high in itertools.pairwise(edges):
        quantiles.buckets.add(low_value=low, high_value=high, sample_count=each)
    standard = stats.histograms.add(type=0, num_nan=column.nan)  # STANDARD
    width = np.linspace(column.minimum, column.maximum, _BINS + 1)
    for (low, high), count in zip(itertools.pairwise(width.tolist()), column.per_bin(width).tolist(), strict=True):
        standard.buckets.add(low_value=low, high_value=high, sample_count=count)
