"""Bars of a column, and the steps of a run."""

from flows.records import read_record
from flows.report.charts import shares
from flows.report.origin import what_ran
from headway.schema.columns import Column
from headway.statistics.split_statistics import SplitStatistics


def test_columns_of_a_split_whose_rows_were_all_rejected_have_no_bars():
    statistics = SplitStatistics.create([Column(name="a", type="bytes", nullable=True)])
    assert shares([statistics.columns["a"], None]) is None


def test_each_step_of_a_run_has_its_reason_and_its_output():
    began = {"run": "r", "pipeline": "p", "state": "done", "started": "", "seconds": 10.0}
    step = {"stage": "s", "fingerprint": "f", "seconds": 4.0}
    stages = [
        step | {"title": "a", "cached": True},
        step | {"title": "b", "cached": False, "why": {"kind": "never run"}},
    ]
    told = what_ran(read_record(began | {"stages": stages}))
    assert told.sentences == ["1 of 2 steps ran, 1 was reused; 10 s in all."]
    assert [list(row.values()) for row in told.tables[0]] == [
        ["a", "reused", "", "", "stages/s/f"],
        ["b", "ran", "4.0 s", "for the first time", "stages/s/f"],
    ]
