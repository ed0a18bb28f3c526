"""The log of a run: kept line by line, without secrets."""

import pytest

from flows.progress.log_file import logged
from flows.progress.terminal import Lines, Reporter
from flows.records import log_path, read_log
from headway.redaction import remember
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
    remember("a token", "s3cr3t-value-1234")
    with logged(store, "r", Reporter()) as both:
        both.note("connected with s3cr3t-value-1234")
        both.note("half a character in a file's name: \udcff")
    assert "s3cr3t-value-1234" not in read_log(store, "r")


def test_a_log_that_cannot_be_written_costs_no_run(store):
    log_path(store, "r").mkdir()
    with logged(store, "r", Reporter()) as both:
        both.note("goes on")
