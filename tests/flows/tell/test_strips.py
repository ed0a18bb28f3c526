"""The small pictures in the report's tables."""

from flows.tell.figures.column_charts import histograms
from flows.tell.figures.strips import Strips
from headway.schema.columns import Column
from headway.statistics.split_statistics import SplitStatistics


def test_columns_of_a_split_whose_rows_were_all_rejected_have_empty_pictures():
    statistics = SplitStatistics.create([Column(name="a", type="bytes", nullable=True)])
    empty = Strips(1, height=26).svgs()
    assert histograms([(statistics.columns["a"], None)]) == empty
