"""Outputs of single ranges: whole or absent, whoever writes them how often."""

import pytest

from beam_jobs.runners.work_dir import Aside
from headway.errors import ConfigError, DataError


@pytest.fixture
def aside(tmp_path):
    made = Aside.of(tmp_path / "out")
    made.begin()
    return made


def test_a_range_appears_when_it_is_whole(aside):
    with aside.attempt(3) as folder:
        (folder / "facts.json").write_text('{"rows": 7}')
        assert aside.finished() == set()
    assert aside.finished() == {3}
    assert aside.facts(3) == {"rows": 7}
    assert [path.name for path in aside.folder.iterdir()] == ["00003"]


def test_a_failed_attempt_leaves_nothing(aside):
    with pytest.raises(ValueError, match="half"), aside.attempt(3) as folder:
        (folder / "facts.json").write_text("{}")
        raise ValueError("half way")
    assert list(aside.folder.iterdir()) == []


def test_two_attempts_at_once_leave_one(aside):
    with aside.attempt(0) as first, aside.attempt(0) as second:
        assert first != second
        (first / "facts.json").write_text('{"rows": 1}')
        (second / "facts.json").write_text('{"rows": 1}')
    assert [path.name for path in aside.folder.iterdir()] == ["00000"]
    assert aside.facts(0) == {"rows": 1}


def test_begin_forgets_what_a_killed_process_left(aside):
    with aside.attempt(1) as folder:
        (folder / "facts.json").write_text("{}")
    aside.stop()
    aside.begin()
    assert aside.finished() == set()
    assert not aside.stopped()


def test_an_error_keeps_its_kind_and_stops_the_others(aside):
    assert aside.error() is None
    aside.fail(5, ConfigError("later"))
    aside.fail(2, DataError("no such column", where="a.csv", fix="name another"))
    error = aside.error()
    assert type(error) is DataError
    assert (error.problem, error.where, error.fix) == ("no such column", "a.csv", "name another")
    assert aside.stopped()
    assert aside.finished() == set()


def test_a_worker_that_goes_on_after_the_driver_left_writes_nothing(aside):
    with pytest.raises(FileNotFoundError), aside.attempt(1) as folder:
        (folder / "facts.json").write_text("{}")
        aside.remove()
        assert aside.stopped()
        aside.fail(2, DataError("nobody listens"))
        (folder / "more").write_text("")
    assert list(aside.folder.parent.iterdir()) == []
