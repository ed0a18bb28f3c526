"""Headway from Python: a pipeline, its runs and its versions, as the command line has them."""

import json
import os
import shutil
import signal
import threading

import pyarrow.parquet as pq
import pytest

import headway
from flows.api import _reporting
from flows.cli.app import main
from headway.errors import ConfigError, DataError, StoreError


@pytest.fixture(scope="module")
def ran(exported_once, tmp_path_factory, forked):
    """(pipeline, its run): promoted from a store in which all else was made."""
    folder = shutil.copytree(exported_once, tmp_path_factory.mktemp("api") / "project")
    pipeline = headway.open(folder)
    return pipeline, pipeline.run(progress=False)


def test_a_run_has_its_verdict_metrics_record_and_outputs(ran):
    pipeline, run = ran
    assert (run.state, run.version) == ("promoted", 1) and run.verdict.startswith("promoted: there is no champion yet")
    assert 0.5 < run.metrics["auc"] <= 1
    assert run.headline.startswith("Version 1 is promoted, the first of this model: auc")
    assert run.record["stages"][-1]["title"] == "replay" and (run.output("train") / "history.json").is_file()
    assert run.report is None or run.report.read_text().startswith("<!")
    assert pipeline.runs()[0].name == run.name in repr(run) and "flights" in repr(pipeline)


def test_the_command_line_says_the_same(ran, capsys):
    pipeline, run = ran
    folder = str(pipeline.file.parent)
    assert main(["show", folder, run.name, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown.pop("outputs")["train"] == str(run.output("train"))
    assert shown.pop("headline") == run.headline and all(reason in run.verdict for reason in shown.pop("reasons"))
    assert shown == pipeline.runs()[0].record
    assert main(["plan", folder, "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert [(s["step"], s["cached"]) for s in steps] == [(s.step, s.cached) for s in pipeline.plan().steps]
    assert main(["models", folder, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[pipeline.name]["champion"] == pipeline.version().number


def test_rows_in_memory_are_predicted_as_files_are(ran, tmp_path):
    pipeline, _ = ran
    file = pipeline.file.parent / "data" / "2013-04.parquet"
    table = pq.read_table(file).slice(0, 300)
    pq.write_table(table, tmp_path / "rows.parquet")
    result = pipeline.predict_files(tmp_path / "*.parquet", tmp_path / "out", progress=False)
    by_job = pq.read_table(tmp_path / "out" / result["parts"][0]["file"])["prediction"].to_pylist()
    assert pipeline.predict(table)["prediction"].to_pylist() == by_job
    few = table.slice(0, 3)
    for rows in (few.to_pydict(), few.to_pylist()):
        assert pipeline.version(1).predict(rows)["prediction"].to_pylist() == by_job[:3]
    with pytest.raises(DataError, match="there is no column"):
        pipeline.predict({"dep_delay": [1.0]})
    with pytest.raises(DataError, match="1 of 3 rows cannot be predicted"):
        pipeline.predict(few.to_pydict() | {"distance": ["5", "a mile", "7"]})
    with pytest.raises(DataError, match="given int"):
        pipeline.predict(5)
    with pytest.raises(StoreError, match="7"):
        pipeline.predict(few, model=7)


def test_versions_have_their_names_and_metrics(ran):
    pipeline, run = ran
    assert main(["promote", str(pipeline.file.parent), "--to", "1", "--alias", "stable"]) == 0
    (version,) = pipeline.versions()
    assert (version.number, version.names) == (1, ["champion", "stable"]) and version.metrics == run.metrics
    assert pipeline.version("stable").number == 1 and "1 of flights" in repr(version)
    assert (version.saved_model / "saved_model.pb").is_file()


def test_what_a_run_does_not_have_is_said_with_the_fix(ran):
    pipeline, _ = ran
    run = pipeline.run(last="validate", progress=False)
    assert (run.state, run.verdict, run.metrics, run.version) == ("done", None, {}, None)
    said = r"has no measure: The run ended after validate.*\n.*it has ingest, statistics"
    with pytest.raises(StoreError, match=said):
        run.output("measure")


def test_a_mistake_is_a_headway_error(tmp_path):
    with pytest.raises(ConfigError, match=r"pipeline\.yaml"):
        headway.open(tmp_path)
    (tmp_path / "pipeline.yaml").write_text("name: p\nsource: {format: csv, path: d.csv}\nlabel: y\n")
    with pytest.raises(ConfigError, match="stps"):
        headway.open(tmp_path, set={"training.stps": 3})
    pipeline = headway.open(tmp_path, set={"training.steps": 3})
    assert pipeline.versions() == pipeline.runs() == []
    with pytest.raises(StoreError, match="champion"):
        pipeline.version()
    with pytest.raises(AttributeError, match="has no attribute 'opne'"):
        _ = headway.opne


def test_ctrl_c_asks_for_a_clean_stop_and_the_handler_is_put_back():
    before = signal.getsignal(signal.SIGINT)
    with _reporting(False) as report:
        os.kill(os.getpid(), signal.SIGINT)
        assert report.stop.wait(5)
        with pytest.raises(KeyboardInterrupt):  # a second one ends it at once
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    other = threading.Thread(target=lambda: _reporting(False).__enter__())
    other.start()
    other.join()
    assert signal.getsignal(signal.SIGINT) is before
