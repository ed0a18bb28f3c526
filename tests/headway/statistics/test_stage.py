"""The stage that merges a window's statistics, and the form in which other tools read them."""

import itertools
import threading

import numpy as np
import pyarrow as pa
import pytest
from tensorflow_metadata.proto.v0 import statistics_pb2

from headway.errors import Cancelled, DataError
from headway.monitor import Monitor
from headway.schema.columns import Column
from headway.statistics.split_statistics import SplitStatistics, summary
from headway.statistics.stage import StatisticsRequest, merge, to_proto
from tests.headway.statistics.made import statistics_of
from tests.told import Told


@pytest.fixture
def saved(small, tmp_path):
    small.save(tmp_path / "span")
    return tmp_path / "span"


def test_each_split_is_the_sum_of_its_spans(saved, columns, tmp_path):
    out, told = tmp_path / "out", Told()
    out.mkdir()
    request = StatisticsRequest(columns=columns, splits={"train": (saved, saved, saved), "eval": (saved,)})
    result = merge(request, out, told)
    assert result["rows"] == {"train": 24, "eval": 8}
    assert told.done == [(3, 4, "spans"), (4, 4, "spans")]
    train = SplitStatistics.load(out / "train")
    assert result["columns"]["train"] == summary(train)
    assert train.columns["s"].top(1) == [(b"b", 9)] and train.columns["n"].zeros == 3
    found = statistics_pb2.DatasetFeatureStatisticsList.FromString((out / "statistics.pb").read_bytes())
    assert [(d.name, d.num_examples) for d in found.datasets] == [("train", 24), ("eval", 8)]


def test_a_summary_says_which_integers_are_dates(tmp_path):
    column = Column(name="day", type="int64", nullable=False, temporal="date")
    statistics_of([column], pa.record_batch({"day": pa.array([15_706, 15_707])})).save(tmp_path / "span")
    (tmp_path / "out").mkdir()
    request = StatisticsRequest(columns=[column], splits={"train": (tmp_path / "span",)})
    [day] = merge(request, tmp_path / "out", Monitor())["columns"]["train"]
    assert (day["temporal"], day["min"], day["type"]) == ("date", 15_706, "int64")


def test_a_stop_is_heard(saved, columns, tmp_path):
    stop = threading.Event()
    stop.set()
    with pytest.raises(Cancelled):
        merge(StatisticsRequest(columns=columns, splits={"train": (saved,)}), tmp_path, Monitor(stop))


def test_a_span_of_other_columns_is_named(saved, columns, tmp_path):
    with pytest.raises(DataError, match="different columns"):
        merge(StatisticsRequest(columns=columns[:1], splits={"train": (saved,)}), tmp_path, Monitor())


def test_the_message_holds_what_tfdv_shows(small):
    message = to_proto({"train": small})
    [dataset] = message.datasets
    assert (dataset.name, dataset.num_examples) == ("train", 8)
    n, x, s = dataset.features
    assert [list(feature.path.step) for feature in (n, x, s)] == [["n"], ["x"], ["s"]]
    kinds = statistics_pb2.FeatureNameStatistics
    assert [feature.type for feature in (n, x, s)] == [kinds.INT, kinds.FLOAT, kinds.STRING]
    common = x.num_stats.common_stats
    assert (common.num_missing, common.num_non_missing, common.tot_num_values) == (1, 7, 7)
    assert (common.min_num_values, common.max_num_values, common.avg_num_values) == (1, 1, 1.0)
    assert (x.num_stats.mean, x.num_stats.min, x.num_stats.max, x.num_stats.num_zeros) == (0.75, 0.0, 2.5, 2)
    assert [(v.value, v.frequency) for v in s.string_stats.top_values] == [("b", 3), ("a", 2), ("", 1), ("Zürich", 1)]
    assert s.string_stats.unique == 4 and s.string_stats.avg_length == pytest.approx(12 / 7)
    assert [b.sample_count for b in s.string_stats.rank_histogram.buckets] == [3, 2, 1, 1]
    assert [b.low_rank for b in s.string_stats.rank_histogram.buckets] == [0, 1, 2, 3]


@pytest.mark.parametrize("distinct", [1, 500, 200_000])
def test_histograms_cover_every_row_once(distinct):
    rows = 200_000
    values = (np.arange(rows) * 7919 % distinct) ** 2
    statistics = statistics_of([Column(name="n", type="int64", nullable=True)], pa.record_batch({"n": values}))
    [feature] = to_proto({"train": statistics}).datasets[0].features
    histograms = {h.type: h for h in feature.num_stats.histograms}
    kinds = statistics_pb2.Histogram
    assert set(histograms) == {kinds.STANDARD, kinds.QUANTILES}
    for histogram in histograms.values():
        buckets = histogram.buckets
        assert len(buckets) == 10
        assert (buckets[0].low_value, buckets[-1].high_value) == (values.min(), values.max())
        assert sum(bucket.sample_count for bucket in buckets) == pytest.approx(rows)
        assert all(a.high_value == b.low_value and a.low_value <= a.high_value for a, b in itertools.pairwise(buckets))
    counts = [bucket.sample_count for bucket in histograms[kinds.STANDARD].buckets]
    assert counts == pytest.approx(np.histogram(values, 10)[0], abs=0.005 * rows) or distinct == 1
    assert feature.num_stats.median == pytest.approx(np.median(values), rel=0.03)


def test_columns_without_numbers_have_a_message_too():
    message = to_proto({"empty": SplitStatistics.create([Column(name="x", type="float32", nullable=True)])})
    [feature] = message.datasets[0].features
    assert feature.num_stats.common_stats.num_non_missing == 0 and not feature.num_stats.histograms
