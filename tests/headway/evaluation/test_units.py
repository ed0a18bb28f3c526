"""What the split keeps together is drawn together, wherever rows are resampled."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.report.verdict import explain
from headway.evaluation.baseline import compare_with_baseline
from headway.evaluation.config import GateConfig
from headway.evaluation.gate import decide
from headway.evaluation.predictions import UNIT, rows_of
from headway.evaluation.requests import Candidate, Champion, GateRequest
from headway.evaluation.threshold import ThresholdRule
from headway.evaluation.threshold import decide_rows as decided
from headway.evaluation.tolerance import Margins, within_tolerances
from headway.evaluation.units import SplitUnits, with_resampling_units
from headway.metrics.ranking import GroupMetric
from headway.monitor import Monitor
from headway.tasks.base import LabelFacts
from headway.tasks.table import task_of
from tests.headway.evaluation.arrays import results_of
from tests.headway.evaluation.test_few_groups import clustered

BINARY = task_of("binary")
PATIENTS = SplitUnits(key="patient")


def tables(units=60, size=20, *, seed=0, effect=2.0):
    """The predictions of two equal models; rows of one unit are alike. Shuffled, so that a unit's rows are apart."""
    label, a, b, unit = clustered(units, size, effect=effect, seed=seed)
    order = np.random.default_rng(seed).permutation(len(label))
    shared = {"label": label[order], UNIT: unit[order], "unit": unit[order], "size": order % 2}
    return [pa.table(shared | {"prediction": each[order]}) for each in (a, b)]


def versus(candidate, champion, *, group=None, units=SplitUnits(), **options):
    rows, _ = with_resampling_units(units, candidate, rows_of(candidate, BINARY, group), group=group)
    before = rows.predicted(rows_of(champion, BINARY).prediction)
    judging = {metric.name: metric for metric in BINARY.metrics}
    margins = Margins(BINARY, {"auc": 0.0, "loss": 0.0}, None, before, judging=judging)
    return within_tolerances(
        candidate, rows, before, margins=margins, config=GateConfig(), monitor=Monitor(), **options
    )


def test_a_row_without_a_unit_is_alone_and_units_of_one_row_are_no_units():
    table = pa.table({"label": [0.0, 1.0, 1.0, 0.0], "prediction": [0.1, 0.2, 0.3, 0.4]})
    rows = rows_of(table.append_column(UNIT, pa.array([7, 7, None, None], pa.int64())), "binary")
    assert rows.resample_unit[0] == rows.resample_unit[1] and len({*rows.resample_unit}) == 3 and rows.groups is None
    assert rows_of(table.append_column(UNIT, pa.array([3, 2, None, None], pa.int64())), "binary").resample_unit is None
    assert rows_of(table, "binary").resample_unit is None


@pytest.mark.parametrize(
    ("units", "drawn"), [([1, 1, 1, 1, 2, 2], 2), ([1, 1, 2, 2, 3, 3], 3), ([1, 2, 1, 2, 1, 2], 3)]
)
def test_groups_are_drawn_with_their_unit_unless_it_cuts_through_them(units, drawn):
    table = pa.table({"label": [0.0, 1.0] * 3, "prediction": [0.1, 0.2] * 3, "query": list("aabbcc"), UNIT: units})
    rows = rows_of(table, "binary", "query")
    assert len(np.unique(rows.resample_unit)) == drawn and len(np.unique(rows.groups)) == 3
    assert GroupMetric("ndcg", 2).cached_value(rows) == 1.0


def test_comparisons_slices_and_intervals_draw_by_the_unit_as_by_a_group():
    ours, theirs = tables()
    plain = versus(ours.drop_columns([UNIT]), theirs, slices=("size",))
    by_unit = versus(ours, theirs, slices=("size",), units=PATIENTS)
    by_group = versus(ours.drop_columns([UNIT]), theirs, slices=("size",), group="unit")
    for at, other, narrow in zip(
        (*by_unit.overall, *by_unit.slices),
        (*by_group.overall, *by_group.slices),
        (*plain.overall, *plain.slices),
        strict=True,
    ):
        assert (at.error, at.interval) == (pytest.approx(other.error), pytest.approx(other.interval))
        assert min(each.error for each in (at, other)) > 1.5 * narrow.error
    measured = results_of(ours, "binary", slices=("size",), units=PATIENTS)
    assert measured["drawn_by"] == "rows of one patient are drawn together (60 of them)"
    grouped = results_of(ours.drop_columns([UNIT]), "binary", slices=("size",), group="unit")
    for one, other in (
        (measured, grouped),
        *zip(*(each["by_slice"]["size"].values() for each in (measured, grouped)), strict=True),
    ):
        for name, interval in one["intervals"].items():
            assert interval == pytest.approx(other["intervals"][name])


def test_a_baseline_is_told_apart_by_units():
    ours, theirs = tables(units=30, size=100)
    rows, others = rows_of(ours, "binary"), rows_of(theirs, "binary").prediction
    options = {"name": "linear", "confidence": 0.95}
    alone = rows_of(ours.drop_columns([UNIT]), "binary")
    assert compare_with_baseline(alone, others, BINARY.metric("loss"), **options).outcome == "better"
    assert compare_with_baseline(rows, others, BINARY.metric("loss"), **options).outcome == "cannot tell"


def test_a_unit_is_decided_by_one_threshold():
    ours, _ = tables(units=25, size=100)

    def torn(table):
        """Units of which a row is flagged and another one of a higher score is not."""
        rows = rows_of(table, "binary")
        flagged = decided(ThresholdRule(f1=True), rows).rows.prediction > 0
        score, unit = rows.prediction, ours["unit"].to_numpy()
        each = (unit == number for number in range(25))
        return sum(score[at & ~flagged].max(initial=0) >= score[at & flagged].min(initial=1) for at in each)

    assert torn(ours) == 0 and torn(ours.drop_columns([UNIT])) > 0


def test_the_verdict_of_the_gate_and_the_worth_that_a_version_keeps_are_of_units(tmp_path):
    for name, table in zip(("a", "b"), tables(units=40, size=50), strict=True):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    verdict = decide(
        GateRequest(
            task="binary",
            candidate=Candidate(model="new", predictions=tmp_path / "a.parquet", train=(("2", "all"),)),
            champion=Champion(version=1, model="old", predictions=tmp_path / "b.parquet", train=(("1", "all"),)),
            label=LabelFacts(counts=(700, 300)),
            baselines={"linear": tmp_path / "b.parquet"},
            units=PATIENTS,
        )
    )
    assert all(0 < each["freedom"] <= 39 for each in verdict.worth.values())
    assert "rows of one patient are drawn together (40 of them)" in explain(verdict).sentences
    assert any("cannot be told apart" in reason for reason in explain(verdict).sentences)
