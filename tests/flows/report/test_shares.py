"""Bars of a column."""

from flows.report.charts import shares
from headway.schema.columns import Column
from headway.statistics.split_statistics import SplitStatistics


def test_columns_of_a_split_whose_rows_were_all_rejected_have_no_bars():
    statistics = SplitStatistics.create([Column(name="a", type="bytes", nullable=True)])
    assert shares([statistics.columns["a"], None]) is None
