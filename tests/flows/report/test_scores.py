"""The evaluation's figures are of the rows that were measured."""

import numpy as np

from flows.report.charts import tables_of
from flows.report.evaluation import evaluation
from flows.report.results import RunResults
from headway.evaluation import predictions
from headway.evaluation.predictions import read_predictions
from tests.flows.report.recorded import recorded


def test_of_many_rows_of_a_ranking_figures_are_of_the_sample_that_was_measured(tmp_path, monkeypatch):
    results = RunResults(*recorded(tmp_path, ranked=True))
    monkeypatch.setattr(predictions, "MOST_ROWS", 400)  # of 700, in five groups
    monkeypatch.setattr(predictions, "_GROUP_SHARE", 1)
    drawn = []
    monkeypatch.setattr(
        "flows.report.evaluation.tables_of", lambda task, rows: drawn.append(rows.prediction) or tables_of(task, rows)
    )
    evaluation(results)
    file = results.file("evaluate champion 3", "p.parquet")
    measured, otherwise = (
        read_predictions(file, ("city",), group=group).column("prediction").to_numpy() for group in ("city", None)
    )
    assert np.array_equal(drawn[0], measured) and not np.array_equal(measured, otherwise)
