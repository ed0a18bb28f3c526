"""`window:` of pipeline.yaml: the same spans, whoever starts the pipeline; one that is named for a call wins."""

import json
import os
import shutil
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import headway as from_python
from flows.cli.app import main
from flows.config.pipeline import read_pipeline
from flows.config.window import choose_window
from flows.pipeline.monitor import Monitoring
from flows.records import SpanCheck
from headway.errors import ConfigError

MONTHS = [f"2024-0{month}" for month in range(1, 6)]
PIPELINE = {
    "name": "churn",
    "source": {"format": "parquet", "path": "data/{span}.parquet"},
    "label": "y",
    "split": {"mode": "time"},
    "arrival": {"quiet_minutes": 0},
}


class Seen(BaseException):
    """The window that an execution was about to work on."""


@pytest.fixture
def churn(tmp_path, monkeypatch):
    """write(**sections) -> the folder of a pipeline of five months; what would run it raises Seen with its spans."""
    (tmp_path / "data").mkdir()
    for month in MONTHS:
        file = tmp_path / "data" / f"{month}.parquet"
        pq.write_table(pa.table({"x": np.arange(50.0), "y": np.arange(50) % 2}), file)
        os.utime(file, (1e9, 1e9))

    def seen(loaded, spans, files, **more):
        raise Seen([*spans])

    def write(**sections):
        (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(PIPELINE | sections))
        return tmp_path

    monkeypatch.setattr("flows.pipeline.context.resolve", seen)
    monkeypatch.setattr("flows.pipeline.run.begin_import", lambda: None)  # of Beam, for an ingest that never comes
    return write


def _spans(call, *arguments, **parameters):
    with pytest.raises(Seen) as caught:
        call(*arguments, **parameters)
    return caught.value.args[0]


COMMANDS = [["run"], ["plan"], ["run", "--to", "statistics"], ["run", "--to", "export"], ["monitor", "--retrain"]]
COMMANDS += [["backfill", "--from", "2024-05"], ["tune"]]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_every_command_takes_the_window_of_the_pipeline_unless_one_is_named(command, churn, monkeypatch):
    drifted = SpanCheck(span="2024-06", champion=1, drift=("column 'x' is lost",))
    alarm = Monitoring(pipeline="churn", champion=1, spans=(drifted,))
    monkeypatch.setattr("flows.pipeline.monitor.check_champion", lambda context, report: alarm)
    name, *more = command
    folder = churn(window=3)

    def typed(*options):
        shutil.rmtree(folder / "store", ignore_errors=True)
        return _spans(main, [name, str(folder), *more, *options])

    assert typed() == MONTHS[-3:]
    assert typed("--window", "2") == MONTHS[-2:]
    assert typed("--window", "all") == MONTHS
    assert typed("--set", "window=4m") == MONTHS[-4:]
    churn()
    assert typed() == MONTHS


@pytest.mark.parametrize("call", ["run", "plan"])
def test_python_takes_it_too(call, churn):
    def called(**parameters):
        return _spans(getattr(from_python.open(folder), call), **parameters)

    folder = churn(window="3m")
    assert called() == MONTHS[-3:] and called(window=2) == MONTHS[-2:] and called(window="all") == MONTHS
    churn(window="all")
    assert called() == MONTHS


@pytest.fixture
def flows(monkeypatch):
    """{flow: function}, each without a server around its work."""
    from flows.orchestration import flows
    from flows.pipeline.listeners import Reporter

    def body(pipeline, work, **more):
        log = SimpleNamespace(report=Reporter(), table=lambda *text: None)
        return work(read_pipeline(pipeline), log)

    monkeypatch.setattr(flows, "flow_body", body)
    return SimpleNamespace(retrain=flows.retrain.fn, backfill=flows.backfill.fn)


@pytest.mark.slow  # imports Prefect
def test_every_flow_takes_it_too(churn, flows):
    folder = churn(window=3)
    backfill = {"first": "2024-05"}
    for flow, parameters in ((flows.retrain, {}), (flows.backfill, backfill)):
        assert _spans(flow, folder, **parameters) == MONTHS[-3:]
        assert _spans(flow, folder, window=2, **parameters) == MONTHS[-2:]
        assert _spans(flow, folder, window="all", **parameters) == MONTHS
    churn()
    assert _spans(flows.retrain, folder) == _spans(flows.backfill, folder, **backfill) == MONTHS


@pytest.mark.parametrize(
    ("window", "words"),
    [
        ("12x", "window: '12x' is not a window; write a number of spans, a time such as 30d or 12m, or all"),
        (0, "window: a window of 0 spans is empty; take at least 1"),
        (True, "window: True is not a window; write a number of spans"),
        ([3], "window: [3] is not a window"),
    ],
)
def test_a_wrong_one_is_refused_with_the_key(window, words, churn):
    with pytest.raises(ConfigError) as caught:
        read_pipeline(churn(window=window))
    assert words in str(caught.value) and "pipeline.yaml" in str(caught.value)


def test_one_that_does_not_fit_the_data_names_the_file_and_the_key(churn):
    loaded = read_pipeline(churn(window=7))
    with pytest.raises(ConfigError) as caught:
        choose_window(loaded, None).spans()
    assert caught.value.where == f"{loaded.file}: window" and "7 spans wanted" in caught.value.problem
    with pytest.raises(ConfigError) as caught:
        choose_window(loaded, 8).spans()
    assert caught.value.where == "--window"
    with pytest.raises(ConfigError, match=r"window needs several spans, so source.path needs \{span\}"):
        read_pipeline(churn(window=7, source={"format": "parquet", "path": "data"}, split={"mode": "hash"}))


@pytest.mark.parametrize(
    ("window", "named", "words"),
    [
        (3, None, "3 spans, by window of pipeline.yaml"),
        ("12m", None, "12m, by window of pipeline.yaml"),
        (3, 2, "2 spans, as asked"),
        (None, "2m", "2m, as asked"),
        (3, "all", "all spans, as asked, in place of 3 spans of pipeline.yaml"),
        (None, None, ""),
        ("all", "all", ""),
    ],
)
def test_one_that_is_not_all_says_where_it_was_set(window, named, words, churn):
    assert str(choose_window(read_pipeline(churn(window=window)), named)) == words


@pytest.mark.slow  # imports Beam
def test_plan_and_run_print_it(churn, monkeypatch, capsys):
    monkeypatch.undo()
    folder = churn(window=3)
    assert main(["plan", str(folder)]) == 0
    said = "churn: 2024-03 to 2024-05 (3 spans)\n  window: 3 spans, by window of pipeline.yaml\n"
    assert said in capsys.readouterr().out
    assert main(["plan", str(folder), "--json", "--window", "2"]) == 0
    assert json.loads(capsys.readouterr().out)["window"] == 2
    assert main(["run", "--to", "ingest", str(folder), "--window", "2"]) == 0
    assert "window: 2 spans, as asked: 2024-04 to 2024-05" in capsys.readouterr().err
    assert main(["run", "--to", "ingest", str(folder), "--window", "all"]) == 0
    record = json.loads(max((folder / "store" / "runs").glob("*.json")).read_text())
    assert record["window"] is None and record["spans"] == MONTHS
