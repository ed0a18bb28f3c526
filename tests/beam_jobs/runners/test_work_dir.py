"""Outputs of single ranges: whole or absent, whoever writes them how often."""

import pytest

from beam_jobs.runners.work_dir import ROWS, WorkDir
from headway.errors import ConfigError, DataError


@pytest.fixture
def work_dir(tmp_path):
    made = WorkDir.of(tmp_path / "out")
    made.begin()
    return made


def test_a_range_appears_when_it_is_whole(work_dir):
    with work_dir.attempt(3) as folder:
        (folder / "facts.json").write_text('{"rows": 7}')
        assert work_dir.finished() == set()
    assert work_dir.finished() == {3}
    assert work_dir.facts(3) == {"rows": 7}
    assert [path.name for path in work_dir.folder.iterdir()] == ["00003"]


def test_a_failed_attempt_leaves_nothing(work_dir):
    with pytest.raises(ValueError, match="half"), work_dir.attempt(3) as folder:
        (folder / "facts.json").write_text("{}")
        raise ValueError("half way")
    assert list(work_dir.folder.iterdir()) == []


def test_two_attempts_at_once_leave_one(work_dir):
    with work_dir.attempt(0) as first, work_dir.attempt(0) as second:
        assert first != second
        (first / "facts.json").write_text('{"rows": 1}')
        (second / "facts.json").write_text('{"rows": 1}')
    assert [path.name for path in work_dir.folder.iterdir()] == ["00000"]
    assert work_dir.facts(0) == {"rows": 1}


def test_begin_forgets_what_a_killed_process_left(work_dir):
    with work_dir.attempt(1) as folder:
        (folder / "facts.json").write_text("{}")
    work_dir.stop()
    work_dir.begin()
    assert work_dir.finished() == set()
    assert not work_dir.stopped()


def test_an_error_keeps_its_kind_and_stops_the_others(work_dir):
    assert work_dir.error() is None
    work_dir.fail(5, ConfigError("later"))
    work_dir.fail(2, DataError("no such column", where="a.csv", fix="name another"))
    error = work_dir.error()
    assert type(error) is DataError
    assert (error.problem, error.where, error.fix) == ("no such column", "a.csv", "name another")
    assert work_dir.stopped()
    assert work_dir.finished() == set()


def test_a_worker_that_goes_on_after_the_driver_left_writes_nothing(work_dir):
    with pytest.raises(FileNotFoundError), work_dir.attempt(1) as folder:
        (folder / "facts.json").write_text("{}")
        work_dir.remove()
        assert work_dir.stopped()
        work_dir.fail(2, DataError("nobody listens"))
        (folder / "more").write_text("")
    assert list(work_dir.folder.parent.iterdir()) == []


def test_rows_of_ranges_under_way_count_once_and_whole_ones_stay(work_dir):
    whole = {}
    with work_dir.attempt(0) as first, work_dir.attempt(0) as second, work_dir.attempt(1):
        (first / ROWS).write_text("5")
        (second / ROWS).write_text("8")
        assert work_dir.rows(whole) == 8 and whole == {}
        (first / "facts.json").write_text('{"rows": 20}')
        (second / "facts.json").write_text('{"rows": 20}')
    work_dir.fail(1, DataError("no such column"))
    assert work_dir.rows(whole) == 20 and whole == {0: 20}
