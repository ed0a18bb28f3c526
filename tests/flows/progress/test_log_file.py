"""The log of a run: kept line by line, without secrets; beside it how far its steps are."""

import json
from pathlib import Path

import pytest

from flows.progress.log_file import _LogFile, logged
from flows.progress.step_progress import Progress
from flows.progress.terminal import Lines, Reporter
from flows.records import log_path, progress_path, read_log
from headway.redaction import remember
from headway.stages.step import Output, Step
from headway.statistics.stage import StatisticsRequest
from headway.storage.store import Store


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "store")
    store.create()
    return store


def test_a_log_has_what_was_reported_also_where_nothing_is_shown(store):
    with logged(store, "r", Reporter()) as both:
        both.note("begun")
        both.monitor("train").log("resumed at step 5")
        assert len(read_log(store, "r").splitlines()) == 2  # while it runs: a run that is killed shows its last lines
    times, lines = zip(*(line.split(" ", 1) for line in read_log(store, "r").splitlines()), strict=True)
    assert lines == ("begun", "  train: resumed at step 5")
    assert all(time.endswith("Z") for time in times)


def test_a_log_says_how_a_run_ended_early_and_passes_everything_on(store, capsys):
    with pytest.raises(KeyboardInterrupt), logged(store, "r", Lines()) as both:
        both.note("shown too")
        raise KeyboardInterrupt
    assert "ended by KeyboardInterrupt" in read_log(store, "r")
    assert capsys.readouterr().err == "shown too\n"


def test_a_log_has_no_secret(store, monkeypatch):
    remember("A_TOKEN", "s3cr3t-value-1234")
    with logged(store, "r", Reporter()) as both:
        both.note("connected with s3cr3t-value-1234")
        both.note("half a character in a file's name: \udcff")
    assert "s3cr3t-value-1234" not in read_log(store, "r")


def test_a_log_that_cannot_be_written_costs_no_run(store):
    log_path(store, "r").mkdir()
    with logged(store, "r", Reporter()) as both:
        both.note("goes on")


def _running(store):
    return [Progress(**step) for step in json.loads(progress_path(store, "r").read_bytes())]


def test_a_step_is_there_from_its_start_to_its_end(store):
    step = Step(StatisticsRequest(columns=(), splits={}), "statistics")
    with logged(store, "r", Reporter()) as both:
        with both.stage([step]):
            (running,) = _running(store)
            assert running.step == "statistics" and running.words() == "", "it has said nothing yet"
        assert _running(store) == [], "it has failed, or another process goes on with it"


def test_how_far_the_steps_of_a_run_are_is_there_while_it_goes_on(store, monkeypatch):
    monkeypatch.setattr(_LogFile, "seconds", 0.0)
    with logged(store, "r", Reporter()) as both:
        assert not progress_path(store, "r").exists(), "no step runs yet"
        both.monitor("statistics").progress(1, None, "shards")
        both.monitor("train").progress(50, 200, "steps", loss=0.31)
        first, second = _running(store)
        assert (first.step, first.total) == ("statistics", None)
        assert second.words() == "50 of 200 steps, loss 0.31" and second.facts == {"loss": 0.31}
        both.output(Output("statistics", "statistics", "0", Path(), {"rows": {}}, False))
        assert [step.step for step in _running(store)] == ["train"]
    assert not progress_path(store, "r").exists()
    assert "50 of 200" not in read_log(store, "r"), "the log has a line of it only where a step takes long"
