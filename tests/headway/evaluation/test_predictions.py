"""Predictions of many rows are read as a random sample, the same of every model."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.report.verdict import explain
from headway.evaluation import predictions as reading
from headway.evaluation.config import GateConfig
from headway.evaluation.gate import decide
from headway.evaluation.measure import measure
from headway.evaluation.measured import Measured
from headway.evaluation.predictions import check_same_rows, population_size, read_predictions, unusable_text
from headway.evaluation.requests import Candidate, Champion, GateRequest, MeasureRequest
from headway.monitor import Monitor

ROWS, MOST = 40_000, 10_000


@pytest.fixture
def few(monkeypatch):
    """More than `MOST` rows are many."""
    monkeypatch.setattr(reading, "MOST_ROWS", MOST)
    monkeypatch.setattr(reading, "BATCH", 3_000)


def predictions(path, *, seed=0, bad=(), group=None, wide=False):
    r = np.random.default_rng(0)
    truth, noise = r.normal(size=ROWS), np.random.default_rng(seed).normal(size=ROWS)
    label = (r.random(ROWS) < 1 / (1 + np.exp(-truth))).astype(np.int64)
    prediction = 1 / (1 + np.exp(-truth - 0.5 * noise))
    prediction[list(bad)] = np.nan
    shown = pa.array(list(np.stack([1 - prediction, prediction], 1))) if wide else pa.array(prediction)
    columns = {"row": np.arange(ROWS), "label": label, "weight": np.ones(ROWS), "prediction": shown}
    columns |= {} if group is None else {"query": group}
    pq.write_table(pa.table(columns), path)
    return path


def test_a_sample_is_of_the_same_rows_for_every_model_and_says_how_many_there_are(tmp_path, few):
    ours, theirs = (read_predictions(predictions(tmp_path / f"{seed}.parquet", seed=seed)) for seed in (1, 2))
    assert abs(len(ours) - MOST) < 4 * np.sqrt(MOST) and population_size(ours) == ROWS
    check_same_rows(ours, theirs, "the others'", "")
    row = ours.column("row").to_numpy()
    assert (np.diff(row) > 0).all()
    assert abs(row.mean() - ROWS / 2) < 4 * ROWS / np.sqrt(12 * MOST)


def test_so_few_rows_are_all_read(tmp_path):
    table = read_predictions(predictions(tmp_path / "p.parquet"))
    assert len(table) == ROWS and population_size(table) is None


@pytest.mark.parametrize("wide", [False, True])
def test_predictions_that_are_not_numbers_are_counted_among_all_rows_and_do_not_change_the_sample(tmp_path, few, wide):
    usable = read_predictions(predictions(tmp_path / "usable.parquet", wide=wide))
    table = read_predictions(predictions(tmp_path / "p.parquet", bad=(4_567, 12_345, ROWS - 1), wide=wide))
    assert table.column("row") == usable.column("row")
    assert unusable_text(usable) is None
    assert unusable_text(table) == ("3 of 40,000 predictions that are not finite numbers, the first in row 4,567")


def test_a_model_without_some_predictions_is_measured_and_refused_beside_others_of_the_same_sample(tmp_path, few):
    bad, others = (
        predictions(tmp_path / f"{n}.parquet", seed=n, bad=range(5, ROWS, 1_500) if n == 1 else ()) for n in (1, 2)
    )
    measure(MeasureRequest(task="binary", predictions=bad, baselines={"linear": others}), tmp_path, Monitor())
    verdict = decide(
        GateRequest(task="binary", candidate=Candidate(model="new", predictions=bad), baselines={"linear": others})
    )
    assert verdict.status == "rejected"
    assert "27 of 40,000 predictions that are not finite numbers, the first in row 5" in str(explain(verdict).reasons)


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_a_sample_has_whole_groups_and_rows_without_a_group_one_by_one(tmp_path, few, kind):
    number = np.arange(ROWS) * 7919 % 4_000
    group = pa.array(np.where(number < 400, -1, number)).cast(kind)
    group = pa.array([None if str(each) == "-1" else each for each in group.to_pylist()], kind)
    table = read_predictions(predictions(tmp_path / "p.parquet", group=group), group="query")
    names, counts = np.unique(table.column("query").drop_null().to_numpy(), return_counts=True)
    assert (counts == 10).all() and 600 < len(names) < 1_200
    assert 700 < table.column("query").null_count < 1_300


def test_of_few_groups_rows_are_sampled_one_by_one(tmp_path, few):
    for name in "abcdef":
        group = [f"{name}{number % 8}" for number in range(ROWS)]
        table = read_predictions(predictions(tmp_path / "p.parquet", group=group), group="query")
        assert len(table.column("query").unique()) == 8 and abs(len(table) - MOST) < 4 * np.sqrt(MOST)


@pytest.mark.parametrize("giant", range(4))
def test_a_giant_group_is_sampled_row_by_row_beside_whole_ones(tmp_path, few, giant):
    group = [f"giant {giant}" if row % 2 else f"q{row // 20}" for row in range(ROWS)]
    table = read_predictions(predictions(tmp_path / "p.parquet", group=group), group="query")
    rows = Counter(table.column("query").to_pylist())
    assert abs(rows.pop(f"giant {giant}") - MOST / 2) < 4 * np.sqrt(MOST / 2)
    assert set(rows.values()) == {10} and abs(rows.total() - MOST / 2) < 4 * np.sqrt(10 * MOST / 2)


def test_metrics_of_a_sample_are_near_those_of_all_rows_and_its_rows_keep_their_numbers(tmp_path, few, monkeypatch):
    path = predictions(tmp_path / "p.parquet")
    request = MeasureRequest(task="binary", predictions=path)
    part = Measured.model_validate(measure(request, tmp_path, Monitor()))
    monkeypatch.setattr(reading, "MOST_ROWS", ROWS)
    whole = Measured.model_validate(measure(request, tmp_path, Monitor()))
    assert (part.rows < 1.1 * MOST, part.sample_of, whole.rows, whole.sample_of) == (True, ROWS, ROWS, None)
    for name in ("auc", "loss", "brier"):
        low, high = part.of(name).interval
        assert low < whole.of(name).value < high
        assert high - low > 1.8 * (whole.of(name).interval[1] - whole.of(name).interval[0])
    table = pq.read_table(path)
    for each in part.worst_rows:
        assert table.column("prediction")[each.row].as_py() == each.prediction


def test_the_gate_says_that_it_judges_a_sample(tmp_path, few):
    ours, theirs = (predictions(tmp_path / f"{seed}.parquet", seed=seed) for seed in (1, 2))
    verdict = decide(
        GateRequest(
            task="binary",
            candidate=Candidate(model="new", predictions=ours),
            champion=Champion(version=1, model="old", predictions=theirs, scored="before"),
            config=GateConfig(),
        )
    )
    wanted = [f"judged on a random sample of {verdict.rows:,} of {ROWS:,} rows"]
    assert [note.brief for note in explain(verdict).notes if "sample" in note.brief] == wanted
