"""What a finished step came to, as a part that the terminal and Prefect's UI show."""

import json
from pathlib import Path

from flows.pipeline.listeners import line_of
from flows.report.data import column_rows
from flows.report.evaluation import importance_table
from flows.report.markdown import markdown
from flows.report.page import artifact_key, step_section
from flows.report.text import text
from headway.stages.step import Output
from headway.statistics.summary import ColumnSummary
from tfcore.evaluation.request import Importance

STATISTICS = {
    "rows": {"train": 1200, "eval": 300},
    "columns": {
        "train": [
            {"column": "dist", "type": "int64", "rows": 1200, "missing": 12, "missing_share": 0.01, "distinct": 80}
            | {"mean": 1045.2346, "std": 735.5, "min": 80, "p25": 502.0, "median": 888.0, "p75": 1389.0, "max": 4983}
            | {"top": [[2475, 740], [762, 672]]},
            {"column": "carrier", "type": "bytes", "rows": 1200, "missing": 0, "missing_share": 0.0, "distinct": 16}
            | {"shortest": 2, "longest": 2, "top": [["U|A", 384]]},
        ],
        "eval": [],
    },
}
EVALUATION = {
    "task": "binary",
    "confidence": 0.95,
    "rows": 1975,
    "metrics": {"loss": 0.25, "auc": None},
    "by_slice": {
        "origin": {
            "EWR": {"rows": 700, "metrics": {"loss": 0.2, "auc": 0.91}},
            "JFK": {"rows": 600, "metrics": {"loss": 0.3}},
        }
    },
    "intervals": {"loss": [0.24, 0.26], "auc": None},
    "drawn_by": "rows of one house are drawn together",
    "baselines": {"constant": {"loss": 0.4, "auc": 0.5}},
    "threshold": {
        "rule": "a recall of 0.9",
        "value": 0.31,
        "chosen_on": "all eval rows",
        "metrics": {"recall": 0.89},
        "intervals": {"recall": [0.87, 0.91]},
    },
    "worst_slices": {
        "tried": 40,
        "columns": 3,
        "significant": 1,
        "slices": [
            {"slice": "origin", "value": "LGA", "rows": 90, "loss": 0.5, "loss_of_others": 0.2, "p_adjusted": 0.001}
        ],
    },
    "tables": {"confusion": {"label": ["no"], "predicted": ["yes"], "rows": [7], "weight": [7.0]}, "roc": {"x": [1]}},
}


def _output(stage, result, title=None):
    return Output(title or stage, stage, "f" * 32, Path("store"), result, hit=False)


def _rows(*columns):
    return column_rows(map(ColumnSummary.model_validate, columns))


def test_a_row_for_each_column_of_train():
    number, text = _rows(*STATISTICS["columns"]["train"])
    wanted = ("dist", "1.00%", "1,045.23", "4,983")
    assert (number["column"], number["missing"], number["mean"], number["max"]) == wanted
    assert number["most frequent"] == "2475 (740), 762 (672)"
    assert text["mean"] == "" and text["longest"] == "2"
    assert list(number) == list(text)  # one set of columns in the table
    json.dumps([number, text])


def test_a_frequent_float_has_no_more_digits_than_float32_holds():
    column = STATISTICS["columns"]["train"][0] | {"top": [[2.3929998874664307, 4], [1.5, 2]]}
    (row,) = _rows(column)
    assert row["most frequent"] == "2.393 (4), 1.5 (2)"


def test_figures_of_dates_and_times_are_dates_and_times():
    column = STATISTICS["columns"]["train"][0]
    day = {"temporal": "date", "mean": 15706.5, "std": 2.0, "min": 15706, "p25": 15706.25, "top": [[15706, 9]]}
    at, later = 1_357_034_400_000_000, 1_357_034_401_500_000
    time = {"temporal": "timestamp", "mean": later + 0.25, "std": 90e6, "min": at, "max": later, "top": [[later, 2]]}
    seconds = {"temporal": "epoch_seconds", "mean": at / 1e6 + 1.5, "std": 90.0, "min": at // 1_000_000, "top": []}
    day, time, seconds = _rows(column | day, column | time, column | seconds)
    wanted = [*("date", "2013-01-01", "2 days", "2013-01-01", "2013-01-01", "2013-01-01 (9)")]
    assert [day[name] for name in ("type", "mean", "std", "min", "p25", "most frequent")] == wanted
    assert day["distinct"] == 80
    wanted = [*("timestamp", "2013-01-01 10:00:01", "2 min", "2013-01-01 10:00:00", "2013-01-01 10:00:01.500000")]
    assert [time[name] for name in ("type", "mean", "std", "min", "max")] == wanted
    assert time["most frequent"] == "2013-01-01 10:00:01.500000 (2)"
    assert [seconds[name] for name in ("mean", "std", "min")] == ["2013-01-01 10:00:01", "2 min", "2013-01-01 10:00:00"]


def test_numbers_that_are_none_are_counted_where_there_are_some():
    column = STATISTICS["columns"]["train"][0]
    some, no = _rows(column | {"nan": 1400, "infinite": 3}, column | {"nan": 0})
    assert (some["nan"], some["infinite"]) == (1400, 3) and (no["nan"], no["infinite"]) == (None, None)


def test_an_estimate_says_its_error():
    column = STATISTICS["columns"]["train"][0] | {"distinct": 70_123, "distinct_error": 0.0313, "rank_error": 0.004}
    [row] = _rows(column)
    assert (row["distinct"], row["quantiles"]) == ("70,123 ±3%", "rank ±0.4%")
    [exact] = _rows(STATISTICS["columns"]["train"][0])
    assert exact["distinct"] == STATISTICS["columns"]["train"][0]["distinct"] and exact["quantiles"] == ""


def test_validation_says_what_it_found_and_how_the_splits_are_proven():
    anomaly = {
        "severity": "error",
        "kind": "range",
        "column": "dist",
        "where": "train",
        "message": "m",
        "fix": "mend it",
    }
    result = {"anomalies": [anomaly], "errors": 1, "warnings": 0}
    part = step_section(_output("validate", result))
    assert part.sentences == ["1 error, 0 warnings"] and "- error: m" in markdown(part)
    assert "  error: m\n    fix: mend it" in text(part)
    assert step_section(_output("validate", result | {"anomalies": []})) is None
    table = [{"split": "train", "rows": 3}]
    proven = step_section(
        _output("validate", result | {"anomalies": [], "splits": table, "proof": ["no id is in two splits"]})
    )
    assert "| split | rows |" in markdown(proven) and "No id is in two splits." in text(proven)


def test_the_statistics_are_a_table_for_each_split_that_has_columns():
    part = step_section(_output("statistics", STATISTICS))
    assert [table.title for table in part.tables] == ["splits", "columns of the train split, 1,200 rows"]
    assert "U\\|A (384)" in markdown(part) and "U|A (384)" in text(part)


def test_an_evaluation_has_a_table_for_each_thing_that_it_says():
    part = step_section(_output("measure", EVALUATION))
    assert part.sentences[0] == "On 1,975 eval rows, which the training did not see."
    assert part.sentences[1] == "Intervals: rows of one house are drawn together."
    assert [table.title for table in part.tables] == [
        "Metrics",
        "Threshold for a recall of 0.9: 0.31, chosen on all eval rows",
        "Slices",
        "Where the model is worst",
        "Confusion matrix",
    ]
    assert "| auc | undefined |  | 0.5 |" in markdown(part) and "| origin=LGA |" in markdown(part)
    slices = text(part).split("\nSlices\n")[1]
    assert "origin=JFK" in slices and "0.3" in slices
    fixed = {"rule": "as configured", "value": 0.3, "chosen_on": "no rows: the config names it"}
    spans = {"spans": ["2026-01", "2026-02"]}
    said = "On 1,975 eval rows of 2026-01 to 2026-02, which"
    assert said in text(step_section(_output("measure", EVALUATION | spans)))
    titles = [table.title for table in step_section(_output("measure", EVALUATION | {"threshold": fixed})).tables]
    assert "Threshold as configured: 0.3, chosen on no rows: the config names it" in titles
    assert step_section(_output("measure", EVALUATION, "measure test")).title == "Evaluation on the test split"


def test_other_models_have_their_metrics_or_why_they_have_none():
    result = EVALUATION | {"baselines": {"constant": "constant.parquet"}}
    champion = step_section(_output("evaluate", result, "evaluate champion 3"))
    assert "| auc | undefined |" in markdown(champion) and "confusion" not in markdown(champion)
    broken = step_section(_output("evaluate", {"incompatible": "no column x"}, "evaluate champion 3"))
    assert "no column x" in text(broken)
    assert step_section(_output("evaluate", result)) is None and step_section(_output("export", {})) is None


def test_columns_that_matter_stand_in_their_order():
    columns = [{"column": "x", "permuted": 0.3, "interval": [0.2, 0.4]}]
    result = {"metric": "auc", "value": 0.9, "rows": 900, "columns": columns}
    table = importance_table(Importance.model_validate(result))
    assert table.title.endswith("on 900 rows, with 95% intervals")
    row = {name: value for name, value in table[0].items() if name != "picture"}
    assert row == {"column": "x", "worse by": "0.3", "interval": "0.2 to 0.4"}
    own = result | {"columns": [columns[0] | {"interval": None}]}
    assert importance_table(Importance.model_validate(own)).title.endswith("900 rows")


def test_each_kind_of_step_has_a_name_of_its_own():
    titles = {"evaluate": "evaluate champion 3", "measure": "measure test"}
    keys = [artifact_key(_output(stage, {}, title)) for stage, title in titles.items()]
    assert keys == ["evaluation-champion", "evaluation-test"]
    assert [artifact_key(_output(stage, {})) for stage in ("validate", "statistics")] == ["validation", "statistics"]


def test_a_cell_stays_in_its_row_and_column():
    assert "| a\\|b c | 0.5 |" in markdown(
        step_section(_output("evaluate", {"rows": 3, "metrics": {"a|b\nc": 0.5}}, "evaluate seed 1"))
    )


def test_the_line_of_a_training_has_its_speed_in_whole_steps():
    def line(speed):
        result = {"steps": 100, "final_loss": 0.5, "steps_per_second": speed}
        return line_of(Output("train", "train", "0", Path(), result, hit=False))

    said = [line(speed).partition("100 steps, loss 0.5")[2] for speed in (3720.2, 2.345, None)]
    assert said == [", 3,720 steps/s", ", 2.3 steps/s", ""]
