"""Headway from Python: a pipeline, its run, its versions, as the command line has them."""

import json
import os
import shutil
import signal
import threading

import pyarrow.parquet as pq
import pytest

import headway
from flows.api import reporting
from flows.cli.app import main
from headway.errors import ConfigError, DataError, StoreError


@pytest.fixture(scope="module")
def ran(exported_once, tmp_path_factory, forked):
    """(pipeline, its run, the lines that the run reported): promoted from a store in which all else was made."""
    folder = shutil.copytree(exported_once, tmp_path_factory.mktemp("api") / "project")
    pipeline, lines = headway.open(folder), []
    return pipeline, pipeline.run(progress=lines.append), lines


def test_a_run_has_its_verdict_metrics_tables_and_log(ran):
    pipeline, run, lines = ran
    assert (run.state, str(run.verdict), run.verdict.promote) == ("promoted", "first model", True)
    assert 0.5 < run.metrics["auc"] <= 1 and run.headline.startswith(
        "Version 1 is promoted, the first of this model: auc is "
    )
    assert any("replay" in line for line in lines) and "replay" in run.log
    statistics = run.statistics.to_arrow()
    assert {"split", "column", "rows", "mean", "top"} <= set(statistics.column_names)
    assert {row["metric"]: row["value"] for row in run.evaluation}["auc"] == run.metrics["auc"]
    assert all(row["low"] <= row["value"] <= row["high"] for row in run.evaluation if row["metric"] == "auc")
    assert [row["title"] for row in run.steps][-1] == "replay" and (run.output("train") / "history.json").is_file()
    assert run.report is None or run.report.read_text().startswith("<!")
    assert run.name in repr(pipeline.last_run()) and pipeline.runs()[0].name == run.name
    for shown in (pipeline, run, run.verdict, run.model, run.statistics):
        assert "<" in shown._repr_html_()


def test_the_command_line_says_the_same(ran, capsys):
    pipeline, run, _ = ran
    folder = str(pipeline.file.parent)
    assert main(["show", folder, run.name, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown.pop("outputs") == {row["title"]: row["output"] for row in run.steps}
    assert shown == pipeline.last_run(run.name).record
    assert main(["plan", folder, "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert [(s["step"], not s["cached"]) for s in steps] == [(row["step"], row["runs"]) for row in pipeline.plan()]
    assert main(["models", folder, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[pipeline.name]["champion"] == pipeline.champion.number


def test_rows_in_memory_are_predicted_as_files_are(ran, tmp_path):
    pipeline, run, _ = ran
    file = pipeline.file.parent / "data" / "2013-04.parquet"
    table = pq.read_table(file).slice(0, 300)
    pq.write_table(table, tmp_path / "rows.parquet")
    result = pipeline.predict(tmp_path / "rows.parquet", tmp_path / "out", progress=False)
    by_job = pq.read_table(tmp_path / "out" / result["parts"][0]["file"])["prediction"].to_pylist()
    assert run.model.predict(table).to_arrow()["prediction"].to_pylist() == by_job
    few = table.slice(0, 3)
    for rows in (few.to_pydict(), few.to_pylist()):
        assert [row["prediction"] for row in run.model.predict(rows)] == by_job[:3]
    with pytest.raises(DataError, match="there is no column"):
        run.model.predict({"dep_delay": [1.0]})
    with pytest.raises(DataError, match="1 of 3 rows cannot be predicted"):
        run.model.predict(few.to_pydict() | {"distance": ["5", "a mile", "7"]})
    with pytest.raises(DataError, match="given int"):
        run.model.predict(5)


def test_versions_are_named_moved_and_compared(ran):
    pipeline, run, _ = ran
    version = pipeline.promote(1, alias="stable")
    assert (version.number, pipeline.champion.names) == (1, ["champion", "stable"])
    assert pipeline.version("stable").lineage["run"]["run"] == run.name
    assert [v.number for v in pipeline.versions()] == [1] and "1 of flights" in str(version)
    with pytest.raises(StoreError):
        pipeline.rollback()
    with pytest.raises(ConfigError, match="the same version"):
        pipeline.compare(1, "stable")
    assert len(pipeline.clean()) == 0


@pytest.mark.slow
def test_tune_is_what_its_command_prints(ran):
    pytest.importorskip("optuna")
    pipeline, _, _ = ran
    lines = []
    found = headway.open(pipeline.file, set={"tune.space": {"training.learning_rate": [1e-5, 0.02]}}).tune(
        trials=1, progress=lines.append
    )
    (trial,) = found["trials"]
    assert trial["state"] == "complete" and trial["params"]["training.learning_rate"] in (1e-5, 0.02)
    assert found["base"]["loss"] > 0 and (found["best"] is None) == (trial["loss"] >= found["base"]["loss"])
    assert any("own settings, on the holdout" in line for line in lines) and json.dumps(found)
    assert pipeline.champion.number == 1, "tuning promotes nothing"


def test_what_a_run_does_not_have_is_said_with_the_fix(ran):
    pipeline, _, _ = ran
    run = pipeline.run(last="validate", progress=False)
    assert run.state == "done" and run.verdict is None and run.metrics == {}
    with pytest.raises(StoreError, match="has no version of the model: The run ended after validate"):
        _ = run.model
    with pytest.raises(StoreError, match=r"has no measure.*\n.*it has ingest, statistics"):
        _ = run.evaluation


def test_a_mistake_is_a_headway_error(tmp_path):
    with pytest.raises(ConfigError, match=r"pipeline\.yaml"):
        headway.open(tmp_path)
    (tmp_path / "pipeline.yaml").write_text("name: p\nsource: {format: csv, path: d.csv}\nlabel: y\n")
    with pytest.raises(ConfigError, match="stps"):
        headway.open(tmp_path, set={"training.stps": 3})
    pipeline = headway.open(tmp_path, set={"training.steps": 3})
    assert pipeline.config["training"]["steps"] == 3 and pipeline.champion is None and pipeline.runs() == []
    with pytest.raises(StoreError, match="there is no run yet"):
        pipeline.last_run()
    with pytest.raises(AttributeError, match="has no attribute 'opne'"):
        _ = headway.opne


def test_ctrl_c_asks_for_a_clean_stop_and_the_handler_is_put_back():
    before = signal.getsignal(signal.SIGINT)
    with reporting(False) as report:
        os.kill(os.getpid(), signal.SIGINT)
        assert report.stop.wait(5)
        with pytest.raises(KeyboardInterrupt):  # a second one ends it at once
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    other = threading.Thread(target=lambda: reporting(False).__enter__())
    other.start()
    other.join()
    assert signal.getsignal(signal.SIGINT) is before
