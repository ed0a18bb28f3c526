"""The log of a run: kept line by line, without secrets; beside it how far its steps are."""

import json
from pathlib import Path

import pytest

from flows.pipeline.listeners import LineWriter, Listener, LogFile, Progress, Reporter, open_log
from flows.records import log_path, progress_path, read_log
from headway.redaction import remember
from headway.stages.step import Output
from headway.storage.store import Store


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "store")
    store.create()
    return store


def test_a_log_has_what_was_reported_also_where_nothing_is_shown(store):
    with open_log(store, "r") as log:
        both = Reporter().of("r", log)
        both.note("begun")
        both.line("resumed at step 5", step="train")
        assert len(read_log(store, "r").splitlines()) == 2  # while it runs: a run that is killed shows its last lines
    times, lines = zip(*(line.split(" ", 1) for line in read_log(store, "r").splitlines()), strict=True)
    assert lines == ("begun", "  train: resumed at step 5")
    assert all(time.endswith("Z") for time in times)


def test_a_log_says_how_a_run_ended_early_and_passes_everything_on(store, capsys):
    with pytest.raises(KeyboardInterrupt), open_log(store, "r") as log:
        both = Reporter([LineWriter()]).of("r", log)
        both.note("shown too")
        raise KeyboardInterrupt
    assert "ended by KeyboardInterrupt" in read_log(store, "r")
    assert capsys.readouterr().err == "shown too\n"


def test_a_log_has_no_secret(store, monkeypatch):
    remember("A_TOKEN", "s3cr3t-value-1234")
    with open_log(store, "r") as log:
        both = Reporter().of("r", log)
        both.note("connected with s3cr3t-value-1234")
        both.note("half a character in a file's name: \udcff")
    assert "s3cr3t-value-1234" not in read_log(store, "r")


def test_a_listener_that_fails_costs_the_others_one_note_and_no_run(store, capsys):
    class Broken(Listener):
        name = "a server"

        def on_line(self, scope, text, level="info", step=""):
            raise RuntimeError("it is gone\nsince 12:00")

    log_path(store, "r").mkdir()
    with open_log(store, "r") as log:
        both = Reporter([Broken(), LineWriter()]).of("r", log)
        for line in ("goes on", "to the end"):
            both.note(line)
    on, full, end, gone = sorted(capsys.readouterr().err.splitlines(), key=lambda line: line[-3:])
    assert {on, full, end, gone} >= {"goes on", "to the end", "a server did not record this run: it is gone"}
    assert sum("the run's log did not record this run: [Errno 21]" in line for line in (on, full, end, gone)) == 1


def _running(store):
    return [Progress(**step) for step in json.loads(progress_path(store, "r").read_bytes())]


def test_a_step_is_there_from_its_start_to_its_end(store):
    with open_log(store, "r") as log:
        both = Reporter().of("r", log)
        with both.step("statistics"):
            (running,) = _running(store)
            assert running.step == "statistics" and running.words() == "", "it has said nothing yet"
        assert _running(store) == [], "it has failed, or another process goes on with it"


def test_how_far_the_steps_of_a_run_are_is_there_while_it_goes_on(store, monkeypatch):
    monkeypatch.setattr(LogFile, "seconds", 0.0)
    with open_log(store, "r") as log:
        both = Reporter().of("r", log)
        assert not progress_path(store, "r").exists(), "no step runs yet"
        with both.step("statistics") as one, both.step("train") as other:
            one.progress(1, None, "shards")
            other.progress(50, 200, "steps", loss=0.31)
            first, second = _running(store)
            assert (first.step, first.total) == ("statistics", None)
            assert second.words() == "50 of 200 steps, loss 0.31" and second.facts == {"loss": 0.31}
        both.output(Output("statistics", "statistics", "0", Path(), {"rows": {}}, False))
        assert _running(store) == []
    assert not progress_path(store, "r").exists()
    assert "50 of 200" not in read_log(store, "r"), "the log has a line of it only where a step takes long"
