"""The small pictures in the report's tables."""

import re

from flows.records import read_record
from flows.report.charts import shares
from flows.report.origin import what_ran
from headway.schema.columns import Column
from headway.statistics.split_statistics import SplitStatistics


def test_columns_of_a_split_whose_rows_were_all_rejected_have_no_bars():
    statistics = SplitStatistics.create([Column(name="a", type="bytes", nullable=True)])
    assert shares([statistics.columns["a"], None]) is None


def test_the_steps_of_a_run_stand_where_they_ran():
    began = {"run": "r", "pipeline": "p", "state": "done", "started": "", "seconds": 10.0}
    step = {"stage": "s", "fingerprint": "f", "cached": False}
    stages = [step | {"title": "a", "seconds": 4.0, "at": 4.0}, step | {"title": "b", "seconds": 5.0, "at": 10.0}]

    def boxes(record):
        rows = what_ran(record).tables[0].rows
        return [
            tuple(float(re.search(f' {name}="([^"]+)"', row["when"])[1]) for name in ("x", "width")) for row in rows
        ]

    (a, b) = boxes(read_record(began | {"stages": stages}))
    assert a == (0, 48) and b == (60, 60), "of 120 points: 0 to 4 s, 5 to 10 s"
