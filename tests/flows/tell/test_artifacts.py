"""What the Prefect UI shows, made without a server."""

import json
from pathlib import Path

from flows.dag.step import Output
from flows.tell.artifacts import (
    artifacts_of,
    column_rows,
    key_of,
    metrics_markdown,
    report_artifact,
    slice_rows,
    verdict_markdown,
)
from flows.tell.evaluation_tables import evaluation_tables

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
    "metrics": {"loss": 0.25, "auc": None, "confusion": [[1, 2], [3, 4]]},
    "by_slice": {"origin": {"EWR": {"rows": 700, "loss": 0.2, "auc": 0.91}, "JFK": {"rows": 600, "loss": 0.3}}},
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
    "titles": {"confusion": "rows by label and predicted class"},
    "tables": {"confusion": {"label": ["no"], "predicted": ["yes"], "rows": [7], "weight": [7.0]}, "roc": {"x": [1]}},
}
VERDICT = {
    "verdict": "rejected",
    "promote": False,
    "reasons": ["auc 0.8 is under 0.85"],
    "metrics": {"candidate": {"auc": 0.8, "loss": 0.4}, "champion": {"auc": 0.9, "loss": 0.3}},
}


def _output(stage, result, title=None):
    return Output(title or stage, stage, "f" * 32, Path("store"), result, hit=False)


def test_a_row_for_each_column_of_train():
    number, text = column_rows(STATISTICS)
    assert (number["column"], number["missing"], number["mean"], number["max"]) == (
        "dist",
        "1.00%",
        "1,045.23",
        "4,983",
    )
    assert number["most frequent"] == "2475 (740), 762 (672)"
    assert text["mean"] == "" and text["longest"] == "2"
    assert list(number) == list(text)  # one set of columns in the table
    json.dumps([number, text])


def test_a_frequent_float_has_no_more_digits_than_float32_holds():
    column = STATISTICS["columns"]["train"][0] | {"top": [[2.3929998874664307, 4], [1.5, 2]]}
    (row,) = column_rows({"columns": {"train": [column]}})
    assert row["most frequent"] == "2.393 (4), 1.5 (2)"


def test_figures_of_dates_and_times_are_dates_and_times():
    column = STATISTICS["columns"]["train"][0] | {
        "mean": 15706.5,
        "std": 2.0,
        "min": 15706,
        "p25": 15706.25,
        "max": 15710,
    }
    day = column | {"temporal": "date", "top": [[15706, 9]]}
    at, later = 1_357_034_400_000_000, 1_357_034_401_500_000
    time = column | {
        "temporal": "timestamp",
        "mean": later + 0.25,
        "std": 90e6,
        "min": at,
        "max": later,
        "top": [[later, 2]],
    }
    day, time = column_rows({"columns": {"train": [day, time]}})
    assert [day[name] for name in ("type", "mean", "std", "min", "p25", "max")] == [
        *("date", "2013-01-01", "2 days", "2013-01-01", "2013-01-01", "2013-01-05")
    ]
    assert day["most frequent"] == "2013-01-01 (9)" and day["distinct"] == 80
    assert [time[name] for name in ("type", "mean", "std", "min", "max")] == [
        *("timestamp", "2013-01-01 10:00:01", "2 min", "2013-01-01 10:00:00", "2013-01-01 10:00:01.500000")
    ]
    assert time["most frequent"] == "2013-01-01 10:00:01.500000 (2)"
    seconds = column | {
        "temporal": "epoch_seconds",
        "mean": at / 1e6 + 1.5,
        "std": 90.0,
        "min": at // 1_000_000,
        "top": [],
    }
    (seconds,) = column_rows({"columns": {"train": [seconds]}})
    assert [seconds[name] for name in ("mean", "std", "min")] == ["2013-01-01 10:00:01", "2 min", "2013-01-01 10:00:00"]


def test_numbers_that_are_none_are_counted_where_there_are_some():
    column = STATISTICS["columns"]["train"][0]
    some, no = column_rows({"columns": {"train": [column | {"nan": 1400, "infinite": 3}, column | {"nan": 0}]}})
    assert (some["nan"], some["infinite"]) == ("1,400", "3") and (no["nan"], no["infinite"]) == ("", "")


def test_an_estimate_says_its_error():
    column = STATISTICS["columns"]["train"][0] | {"distinct": 70_123, "distinct_error": 0.0313, "rank_error": 0.004}
    [row] = column_rows({"columns": {"train": [column]}})
    assert (row["distinct"], row["quantiles"]) == ("70,123 ±3%", "rank ±0.4%")
    [exact] = column_rows({"columns": {"train": [STATISTICS["columns"]["train"][0]]}})
    assert exact["distinct"] == STATISTICS["columns"]["train"][0]["distinct"] and exact["quantiles"] == ""


def test_a_row_for_each_anomaly():
    anomaly = {"severity": "error", "kind": "range", "column": "dist", "where": "train", "message": "m", "fix": None}
    result = {"anomalies": [anomaly], "errors": 1, "warnings": 0}
    [artifact] = artifacts_of(_output("validate", result))
    assert artifact.description == "1 error, 0 warnings"
    assert artifact.table == [anomaly | {"fix": ""}]
    assert artifacts_of(_output("validate", result | {"anomalies": []})) == []
    table = [{"split": "train", "rows": 3}]
    proven = result | {"anomalies": [], "splits": table, "proof": ["no id is in two splits"]}
    [artifact] = artifacts_of(_output("validate", proven))
    assert (artifact.key, artifact.table) == ("splits", table) and "no id is in two splits" in artifact.description


def test_metrics_are_those_that_are_one_number():
    text = metrics_markdown("evaluate", EVALUATION)
    assert "| loss | 0.25 |" in text and "| auc | undefined |" in text and "confusion" not in text
    assert slice_rows(EVALUATION)[0] == {"slice": "origin", "value": "EWR", "rows": 700, "loss": "0.2", "auc": "0.91"}


def test_an_evaluation_has_a_table_for_each_thing_that_it_says():
    found = dict(evaluation_tables(EVALUATION))
    assert list(found) == [
        "metrics on 1,975 rows, with 95% intervals; rows of one house are drawn together",
        "threshold for a recall of 0.9: 0.31, chosen on all eval rows",
        "by origin",
        "slices with a loss above that of all other rows, beyond chance: 1 (40 slices of 3 columns looked at)",
        "rows by label and predicted class",
        "--json also has the points of roc",
    ]
    first = next(iter(found.values()))[0]
    assert first == {"metric": "loss", "value": "0.25", "interval": "0.24 to 0.26", "constant": "0.4"}
    assert found["by origin"][0] == {"origin": "EWR", "rows": 700, "loss": "0.2", "auc": "0.91"}
    assert next(evaluation_tables(EVALUATION | {"confidence": 0.975}))[0].endswith(
        "97.5% intervals; rows of one house are drawn together"
    )
    fixed = {"rule": "as configured", "value": 0.3, "chosen_on": "no rows: the config names it"}
    titles = [title for title, _ in evaluation_tables(EVALUATION | {"threshold": fixed, "by_slice": {"size": {}}})]
    assert "threshold as configured: 0.3, chosen on no rows: the config names it" in titles
    assert "by size: no value has as many rows as evaluation.slice_min_rows asks for" in titles
    none = EVALUATION | {"worst_slices": {"tried": 40, "columns": 3, "significant": 0, "slices": []}, "threshold": None}
    assert any(title.startswith("no slice has a loss above") for title, _ in evaluation_tables(none))
    (artifact, _) = artifacts_of(_output("measure", EVALUATION))
    assert "| auc | undefined |  | 0.5 |" in artifact.markdown and "| LGA |" in artifact.markdown


def test_slices_have_their_intervals_beside_the_champions():
    figures = {"loss": 0.2, "intervals": {"loss": [0.1, 0.3]}}
    values = {f"v{n}": {"rows": 100 + n, **figures, "champion": figures} for n in range(20)}
    own = {"champion": {"intervals": {"loss": [0.2, 0.4]}}, "compared": ["loss"], "by_slice": {"kind": values}}
    found = dict(evaluation_tables(EVALUATION | own))
    rows = found["by kind, with 95% intervals beside the champion's, the 12 values with most rows"]
    assert len(rows) == 12 and rows[0]["kind"] == "v8"
    assert rows[0] | {"kind": ""} == {
        "kind": "",
        "rows": 108,
        "metric": "loss",
        "value": "0.2",
        "interval": "0.1 to 0.3",
        "champion": "0.2",
        "champion_interval": "0.1 to 0.3",
    }
    assert "champion" not in found["by kind"][0]
    assert next(iter(found.values()))[0]["champion_interval"] == "0.2 to 0.4"


def test_a_slice_of_a_column_that_is_named_as_a_figure_hides_no_figure():
    figures = {"rows": 700, "loss": 0.2, "intervals": {"loss": [0.1, 0.3]}}
    by = {name: {"v": figures} for name in ("rows", "loss", "metric", "value")}
    found = dict(evaluation_tables(EVALUATION | {"compared": ["loss"], "by_slice": by}))
    for name in ("rows", "loss"):
        assert found[f"by {name}"] == [{f"{name} (column)": "v", "rows": 700, "loss": "0.2"}]
    for name in ("rows", "metric", "value"):
        [row] = found[f"by {name}, with 95% intervals"]
        assert row.pop(f"{name} (column)") == "v"
        assert row == {"rows": 700, "metric": "loss", "value": "0.2", "interval": "0.1 to 0.3"}


def test_importance_is_a_table():
    columns = [{"column": "dist", "permuted": 0.2, "interval": [0.1, 0.3], "missing": None}]
    result = {"rows": 900, "metric": "auc", "value": 0.9, "columns": columns}
    [artifact] = artifacts_of(_output("importance", result))
    assert "how much worse auc (0.9) is without a column, on 900 rows, with 95% intervals" in artifact.description
    own = {**result, "columns": [{**columns[0], "interval": None}]}  # of a metric of the user's own
    assert artifacts_of(_output("importance", own))[0].description.endswith("900 rows")
    assert artifact.table == [{"column": "dist", "permuted": "0.2", "interval": "0.1 to 0.3", "missing": ""}]


def test_a_verdict_gives_its_reasons_and_both_models():
    text = verdict_markdown(VERDICT)
    assert "**not** promoted" in text and "- auc 0.8 is under 0.85" in text and "| auc | 0.8 | 0.9 |" in text
    assert "| champion" not in verdict_markdown(VERDICT | {"metrics": {"candidate": {"auc": 0.8}, "champion": None}})


def test_a_value_of_several_lines_stays_in_its_row():
    text = metrics_markdown("evaluate", {"rows": 3, "metrics": {"a|b\nc": 0.5}})
    assert text.splitlines()[-1] == "| a\\|b c | 0.5 |"


def test_steps_with_something_to_show_have_artifacts_of_their_own_key():
    found = [
        a.key for s, r in (("statistics", STATISTICS), ("measure", EVALUATION)) for a in artifacts_of(_output(s, r))
    ]
    assert found == ["statistics", "statistics-train", "evaluation", "evaluation-slices"]
    assert artifacts_of(_output("evaluate", EVALUATION)) == []
    assert artifacts_of(_output("measure", EVALUATION, "measure test"))[0].key == "evaluation-test"
    champion = artifacts_of(_output("evaluate", EVALUATION, "evaluate champion 3"))
    assert champion[0].key == "evaluation-champion"
    broken = artifacts_of(_output("evaluate", {"incompatible": "no column x"}, "evaluate champion 3"))
    assert "no column x" in broken[0].markdown
    assert artifacts_of(_output("export", {})) == []
    assert artifacts_of(_output("gate", VERDICT))[0].description == "rejected"


def test_keys_are_what_prefect_takes():
    assert key_of("My_Flights", "evaluation-slices") == "my-flights-evaluation-slices"


def test_where_a_report_lies_is_told_without_a_link_that_no_browser_follows():
    for place in ("/srv/churn/store/runs/20240501-100000-aa.html", "s3://bucket/runs/20240501-100000-aa.html"):
        text = report_artifact(place).markdown
        assert f"\n    {place}\n" in text and "](" not in text
        assert "\n    headway report 20240501-100000-aa --open\n" in text


def test_a_training_has_its_curves(tmp_path):
    points = [{"step": 10 * i, "loss": 1.0 / (i + 1), "holdout_loss": None if i % 2 else 0.5} for i in range(100)]
    (tmp_path / "history.json").write_text(json.dumps({"history": points}))
    result = {"steps": 1000, "best_step": 20}
    output = Output("train", "train", "f", tmp_path, result, hit=False)
    (artifact,) = artifacts_of(output)
    assert artifact.key == "curves" and "1,000 steps, best on the holdout at step 20" in artifact.markdown
    lines = artifact.markdown.splitlines()
    assert any(line.startswith("| loss | `█") and line.endswith("▁` |") for line in lines)
    rows = [line for line in lines if line.startswith("| ") and line[2].isdigit()]
    assert len(rows) == 20 and rows[0].startswith("| 0 | 1 |") and rows[-1].startswith("| 990 | 0.01 |")
    (tmp_path / "history.json").unlink()
    assert not artifacts_of(output), "a training whose file is in a bucket only"
